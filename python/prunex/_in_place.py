"""Modules that lose what a plan says: as far as their own code follows."""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from prunex import _checked_cut, _cuts, _modules
from prunex._library import library

Plan = Callable[[list[str]], library.PrunedNetwork]


def cut_what_follows(module: nn.Module, network: library.Network, plan: Plan, example: Any,
                     optimizers: Sequence[torch.optim.Optimizer]) -> library.PrunedNetwork:
    """Cuts module and optimizers as planned. `plan` makes a plan that leaves groups of these names whole: those that the
    module's code cannot lose, of which a warning tells. ValueError if that plan cannot be."""
    result, whole = plan([]), list[str]()
    training = _checked_cut.trains_with(module, _modules.arguments_of(example), stacklevel=4)
    arguments = _checked_cut.probes(module, _modules.arguments_of(example))
    for look in (_inflexible_kinds, _inflexible, _inflexible_as_planned, None):
        try:
            _cut(module, result, arguments, optimizers, training)
            if whole:
                warnings.warn(_said_of(module, whole), stacklevel=3)
            return result
        except _checked_cut.Differs as error:
            if look is None:
                raise ValueError(f"`model`: the code of {type(module).__name__} does not allow what its graph does "
                                 f"({error}): prune the exported program, torch.export.export(model, …)") from error
            if isinstance(error, _checked_cut.DiffersInTraining) and look is _inflexible_kinds:
                look = _inflexible  # layers that look alike need not have the same users
            whole = look(module, network, result, arguments, training)
        try:
            result = plan(whole)
        except ValueError as error:
            raise ValueError(f"{error}; {_said_of(module, whole)}") from error
    raise AssertionError


@contextlib.contextmanager
def watching_optimizers(module: nn.Module) -> Iterator[None]:
    """Around a cut: of an optimizer that is not cut along and goes on to move what the module no longer has, the first
    step is warned of."""
    before = list(module.parameters())
    yield
    now = {id(p) for p in module.parameters()}
    if gone := [p for p in before if id(p) not in now]:
        _warn_of_steps(gone)


_replaced: dict[int, "weakref.ref[nn.Parameter]"] = {}
"""Parameters that cuts have replaced, by their ids, as long as somebody has them."""
_looks: list[object] = []
"""What looks at the steps of all optimizers, from the first such cut on."""


def _warn_of_steps(gone: list[nn.Parameter]) -> None:
    if not _looks:
        _looks.append(register_optimizer_step_pre_hook(_look))
    for p in gone:
        _replaced[id(p)] = weakref.ref(p, functools.partial(_forget, id(p)))


def _forget(key: int, _: object) -> None:
    _replaced.pop(key, None)


def _look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if not _replaced:
        return
    moved = [p for group in optimizer.param_groups for p in group["params"]]
    lost = [id(p) for p in moved if id(p) in _replaced and _replaced[id(p)]() is p]
    if lost:
        warnings.warn(f"{type(optimizer).__name__}: moves {len(lost)} parameters that prune() has replaced, which the "
                      "module no longer has: wanted prune(…, optimizer=optimizer), or a new optimizer", stacklevel=4)
    for key in lost:
        _replaced.pop(key, None)


def cut_as(module: nn.Module, result: library.PrunedNetwork, example: Any,
           optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """All of it. Raises Differs, with everything as it was."""
    example = _modules.arguments_of(example)
    training = _checked_cut.trains_with(module, example, stacklevel=5)
    _cut(module, result, _checked_cut.probes(module, example), optimizers, training)


def _cut(module: nn.Module, result: library.PrunedNetwork, arguments: tuple[Any, ...],
         optimizers: Sequence[torch.optim.Optimizer], training: tuple[Any, ...] | None) -> Callable[[], None]:
    """Returns what undoes it. A module that does not compute of the arguments what its cut graph does gets back what it
    has lost, as does one that no longer runs in training mode. training: with what it did."""
    inputs = [tensor.cpu() for tensor in _modules.tensors_in(arguments)]

    def wanted(values: Mapping[str, Tensor]) -> list[Tensor]:
        left = _checked_cut.cut_values(module, result.cut, values)
        return result.run(inputs, {name: value.cpu() for name, value in left.items()})

    return _checked_cut.cut_checked(module, result.cut, optimizers, result.layer_groups(), arguments, wanted, training)


def _follows(module: nn.Module, cut: library.PrunedNetwork, arguments: tuple[Any, ...],
             training: tuple[Any, ...] | None) -> bool:
    """Whether the module's code allows the cut."""
    try:
        _cut(module, cut, arguments, (), training)()
    except _checked_cut.Differs:
        return False
    return True


def _inflexible_kinds(module: nn.Module, network: library.Network, _: library.PrunedNetwork,
                      arguments: tuple[Any, ...], training: tuple[Any, ...] | None) -> list[str]:
    """The groups that it cannot lose, where one is tried of those that look alike."""
    removable = set(network.removable())
    alike: dict[Any, list[str]] = {}
    for group in network.groups():
        if group.name in removable:
            looks = tuple(sorted((_cuts.kind_of_owner(module, s.tensor), s.axis) for s in group.slices))
            alike.setdefault((group.size, looks), []).append(group.name)
    return [name for names in alike.values()
            if not _follows(module, network.without_units(names[:1], 1), arguments, training) for name in names]


def _inflexible(module: nn.Module, network: library.Network, _: library.PrunedNetwork, arguments: tuple[Any, ...],
                training: tuple[Any, ...] | None) -> list[str]:
    return [name for name in network.removable()
            if not _follows(module, network.without_units([name], 1), arguments, training)]


def _inflexible_as_planned(module: nn.Module, network: library.Network, planned: library.PrunedNetwork,
                           arguments: tuple[Any, ...], training: tuple[Any, ...] | None) -> list[str]:
    """By as many units as each is to lose: where halves are taken, one less may leave the first half as it is."""
    lost = {str(row["group"]): int(str(row["units"])) - int(str(row["kept"])) for row in planned.groups}
    return [name for name in network.removable()
            if not _follows(module, network.without_units([name], lost.get(name) or 1), arguments, training)]


def not_followed(module: nn.Module, network: library.Network, groups: list[str], example: Any) -> list[str]:
    """Of these groups those of which the module's code cannot lose a unit; it is asked only if it cannot lose one of
    each at once."""
    arguments = _checked_cut.probes(module, _modules.arguments_of(example))

    def follows(some: list[str]) -> bool:
        return _follows(module, network.without_units(some, 1), arguments, None)

    return [] if follows(groups) else [group for group in groups if not follows([group])]


def does_not_follow(module: nn.Module, groups: list[str]) -> str:
    some = ", ".join(groups[:3]) + (f" and {len(groups) - 3} others" if len(groups) > 3 else "")
    return f"the code of {type(module).__name__} does not follow cuts of {some}"


def _said_of(module: nn.Module, whole: list[str]) -> str:
    return f"{does_not_follow(module, whole)}, which stay whole; an exported program can lose them, too"
