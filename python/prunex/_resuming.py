"""What an interrupted loop goes on from."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from prunex import _checkpoints, _cuts, _modules, _ranks
from prunex._library import library


class Resumable:
    """Of a strategy, what saves it and goes on from that."""

    model: nn.Module
    optimizers: tuple[torch.optim.Optimizer, ...]
    step: int

    _strategy: library.Strategy
    _make: Callable[[], library.Strategy] | None
    _trained: frozenset[str]  # the parameters that took gradients when it was made
    _settings: dict[str, str]  # that a state goes on under
    _ranks: _ranks.Ranks
    _process_group: dist.ProcessGroup | None

    _own_checkpoints: dict[Path, set[str]]  # by the directory that was given: the folders in it that are this run's
    _entered = False
    _synced = 0  # the step of the last exchange
    _landed = 0  # the step after which it had ended
    _cut: library.Cut | None = None
    _masked = False

    def __init__(self) -> None:
        self._own_checkpoints = {}

    def _as_made(self) -> contextlib.AbstractContextManager[None]:
        """What took gradients when the strategy was made does so meanwhile: loops may have switched that off."""
        return _modules.taking_gradients(self.model, self._trained)

    def state_dict(self) -> dict[str, Any]:
        """What an interrupted run needs beside the state of module and optimizer to go on bit for bit; to be taken
        after an exchange. Every rank has its own."""
        state = self._state()
        return state | {part: {name: tensor.clone() for name, tensor in state[part].items()}
                        for part in ("global", "node", "rank")}

    def _state(self) -> dict[str, Any]:
        """Of the tensors as they are, without copies."""
        everyone, node, rank = self._strategy.state()
        return {"settings": dict(self._settings), "step": self.step, "synced": self._synced, "masked": self._masked,
                "global": everyone, "node": node, "rank": rank, **self._ranks.place(),
                "cut": None if self._cut is None else self._cut.values()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Of a strategy made anew, of the whole module, with the same options. If the saved one was cut, module and
        optimizer are cut first: load their states afterwards. Before `with`. Collective."""
        if self._entered:
            raise ValueError("load_state_dict: the loop has begun; wanted it before `with`")
        self._expect_state(state)
        if state["node"] or state["rank"]:
            self._ranks.expect_place(state)
        with self._as_made():
            self._load(state)

    def save(self, directory: str | os.PathLike[str], extra: Mapping[str, Any] | None = None) -> None:
        """Writes a checkpoint of module, optimizer, strategy and `extra`, whatever else the loop wants to have back: a
        dict of tensors, numbers and strings. Collective, after a step that ends with an exchange. Every rank has a file
        below `directory`, which may be on one disk or on each machine's own. A checkpoint counts once all ranks have
        written; the last two are kept.

        Raises ValueError for another step, for what torch.load would not take back, and where another run's checkpoints
        are, on which resume() was not called; OSError where a file cannot be written; RuntimeError, which names the
        rank, on the others.
        """
        if self.step != self._landed or self.step == 0:
            raise ValueError(f"save: got step {self.step}, wanted one that ends with an exchange; the last one was step "
                             f"{self._landed}")
        folder = Path(directory).absolute()

        def make() -> dict[str, Any]:
            return {"model": self.model.state_dict(),
                    "optimizers": [{"kind": type(optimizer).__name__, **optimizer.state_dict()}
                                   for optimizer in self.optimizers],
                    "strategy": self._state(), "extra": dict(extra or {})}

        own = self._own_checkpoints.setdefault(folder, set())
        _checkpoints.save(folder, self.step, make, own, self._ranks, self._process_group)

    def resume(self, directory: str | os.PathLike[str]) -> dict[str, Any] | None:
        """Goes on from the newest checkpoint below `directory` that save() has finished: wanted before `with`. Returns
        its `extra`, or None if there is no checkpoint. Collective.

        The same ranks go on to the bit; random states are the loop's matter, in `extra`. There may also be fewer nodes
        or more, with as many ranks each: what only a node had that is gone is lost, and one more begins with z, an
        optimizer as it is when made, and the `extra` of another.

        Raises ValueError for other options or ranks, and RuntimeError for a file that is damaged, on the other ranks a
        RuntimeError that names the rank.
        """
        if self._entered:
            raise ValueError("resume: the loop has begun; wanted it before `with`")
        folder = Path(directory).absolute()
        found = _checkpoints.find(folder, self._ranks.node_sizes, self._process_group)
        self._own_checkpoints[folder] = _checkpoints.seen_in(folder)
        if found is None:
            return None

        def read() -> dict[str, Any] | None:
            share = _checkpoints.load(folder, found, self._ranks.rank)
            if share is not None:
                self._expect_state(share["strategy"])
                self._expect_optimizers(share.get("optimizers", []))
                if others := sorted(self.model.state_dict().keys() ^ share["model"].keys()):
                    raise ValueError(f"`model`: got another than that of the saved run: {others[0]} is in one alone")
                self._ranks.expect_like_nodes(share["strategy"]["nodes"])
            return share

        own = _checkpoints.all_or_none(read, self._process_group)
        given = _checkpoints.handed_on(lambda: _for_newcomers(own), found, self._ranks, self._process_group)
        content: dict[str, Any] = (own or given)  # type: ignore[assignment]
        lost = sum(content["strategy"]["nodes"]) > sum(share is not None for share in found.shares)
        with self._as_made():
            _checkpoints.all_or_none(lambda: self._take(content, own is not None, lost), self._process_group)
        return dict(content["extra"])

    def _take(self, content: Mapping[str, Any], own: bool, lost: bool) -> None:
        self._load(content["strategy"], own, lost)
        self.model.load_state_dict(content["model"])
        for optimizer, saved in zip(self.optimizers, content["optimizers"]):
            fresh = {} if own else {"state": optimizer.state_dict()["state"]}
            optimizer.load_state_dict({key: value for key, value in {**saved, **fresh}.items() if key != "kind"})
        if not own:
            _modules.copy_weights(self.model, *self._strategy.product())

    def _expect_optimizers(self, saved: Sequence[Mapping[str, Any]]) -> None:
        def said(kind: str, groups: Sequence[Mapping[str, Any]]) -> str:
            return f"{kind} of {' and '.join(str(len(group['params'])) for group in groups)} parameters"

        own = ", ".join(said(type(optimizer).__name__, optimizer.param_groups) for optimizer in self.optimizers)
        theirs = ", ".join(said(one["kind"], one["param_groups"]) for one in saved)
        if own != theirs:
            raise ValueError(f"`optimizer`: got {own}, the run that was saved has {theirs}")

    def _expect_state(self, state: Mapping[str, Any]) -> None:
        wanted = {"settings", "step", "synced", "masked", "global", "node", "rank", "of_rank", "nodes", "cut"}
        _ranks.expect_saved(state, wanted, self._settings, "strategy")
        params, saved = self._strategy.product()
        theirs = {name[2:] for name in state["global"] if name.startswith("z/")}
        if others := sorted((params.keys() - theirs) | (theirs - params.keys() - saved.keys())):
            raise ValueError(f"state_dict: it is of another network: {others[0]} is in one alone")
        if self._cut is not None:
            raise ValueError("state_dict: this strategy has cut its module already; wanted one made anew, of the whole "
                             "module")

    def _load(self, state: Mapping[str, Any], own: bool = True, lost: bool = False) -> None:
        """own: this rank's, else of a rank that has its place in another node. lost: nobody goes on from what some node
        had."""
        # from wherever torch.load has put it: parts of it are the host's
        everyone, node, rank = ({name: tensor.cpu() for name, tensor in state[part].items()}
                                for part in ("global", "node", "rank"))
        cut, undo = None, None
        if state["cut"] is not None:
            cut = library.Cut.of_values(state["cut"])
            undo = _cuts.cut(self.model, cut, self.optimizers, self._strategy.layer_groups(cut))
            self._strategy.set_weights(*_modules.weights(self.model))
        try:
            self._strategy.load(everyone, node, rank, cut, own, lost)
        except BaseException:
            if undo is not None:
                undo()
                self._strategy.set_weights(*_modules.weights(self.model))
            raise
        self._cut, self._make = cut, None
        self.step, self._synced, self._masked = state["step"], state["synced"], state["masked"]
        self._landed = self.step


def _for_newcomers(own: Mapping[str, Any] | None) -> dict[str, Any]:
    """Of what a rank has for itself, names and sizes; of its optimizers, how they are set; of its module, what z has is
    z's: the same tensors, which travel once."""
    assert own is not None
    sizes = {name: torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
             for name, tensor in own["strategy"]["rank"].items()}
    model = copy.copy(own["model"])
    model.update({name[2:]: tensor for name, tensor in own["strategy"]["global"].items()
                  if name.startswith("z/") and name[2:] in model})
    return {"strategy": {**own["strategy"], "rank": sizes}, "model": model, "extra": own["extra"],
            "optimizers": [{**saved, "state": {}} for saved in own["optimizers"]]}
