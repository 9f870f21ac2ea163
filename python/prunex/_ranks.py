"""Which ranks there are, and on which nodes."""

import ctypes
import datetime
import hashlib
import itertools
import os
import socket
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from prunex import _arguments
from prunex._library import library


def _all_of(process_group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """The group that is meant: without one, that of all ranks."""
    group = process_group if process_group is not None else dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):
        outside = group is dist.GroupMember.NON_GROUP_MEMBER
        got = "that of other ranks: this one is no member" if outside else f"a {type(group).__name__}"
        raise ValueError(f"`process_group`: got {got}, wanted a torch.distributed.ProcessGroup with this rank in it, "
                         "as new_group() and DeviceMesh.get_group() return")
    return group


def gathered(value: Any, process_group: dist.ProcessGroup | None) -> list[Any]:
    """Of every rank. Collective; a process without torch.distributed is alone."""
    if not dist.is_initialized():
        return [value]
    group = _all_of(process_group)
    values: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def _say_the_same(one: str, other: str) -> bool:
    """Also as numbers: 1 and 1.0."""
    try:
        return one == other or float(one) == float(other)
    except ValueError:
        return False


def first_difference(settings: dict[str, str], others: dict[str, str]) -> tuple[str, str, str] | None:
    """A name, and what both have of it."""
    for name in [*settings, *others]:
        one, other = settings.get(name, "none"), others.get(name, "none")
        if not _say_the_same(one, other):
            return name, one, other
    return None


def expect_equal(settings: dict[str, str], process_group: dist.ProcessGroup | None) -> None:
    """Of all ranks. Collective. Raises ValueError, on all of them, that names what differs."""
    everyone = gathered(settings, process_group)
    for rank, other in enumerate(everyone):
        if differs := first_difference(everyone[0], other):
            name, first, its = differs
            raise ValueError(f"`{name}`: rank 0 has {first}, rank {rank} {its}; wanted the same on all ranks")


def expect_saved(state: Mapping[str, Any], keys: set[str], settings: dict[str, str], mine: str) -> None:
    """Under the settings that `mine`, a strategy or a hook, has. Raises ValueError."""
    if missing := sorted(keys - state.keys()):
        raise ValueError(f"state_dict: has no {missing[0]!r}: wanted what state_dict() gave")
    if differs := first_difference(state["settings"], settings):
        name, saved, own = differs
        raise ValueError(f"state_dict: it was saved with `{name}` {saved}, this {mine} has {own}")


def _node_of_this_rank() -> str:
    """The same on the ranks of a node: torchrun counts nodes, other launchers leave the machine's name."""
    return os.environ.get("GROUP_RANK") or socket.gethostname()


