"""Checkpoints of a loop, DIR/<step>-<word>/rank-<r>.pt: what any number of nodes goes on from.

A rank's file is written under another name, and gets its own once all ranks have written: where one file has its name,
all are whole.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from prunex import _ranks

T = TypeVar("T")

_FOLDER = re.compile(r"(\d+)-[0-9a-f]{8}")
_FILE = re.compile(r"rank-(\d+)\.pt(\.new)?")
# What torch.load takes back without running code, of these types and not of those made from them.
_DICTS, _LISTS = (dict, OrderedDict, Counter), (list, tuple, set)
_PLAIN = (Tensor, nn.Parameter, str, int, float, complex, bool, bytes, type(None), torch.dtype, torch.layout,
          torch.device, torch.Size)


def _file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.pt"


def _new(file: Path) -> Path:
    return file.with_name(f"{file.name}.new")


def _step_of(folder: str) -> int:
    return int(folder.partition("-")[0])


def expect_loadable(value: Any, name: str) -> None:
    """Raises ValueError."""
    if type(value) in _DICTS:
        for key, item in value.items():
            expect_loadable(key, f"a key of {name}")
            expect_loadable(item, f"{name}[{key!r}]")
    elif type(value) in _LISTS:
        for i, item in enumerate(value):
            expect_loadable(item, f"{name}[{i}]")
    elif type(value) not in _PLAIN:
        raise ValueError(f"save: {name} is a {type(value).__name__}, wanted tensors, numbers and strings, and dicts "
                         "and lists of them")
    elif type(value) is bytes and not value:
        raise ValueError(f"save: {name} is b'', which torch.load does not take back")


def all_or_none(do: Callable[[], T], process_group: dist.ProcessGroup | None,
                undo: Callable[[], None] = lambda: None) -> T:
    """What `do` returns on this rank. Collective. What fails on a rank is raised there, and on the others as a
    RuntimeError that names it; all `undo` before. Not where a rank is lost: others may have heard that all have done
    it."""
    failed: Exception | None = None
    try:
        done = do()
    except Exception as error:  # whatever it is, the others must not wait for this rank
        failed = error
    said = _ranks.gathered("" if failed is None else f"{failed}" or type(failed).__name__, process_group)
    if any(said):
        undo()
    if failed is not None:
        raise failed
    for rank, why in enumerate(said):
        if why:
            raise RuntimeError(f"rank {rank}: {why}")
    return done


def _write(file: Path, content: Mapping[str, Any]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "wb") as out:
            torch.save(content, out)
            out.flush()
            os.fsync(out.fileno())
    except (OSError, RuntimeError) as error:  # torch's writer does not say what the system said
        why = error.strerror if isinstance(error, OSError) else "it cannot be written: is the disk full?"
        raise OSError(f"save: {file}: {why}") from error


def _remove(folder: Path, rank: int | None = None) -> None:
    """Its files, or those of a rank, and itself once it is empty. Others may do so at the same time."""
    with contextlib.suppress(OSError):
        for file in list(folder.iterdir()):
            if (match := _FILE.fullmatch(file.name)) and rank in (None, int(match[1])):
                file.unlink(missing_ok=True)
        folder.rmdir()


def _files(directory: Path) -> Iterator[tuple[str, int, bool]]:
    """Folder, rank and whether it has its own name, of all that this machine has."""
    for folder in directory.iterdir() if directory.exists() else ():
        if not _FOLDER.fullmatch(folder.name) or not folder.is_dir():
            continue
        with contextlib.suppress(FileNotFoundError):  # another rank removes it
            for path in list(folder.iterdir()):
                if match := _FILE.fullmatch(path.name):
                    yield folder.name, int(match[1]), match[2] is None


def seen_in(directory: Path) -> set[str]:
    """The folders of checkpoints, finished or not."""
    return {name for name, _, _ in _files(directory)}


def _remove_others(directory: Path, kept: str, own: Set[str]) -> None:
    """Keeps the one before, too; later ones are of a run that was gone back from."""
    files = [file for file in _files(directory) if file[0] in own and file[0] != kept]
    finished = {name for name, _, has_name in files if has_name and _step_of(name) < _step_of(kept)}
    before = max(finished, key=_step_of, default=None)
    for name in {name for name, _, _ in files} - {before}:
        _remove(directory / name)


def save(directory: Path, step: int, make: Callable[[], Mapping[str, Any]], own: set[str], ranks: _ranks.Ranks,
         process_group: dist.ProcessGroup | None) -> None:
    """What `make` makes. step: of this rank; of several that differ after the last exchange the folder has the last.
    own: the folders of this run, among which this one comes. Collective; where one rank cannot write, nothing of this
    checkpoint stays. Raises OSError or ValueError there, RuntimeError on the others."""
    steps, words = zip(*_ranks.gathered((step, secrets.token_hex(4)), process_group))
    folder = directory / f"{max(steps)}-{words[0]}"
    file = _file(folder, ranks.rank)
    own.add(folder.name)

    def write() -> None:
        try:
            others = sorted({name for name, _, has_name in _files(directory) if has_name and name not in own})
        except OSError as error:
            raise OSError(f"save: {directory}: {error.strerror}") from error
        if others:
            raise ValueError(f"save: {directory / others[0]} is of another run; wanted resume() before, or another "
                             "directory")
        content = make()
        for name, value in content.items():
            expect_loadable(value, name)
        _write(_new(file), content)

    all_or_none(write, process_group, undo=lambda: _remove(folder, ranks.rank))
    all_or_none(lambda: os.replace(_new(file), file), process_group)
    with contextlib.suppress(OSError):  # it counts, whether others go or not
        _remove_others(directory, folder.name, own)


class Found(NamedTuple):
    """A checkpoint, and which saved rank's share each rank goes on from; None: from nothing of its own."""

    folder: str
    shares: list[int | None]


