"""The steps of optimizers, as they are counted for whoever looks at them."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from prunex import _modules

_FILE_OF_STEPS = torch.optim.Optimizer.register_step_pre_hook.__code__.co_filename


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _step_that_calls() -> FrameType | None:
    """Of an optimizer, what calls its hooks; torch wraps the step() of every class of which it makes one."""
    return next((frame for frame in _callers() if frame.f_code.co_filename == _FILE_OF_STEPS), None)


class CountedSteps:
    """Until end(), calls before() in each step of the optimizers, when its gradients are there, and after() behind that
    of the last one."""

    def __init__(self, owner: str, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer],
                 before: Callable[[], None], after: Callable[[], None]) -> None:
        """owner: what messages call it. Raises ValueError if these steps, or some to the same weights, are counted."""
        for other in _counting:
            other._expect_apart(model, optimizers)
        self._owner, self._model, self._optimizers = owner, model, optimizers
        self._call_before, self._call_after = before, after
        self._at_work: dict[torch.optim.Optimizer, FrameType] = {}  # their step()
        self._stepped: set[torch.optim.Optimizer] = set()  # since the last one's step
        self._late: set[torch.optim.Optimizer] = set()  # that had not stepped before the last one did
        self._gradients: list[tuple[Tensor, int]] = []  # with which that did, and their versions
        self._has_warned = False
        # a compiled step calls them, but does not trace into them
        pre, post = map(torch.compiler.disable, (self._before, self._after))
        self._handles = [handle for optimizer in optimizers for handle in
                         (optimizer.register_step_pre_hook(pre), optimizer.register_step_post_hook(post))]
        _counting.add(self)

    def end(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._at_work.clear()
        _counting.discard(self)

    def counts(self, optimizer: torch.optim.Optimizer) -> bool:
        return optimizer in self._optimizers

    def _expect_apart(self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        if any(map(self.counts, optimizers)):
            raise ValueError(f"`optimizer`: its steps count for a {self._owner} already, whose context has not ended")
        own = {id(p) for p in self._model.parameters() if p.requires_grad}
        if any(id(p) in own for p in model.parameters() if p.requires_grad):
            raise ValueError(f"`model`: a {self._owner}, whose context has not ended, exchanges the same weights; "
                             "wanted one with all optimizers, as in [muon, adamw]")

    def _before(self, optimizer: torch.optim.Optimizer, arguments: tuple[Any, ...],
                options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """A closure makes the gradients in step() itself: what changes them follows it."""
        at_work = self._at_work.get(optimizer)
        if at_work is not None and any(frame is at_work for frame in _callers()):
            return None  # a class's step() calls that of its base, whose hooks are the same
        if (step := _step_that_calls()) is not None:
            self._at_work[optimizer] = step
        if optimizer in self._late:
            self._warn_of_order(optimizer)
        closure = arguments[1] if len(arguments) > 1 else options.get("closure")
        if closure is None:
            self._call_before()
            return None

        def followed() -> Any:
            loss = closure()
            with torch.no_grad():
                self._call_before()
            return loss

        if len(arguments) > 1:
            return (arguments[0], followed, *arguments[2:]), options
        return arguments, {**options, "closure": followed}

    def _after(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._at_work.get(optimizer) is not _step_that_calls():
            return
        self._at_work.pop(optimizer, None)
        self._stepped.add(optimizer)
        if optimizer is not self._optimizers[-1]:
            return
        self._late = set() if self._has_warned else set(self._optimizers) - self._stepped
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if self._late]
        self._gradients = [(grad, grad._version) for grad in grads if grad is not None]
        self._stepped.clear()
        self._call_after()

    def _warn_of_order(self, late: torch.optim.Optimizer) -> None:
        """Of one that steps by the gradients with which the last one has: it has not been left out for once, as by a
        scaler."""
        last = self._optimizers[-1]
        now = [p.grad for group in last.param_groups for p in group["params"] if p.grad is not None]
        same = len(now) == len(self._gradients) and all(
            grad is other and grad._version == version for grad, (other, version) in zip(now, self._gradients))
        self._late = set()
        if same:
            self._has_warned = True
            warnings.warn(f"`optimizer`: {type(last).__name__}, the last one, stepped before {type(late).__name__}, so "
                          "that an exchange may undo a step; wanted them in the order of their steps", stacklevel=5)


_counting: weakref.WeakSet[CountedSteps] = weakref.WeakSet()


def warn_of_steps_outside(whose: object, optimizer: torch.optim.Optimizer) -> torch.utils.hooks.RemovableHandle:
    """Once, until the handle is removed; not where they count for another."""
    weak: weakref.ref[object] | None = weakref.ref(whose)

    def look(*_: Any) -> None:
        nonlocal weak
        made, weak = None if weak is None else weak(), None
        if made is not None and not any(counted.counts(optimizer) for counted in _counting):
            name = type(made).__name__
            warnings.warn(f"{name}: a step of its optimizer does not count, wanted `with` this {name} around the loop",
                          stacklevel=4)

    return optimizer.register_step_pre_hook(look)