def _node_sizes(nodes: Sequence[str], ranks_per_node: int | None) -> list[int]:
    """nodes: of every rank."""
    size = len(nodes)
    if ranks_per_node is not None:
        if size % _arguments.whole("ranks_per_node", ranks_per_node) != 0:
            raise ValueError(f"`ranks_per_node`: got {ranks_per_node}, wanted a divisor of the {size} ranks")
        return [ranks_per_node] * (size // ranks_per_node)
    runs = [(node, len(list(ranks))) for node, ranks in itertools.groupby(nodes)]
    if len({node for node, _ in runs}) < len(runs):
        raise ValueError(f"`process_group`: the ranks of a node must follow one another, got them on nodes {nodes}")
    return [count for _, count in runs]


def _serves_cpu(group: dist.ProcessGroup) -> bool:
    return any(device.type == "cpu" for device in group._device_types)


class _Groups:
    """Process groups of some ranks of `group`, which serve the CPU, too, where masks, scores and norms are exchanged:
    NCCL alone does not."""

    def __init__(self, group: dist.ProcessGroup, timeout: float) -> None:
        self._group, self._everyone = group, dist.get_process_group_ranks(group)
        self._options: dict[str, Any] = {
            "backend": dist.get_backend_config(group) if _serves_cpu(group) else "cpu:gloo,cuda:nccl",
            "timeout": datetime.timedelta(seconds=timeout + 60)}  # ours names the rank that is missing before
        # torch.distributed names groups by how many were made: all ranks make all of them, in one order. Of a part of
        # the ranks only members may make one, and the name counts what a rank is in: as much on all after some of
        # its own
        self._of_all = dist.get_world_size(group) == dist.get_world_size()
        if not self._of_all:
            if (device := getattr(dist.group.WORLD, "bound_device_id", None)) is not None:
                raise ValueError("`process_group`: got a part of the ranks, and init_process_group got `device_id` "
                                 f"{device}, with which torch makes groups of NCCL with all ranks only; wanted it "
                                 "without `device_id`: torch.cuda.set_device")
            counts = gathered(len(dist.distributed_c10d._world.pg_names), group)
            for _ in range(max(counts) - counts[dist.get_rank(group)]):
                dist.new_group([dist.get_rank()], use_local_synchronization=True, **self._options)

    def make(self, lists: list[list[int]]) -> str:
        """The name of the group that this rank is in, of these without common ranks; empty if it is alone there."""
        mine, name = dist.get_rank(self._group), ""
        for members in lists:
            if self._of_all and len(members) == 1:
                continue
            ranks = [self._everyone[rank] for rank in members]
            made = dist.new_group(ranks, use_local_synchronization=not self._of_all, **self._options)
            if mine in members and len(members) > 1:
                name = str(made.group_name)
        return name


def _plain(tensor: Tensor) -> Tensor:
    own = tensor.detach()
    return torch.view_as_real(own) if own.is_complex() else own


def _as_bytes(plain: Tensor) -> Tensor:
    """A copy, which every backend sends."""
    return plain.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def _digest(tensors: Iterable[Tensor]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        data = _as_bytes(_plain(tensor)).cpu()
        digest.update(ctypes.string_at(data.data_ptr(), data.numel()))
    return digest.digest()


def make_equal(tensors: Sequence[Tensor], process_group: dist.ProcessGroup | None) -> None:
    """Where ranks differ in these, of any type and layout, they get what the first one has. Collective."""
    if not dist.is_initialized() or len(set(gathered(_digest(tensors), process_group))) == 1:
        return
    group = _all_of(process_group)
    for plain in map(_plain, tensors):
        data = _as_bytes(plain)
        dist.broadcast(data, dist.get_global_rank(group, 0), group)
        plain.copy_(data.view(plain.dtype).view(plain.shape))


@dataclass
class _Connections:
    """Process groups that were made for ranks like these, and whether others may have them: those before are gone, and
    nothing has failed on them."""

    sizes: tuple[int, ...]
    timeout: float
    names: tuple[str, str, str]
    are_free: bool = False


# torch.distributed ends no group before all of them: what a strategy leaves, the next one takes. By the group that was
# asked for, in whose ranks alone the list is the same; it is gone with that group.
_made_of: weakref.WeakKeyDictionary[dist.ProcessGroup, list[_Connections]] = weakref.WeakKeyDictionary()


class Ranks(library.Ranks):
    """The groups of this rank. Gives its connections back when it goes."""

    _connections: _Connections | None = None

    def __init__(self, sizes: Sequence[int], rank: int, timeout: float, connections: _Connections | None) -> None:
        names = ("", "", "")
        if connections is not None:
            names, connections.are_free = connections.names, False
        super().__init__(list(sizes), rank, *names, timeout)
        self.rank, self.node_sizes, self._connections = rank, list(sizes), connections

    def __del__(self) -> None:
        if self._connections is not None:
            self._connections.are_free = self.sound()

    def place(self) -> dict[str, Any]:
        """Of this rank, for what it saves of its own."""
        return {"of_rank": self.rank, "nodes": self.node_sizes}

    def expect_place(self, state: Mapping[str, Any]) -> None:
        """In what a rank has saved of its own. Raises ValueError."""
        if state["of_rank"] != self.rank:
            raise ValueError(f"state_dict: it is that of rank {state['of_rank']}, this is rank {self.rank}: every rank "
                             "has its own")
        if state["nodes"] != self.node_sizes:
            raise ValueError(f"state_dict: it was saved on nodes of {state['nodes']} ranks, these are of "
                             f"{self.node_sizes}")

    def expect_like_nodes(self, saved: Sequence[int]) -> None:
        """saved: how many ranks each node had. On other nodes only if all have as many. Raises ValueError."""
        if list(saved) != self.node_sizes and len({*saved, *self.node_sizes}) > 1:
            raise ValueError(f"resume: it was saved on nodes of {list(saved)} ranks, these are of {self.node_sizes}; "
                             "wanted as many ranks on each node")

    def doubts_of(self, payload: str | None) -> list[str]:
        """That it has no effect, where it has none."""
        if payload in (None, "fp32") or len(self.node_sizes) > 1 or self.node_sizes[0] == 1:
            return []
        return [f"`payload`: got {payload}, which is for what crosses nodes, and all {self.node_sizes[0]} ranks are on "
                "one; `ranks_per_node=1` takes each for a node"]


def join(process_group: dist.ProcessGroup | None, ranks_per_node: int | None, timeout: float) -> Ranks:
    """The groups of this rank, on connections that neither the loop's own calls use nor another strategy's. Collective;
    a process without torch.distributed is alone."""
    if not dist.is_initialized():
        if process_group is not None:
            raise ValueError(f"`process_group`: got a {type(process_group).__name__}, and torch.distributed is not "
                             "initialized: call torch.distributed.init_process_group first")
        if os.environ.get("WORLD_SIZE", "1") != "1" and "RANK" in os.environ:
            raise ValueError(f"torch.distributed: this is rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}, "
                             "which know nothing of each other: call torch.distributed.init_process_group first")
        if ranks_per_node not in (None, 1):
            raise ValueError(f"`ranks_per_node`: got {ranks_per_node}, this process is alone: "
                             "call torch.distributed.init_process_group first")
        return Ranks([1], 0, timeout, None)
    group = _all_of(process_group)
    made = _made_of.setdefault(group, [])
    everyone = gathered((_node_of_this_rank(), {c.names[0] for c in made if c.are_free}), group)
    sizes = _node_sizes([node for node, _ in everyone], ranks_per_node)
    rank = dist.get_rank(group)
    if sizes == [1]:
        return Ranks(sizes, rank, timeout, None)
    free = set.intersection(*(names for _, names in everyone))
    for connections in made:
        if connections.names[0] in free and (connections.sizes, connections.timeout) == (tuple(sizes), timeout):
            return Ranks(sizes, rank, timeout, connections)
    made.append(_Connections(tuple(sizes), timeout, _made(group, sizes, timeout)))
    return Ranks(sizes, rank, timeout, made[-1])


def _made(group: dist.ProcessGroup, sizes: list[int], timeout: float) -> tuple[str, str, str]:
    """The names of new process groups: of all ranks, of this one's node, and of those that it meets on other nodes."""
    first = [sum(sizes[:node]) for node in range(len(sizes))]
    nodes = [[first[node] + i for i in range(sizes[node])] for node in range(len(sizes))]
    # ranks that not every node has talk to no other node by themselves
    rails = [[begin + i for begin in first] for i in range(min(sizes))]
    rails += [[rank] for ranks in nodes for rank in ranks[min(sizes):]]
    groups, everyone = _Groups(group, timeout), list(range(sum(sizes)))
    world = groups.make([everyone])
    node, rail = (world if lists == [everyone] else groups.make(lists) for lists in (nodes, rails))
    return world, node, rail
