"""Cuts of modules, looked at: whether a module computes then what its cut graph does."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from prunex import _cuts, _modules
from prunex._library import library


class Differs(ValueError):
    """A module does not compute what its cut graph does."""


class DiffersInTraining(Differs):
    """It runs no longer in training mode."""

    def __init__(self, why: str) -> None:
        super().__init__(f"in training mode: {why}")


def stirred(model: nn.Module) -> dict[str, Tensor]:
    """Random numbers for the parameters, by name: such that no path is so weak as to hide a mistake in it, as what is
    small at its start is. Norms have the statistics that go with them."""
    generator, values = torch.Generator().manual_seed(0), {}
    for name, p in model.named_parameters():
        if not p.is_floating_point():
            continue
        random = torch.randn(p.shape, generator=generator, device="cpu")
        values[id(p)] = (random * (2 / (math.prod(p.shape[1:]) or 1)) ** 0.5 if p.dim() > 1 else 1 + random / 4).to(p)
    for name, b in model.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            values[id(b)] = torch.zeros_like(b) if name.endswith("mean") else torch.ones_like(b)
    return {name: values[id(tensor)] for name, tensor in _modules.tensors_of(model).items() if id(tensor) in values}


def like(values: Any) -> Any:
    """Floating-point tensors are others, of the same shapes: zeros would tell nothing. What else there is stays."""
    generator = torch.Generator().manual_seed(0)

    def other(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        return torch.randn(value.shape, generator=generator, device="cpu").to(value)

    return torch.utils._pytree.tree_map(other, values)


def cure_of_heads(heads: bool) -> str:
    """What a message says further of code that does not follow a cut."""
    return "" if heads else "; attention with a fixed size of heads wants a cut of whole `heads`"


def probes(model: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """What to look at the module with: like(arguments), or the example's own, if it does not take others or answers
    them with fewer finite numbers."""

    def finite(inputs: tuple[Any, ...]) -> int:
        return sum(int(answer.isfinite().sum()) for answer in evaluated(model, inputs))

    others = like(arguments)
    try:
        return others if finite(others) >= finite(arguments) else arguments
    except Exception:
        return arguments


def cut_values(model: nn.Module, removed: library.Cut, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is left of values for the whole model's tensors, by their names; a tied tensor is cut by one of its own."""
    tensors = _modules.tensors_of(model)
    lost = {id(tensors[name]): name for name in removed.kept() if name in tensors}
    return {name: removed.apply(lost[id(tensors[name])], value) if id(tensors[name]) in lost else value
            for name, value in values.items()}


def expect_close(got: list[Tensor], want: list[Tensor]) -> None:
    """Relative to the largest number of each tensor. Raises Differs."""
    if len(got) != len(want):
        raise Differs(f"{len(got)} outputs instead of {len(want)}")
    for a, b in zip(got, want):
        if a.shape != b.shape:
            raise Differs(f"an output of {list(a.shape)} instead of {list(b.shape)}")
        rounds = a.dtype == torch.float32 and a.is_cuda  # to TF32, as convolutions do unless told otherwise
        share = 3e-2 if rounds else {torch.bfloat16: 3e-2, torch.float16: 5e-3}.get(a.dtype, 1e-3)
        a, b = a.cpu().float(), b.cpu().float()
        scale = float(b.nan_to_num().abs().max()) if b.numel() > 0 else 0.0
        if not torch.allclose(a, b, rtol=share, atol=share * scale, equal_nan=True):
            raise Differs("other outputs")


@contextlib.contextmanager
def undone(undo: Callable[[], None]) -> Iterator[None]:
    """What fails in it is undone, and is Differs unless it was an interrupt or memory that did not suffice."""
    try:
        yield
    except BaseException as error:
        undo()
        if isinstance(error, Exception) and not isinstance(error, (Differs, torch.OutOfMemoryError)):
            raise Differs(str(error)) from error
        raise


def why_not_trained(model: nn.Module, arguments: tuple[Any, ...]) -> str:
    """What goes wrong in training mode, which may have paths that no exported graph has, such as auxiliary heads.
    Buffers and the states of random numbers stay."""
    cuda = sorted({p.device.index or 0 for p in model.parameters() if p.is_cuda})
    own = [b for b in model.buffers() if not _modules.repeats(b)]
    buffers = [(module, dict(module._buffers)) for module in model.modules()]  # forward() may put others in their place
    with _modules.mode(model, True), _modules.restored(own), torch.no_grad(), torch.random.fork_rng(cuda):
        try:
            model(*arguments)
        except Exception as error:
            return str(error) or type(error).__name__
        finally:
            for module, held in buffers:
                module._buffers.update(held)
    return ""


def _doubled(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """With every row twice, of the tensors that have as many as the first one."""
    rows = next((t.shape[0] for t in _modules.tensors_in(arguments) if t.dim() > 0), 0)

    def twice(value: Any) -> Any:
        has_rows = isinstance(value, Tensor) and value.dim() > 0 and value.shape[0] == rows
        return torch.cat([value, value]) if has_rows else value

    return torch.utils._pytree.tree_map(twice, arguments)  # type: ignore[no-any-return]


def trains_with(model: nn.Module, arguments: tuple[Any, ...], stacklevel: int) -> tuple[Any, ...] | None:
    """Arguments with which it runs in training mode: these or, where batch norm wants more than one row, twice as many.
    None, with a warning, if it runs with neither. stacklevel: of who is warned, from here."""
    for own in (arguments, _doubled(arguments)):
        if not (why := why_not_trained(model, own)):
            return own
    warnings.warn(f"{type(model).__name__} does not run in training mode with this `example` ({why}): whether it does "
                  "after a cut is not looked at", stacklevel=stacklevel)
    return None


def evaluated(model: nn.Module, arguments: tuple[Any, ...]) -> list[Tensor]:
    """The tensors that it gives out in eval mode."""
    with _modules.mode(model, False), torch.no_grad():
        return _modules.tensors_in(model(*arguments))


def _draws(model: nn.Module, arguments: tuple[Any, ...]) -> bool:
    """Whether it answers differently when it is asked again."""
    with undone(lambda: None):
        first, second = evaluated(model, arguments), evaluated(model, arguments)
    try:
        expect_close(second, first)
    except Differs:
        return True
    return False


def cut_checked(model: nn.Module, removed: library.Cut, optimizers: Sequence[torch.optim.Optimizer],
                layer_groups: Mapping[str, int], arguments: tuple[Any, ...],
                wanted: Callable[[Mapping[str, Tensor]], list[Tensor]],
                training: tuple[Any, ...] | None) -> Callable[[], None]:
    """cut(), of a module that then computes what is wanted of it, with its own weights and with others: `wanted` gets
    those of the whole module, by name, none for its own. training: arguments with which it is to run in training mode,
    as it does now. Returns what undoes it. Raises Differs with everything as it was."""
    cases = []
    for values in ({}, stirred(model)):
        with undone(lambda: None):
            answers = wanted(values)
        cases.append((cut_values(model, removed, values), answers))
    with undone(lambda: None):
        undo = _cuts.cut(model, removed, optimizers, layer_groups)
    try:
        with undone(undo):
            for left, answers in cases:
                with _modules.holding(model, left):
                    expect_close(evaluated(model, arguments), answers)
            if training is not None and (why := why_not_trained(model, training)):
                raise DiffersInTraining(why)
    except Differs as error:
        if not isinstance(error, DiffersInTraining) and _draws(model, arguments):
            raise Differs("it draws random numbers in eval mode") from error
        raise
    return undo