# By folder: the ranks whose files a process sees there, and whether each has its name.
_Seen = dict[str, dict[int, bool]]


def _look(directory: Path) -> _Seen:
    seen: _Seen = {}
    for name, rank, has_name in _files(directory):
        files = seen.setdefault(name, {})
        files[rank] = files.get(rank, False) or has_name
    return seen


def _shares_in(folder: str, everyone: Sequence[_Seen], sizes: Sequence[int]) -> list[int | None]:
    """Whole nodes go on from whole nodes: each from the one of its own number, if its ranks see that, else from the first
    that no other has. Of nodes of different numbers of ranks only from that of its own number."""
    first = [sum(sizes[:node]) for node in range(len(sizes))]
    uniform = len(set(sizes)) == 1
    saved = {rank for seen in everyone for rank in seen.get(folder, {})}

    def begin(node: int) -> int:
        return first[node] if node < len(first) else node * sizes[0]

    def sees(node: int, other: int) -> bool:
        return all(begin(other) + i in everyone[first[node] + i].get(folder, {}) for i in range(sizes[node]))

    candidates = range(max(saved) // sizes[0] + 1) if uniform else range(len(sizes))
    taken: dict[int, int] = {node: node for node in range(len(sizes)) if sees(node, node)}
    for node in range(len(sizes)) if uniform else ():
        free = (other for other in candidates if other not in taken.values() and sees(node, other))
        if node not in taken and (other := next(free, None)) is not None:
            taken[node] = other
    return [begin(taken[node]) + i if node in taken else None for node in range(len(sizes)) for i in range(sizes[node])]


def find(directory: Path, sizes: Sequence[int], process_group: dist.ProcessGroup | None) -> Found | None:
    """The newest checkpoint that was finished, of which anybody has something. sizes: ranks on each node. Collective."""
    everyone = _ranks.gathered(all_or_none(lambda: _look(directory), process_group), process_group)
    finished = {name for seen in everyone for name, files in seen.items() if any(files.values())}
    found = [Found(name, _shares_in(name, everyone, sizes)) for name in sorted(finished)]
    found = [one for one in found if any(share is not None for share in one.shares)]
    # a step may have been saved twice, by those who went back and by those who had been lost
    newest = max(found, key=lambda one: (_step_of(one.folder), sum(share is not None for share in one.shares)),
                 default=None)
    if newest is not None and len(set(sizes)) > 1 and None in newest.shares:
        raise ValueError(f"resume: rank {newest.shares.index(None)} has no share of {directory / newest.folder}; on "
                         f"nodes of {list(sizes)} ranks, wanted all that it was saved on")
    return newest


def load(directory: Path, found: Found, rank: int) -> dict[str, Any] | None:
    """The share of this rank. Raises RuntimeError for a file that is damaged."""
    share = found.shares[rank]
    if share is None:
        return None
    file = _file(directory / found.folder, share)
    if not file.exists():
        file = _new(file)
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise RuntimeError(f"resume: {file} is damaged; without {file.parent} on any machine the one before it is "
                           "taken") from error
    if not isinstance(content, dict):
        raise RuntimeError(f"resume: {file} has a {type(content).__name__}, wanted what save() writes")
    return content


def handed_on(make: Callable[[], dict[str, Any]], found: Found, ranks: _ranks.Ranks,
              process_group: dist.ProcessGroup | None) -> dict[str, Any] | None:
    """What `make` makes of another rank's share, for a rank without one: of the first that has its place in a node.
    Collective."""
    places = [i for size in ranks.node_sizes for i in range(size)]
    for receiver in (rank for rank, share in enumerate(found.shares) if share is None):
        donor = next(rank for rank, share in enumerate(found.shares)
                     if share is not None and places[rank] == places[receiver])
        if ranks.rank == donor:
            dist.send_object_list([make()], group=process_group, group_dst=receiver)
        if ranks.rank == receiver:
            given: list[Any] = [None]
            dist.recv_object_list(given, group=process_group, group_src=donor)
            return dict(given[0])
    return None
