"""Modules and optimizers of torch, and their tensors by name."""

from __future__ import annotations

import collections
import contextlib
import io
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer]

_FLOATS = (torch.float32, torch.float64)


def plain(model: nn.Module, instead: str = "") -> nn.Module:
    """The module itself, of one that torch.compile has wrapped. instead: what else serves DistributedDataParallel."""
    model = getattr(model, "_orig_mod", model)
    if not isinstance(model, nn.Module):
        raise ValueError(f"`model`: got a {type(model).__name__}, wanted a torch.nn.Module")
    fsdp = sys.modules.get("torch.distributed.fsdp")  # which takes long to import
    averaging = (nn.parallel.DistributedDataParallel, *([fsdp.FullyShardedDataParallel] if fsdp else []))
    for name, module in model.named_modules():
        if isinstance(module, averaging):
            has = f"{name} is" if name else "got"
            raise ValueError(f"`model`: {has} a {type(module).__name__}, wanted the module in it, `.module`, here "
                             f"and in the loop{instead}")
    return model


def trained(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that take gradients, by name."""
    found: dict[str, Tensor] = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for name, p in found.items():
        if type(p) is not nn.Parameter or p.layout != torch.strided:
            raise ValueError(f"`model`: {name} is a {type(p).__name__}, wanted plain parameters")
        if p.dtype not in _FLOATS:
            raise ValueError(f"`model`: {name} is {p.dtype}, wanted torch.float32 or torch.float64 "
                             "(torch.autocast computes in less)")
    if not found:
        raise ValueError("`model`: no parameter requires gradients")
    return found


@contextlib.contextmanager
def taking_gradients(model: nn.Module, names: Collection[str]) -> Iterator[None]:
    """Parameters of these names do so meanwhile."""
    frozen = {name for name, p in model.named_parameters() if name in names and not p.requires_grad}

    def take(gradients: bool) -> None:
        for name, p in model.named_parameters() if frozen else ():  # which a cut replaces
            if name in frozen:
                p.requires_grad_(gradients)

    take(True)
    try:
        yield
    finally:
        take(False)


def expect_exchangeable(model: nn.Module) -> None:
    """What is averaged is of one type, and no view that repeats its numbers; all of it on one device."""
    params, saved = weights(model)
    first, like = next(iter(params.items()))
    for name, tensor in averaged(model).items():
        if tensor.dtype != like.dtype:
            raise ValueError(f"`model`: {name} is {tensor.dtype}, wanted {like.dtype} as {first} has")
    for name, tensor in (params | saved).items():
        if tensor.device != like.device:
            raise ValueError(f"`model`: {name} is on {tensor.device}, wanted {like.device} as {first} is")
        if tensor.layout != torch.strided:
            raise ValueError(f"`model`: {name} is {tensor.layout}, wanted torch.strided, or a buffer with "
                             "persistent=False")
        if repeats(tensor):
            raise ValueError(f"`model`: {name} is an expanded view, wanted a tensor of its own: clone() it")
        if not _lies_in_rows(tensor):
            raise ValueError(f"`model`: {name} is a transposed or sliced view, wanted rows behind each other in "
                             "memory: contiguous()")


def expect_optimizer(optimizer: torch.optim.Optimizer, params: Iterable[Tensor]) -> None:
    """One that moves some of the parameters."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"`optimizer`: got a {type(optimizer).__name__}, wanted a torch.optim.Optimizer")
    if not hasattr(optimizer, "_optimizer_step_post_hooks"):
        raise ValueError(f"`optimizer`: got a {type(optimizer).__name__} that wraps another, wanted the one in it")
    moved = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not any(id(p) in moved for p in params):
        raise ValueError("`optimizer`: it moves no parameter of the model")


def each_of(optimizers: Optimizers) -> tuple[torch.optim.Optimizer, ...]:
    """One, or several."""
    if not isinstance(optimizers, Sequence):
        return (optimizers,)
    if not optimizers:
        raise ValueError("`optimizer`: got an empty list, wanted a torch.optim.Optimizer, or several")
    return tuple(optimizers)


def expect_trained(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], whole: bool) -> None:
    """whole: nothing that requires gradients is moved by others, which would not follow masks and cuts."""
    own = trained(model)
    for optimizer in optimizers:
        expect_optimizer(optimizer, own.values())
        if whole:
            expect_followable(optimizer)
    if whole:
        for name, module in model.named_modules():
            if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse:
                raise ValueError(f"`model`: {name or 'it'} has sparse gradients, which masks and pulls do not reach; "
                                 "wanted sparse=False")
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    times = collections.Counter(id(p) for group in groups for p in group["params"])
    if twice := [name for name, p in own.items() if times[id(p)] > 1]:
        raise ValueError(f"`optimizer`: several move {twice[0]}, wanted each parameter in one of them")
    others = [name for name, p in own.items() if id(p) not in times]
    if whole and others:
        raise ValueError(f"`optimizer`: it does not move {others[0]}; with masks all that requires gradients is wanted "
                         "in it, or in several: [muon, adamw]")


def moved_elsewhere(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> int:
    """How many parameters the optimizers move that are not of the module."""
    own = {id(p) for p in model.parameters()}
    return sum(id(p) not in own for optimizer in optimizers for group in optimizer.param_groups
               for p in group["params"])


def expect_followable(optimizer: torch.optim.Optimizer) -> None:
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("`optimizer`: got LBFGS, which keeps its parameters and their history by itself: no mask, cut "
                         "or pull reaches them")
    for name, value in vars(optimizer).items():
        inside = [] if name in ("param_groups", "state") else torch.utils._pytree.tree_leaves(value)
        if any(isinstance(leaf, torch.optim.Optimizer) for leaf in inside):
            raise ValueError(f"`optimizer`: got a {type(optimizer).__name__}, whose `{name}` keeps states of its own: no "
                             "mask, cut or pull reaches them")


def buffers(model: nn.Module) -> dict[str, Tensor]:
    """Those that are saved, by name."""
    left_out = {f"{prefix}.{name}" if prefix else name
                for prefix, module in model.named_modules() for name in module._non_persistent_buffers_set}
    return {name: b for name, b in model.named_buffers() if name not in left_out}


def weights(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    return dict(trained(model)), buffers(model)


def averaged(model: nn.Module) -> dict[str, Tensor]:
    """Of the weights, what exchanges average: buffers that count are not."""
    params, saved = weights(model)
    return params | {name: b for name, b in saved.items() if b.is_floating_point() or b.is_complex()}


def copy_weights(model: nn.Module, params: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    own, own_buffers = weights(model)
    with torch.no_grad():
        for name, value in params.items():
            own[name].copy_(value)
        for name, value in values.items():
            own_buffers[name].copy_(value)


@contextlib.contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[None]:
    """And in the arithmetic of its weights, also within torch.autocast."""
    modes = {module: module.training for module in model.modules()}
    devices = {"cpu"} | {p.device.type for p in model.parameters()}
    model.train(training)
    try:
        with contextlib.ExitStack() as stack:
            for device in devices & {"cpu", "cuda"}:
                stack.enter_context(torch.autocast(device, enabled=False))
            yield
    finally:
        for module, before in modes.items():  # by train(), which may do more than set the flag; parents first
            if module.training != before:
                module.train(before)
        for module, before in modes.items():
            module.training = before


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, by all their names."""
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}


def frozen(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Of the parameters that take no gradients, by name: which tensor it is, and how often that was changed."""
    return {name: (id(p), p._version) for name, p in model.named_parameters() if not p.requires_grad}


@contextlib.contextmanager
def restored(tensors: list[Tensor]) -> Iterator[None]:
    """What happens to them meanwhile is undone."""
    before = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, before):
                tensor.copy_(value)


@contextlib.contextmanager
def holding(model: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """Parameters and buffers of these names have these values meanwhile."""
    tensors = tensors_of(model)
    with restored([tensors[name] for name in values]):
        with torch.no_grad():
            for name, value in values.items():
                tensors[name].copy_(value)
        yield


def _lies_in_rows(tensor: Tensor) -> bool:
    """Whether its numbers lie without gaps, those of a row, of dimension 0, together: also in channels_last."""
    spans = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size > 1)
    expected = 1
    for stride, size in spans:
        if stride != expected:
            return False
        expected *= size
    return tensor.numel() == 0 or tensor.dim() == 0 or tensor.shape[0] == 1 or tensor.stride(0) == spans[-1][0]


def repeats(tensor: Tensor) -> bool:
    """Whether it is an expanded view, whose numbers lie in one place."""
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape))


def arguments_of(example: Any) -> tuple[Any, ...]:
    """A tuple of positional arguments; anything else is the only one."""
    return example if isinstance(example, tuple) else (example,)


def tensors_in(values: Any) -> list[Tensor]:
    """Those in nested tuples, lists and dicts, in order."""
    return [t for t in torch.utils._pytree.tree_leaves(values) if isinstance(t, Tensor)]


def bytes_of(program: ExportedProgram) -> bytes:
    """As a .pt2."""
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def exported(model: nn.Module, example: Any) -> bytes:
    """The module as the bytes of a .pt2, in eval mode."""
    try:
        with mode(model, False):
            program = torch.export.export(model, arguments_of(example))
    except Exception as error:
        raise ValueError(f"`model`: torch.export cannot export it with this `example`: {error}") from error
    return bytes_of(program)


def lies_beside(value: Any, parameter: Tensor) -> bool:
    """Whether an optimizer keeps it entry by entry of the parameter, in numbers that a mask can be multiplied with."""
    is_plain = type(value) in (Tensor, nn.Parameter)
    is_narrow = is_plain and value.is_floating_point() and value.element_size() == 1
    return is_plain and not is_narrow and value.shape == parameter.shape and parameter.dim() > 0


def kinds_of_others(optimizer: torch.optim.Optimizer) -> set[str]:
    """The kinds of state that do not lie entry by entry beside every parameter that has one, counters left out. By
    kind, as a square parameter has the shape of its preconditioners."""
    return {kind for p, state in optimizer.state.items() for kind, value in state.items()
            if not lies_beside(value, p) and _is_more_than_counters(value)}


def _is_more_than_counters(value: Any) -> bool:
    return any(tensor.numel() > 1 for tensor in tensors_in(value))


def has_any(kinds: set[str], state: Mapping[str, Any]) -> bool:
    return any(_is_more_than_counters(value) for kind, value in state.items() if kind in kinds)


def mixes_rows(model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> bool:
    """Whether the step of a weight may depend on what an optimizer remembers of others, as Shampoo's does."""
    own = trained(model).values()
    odd = {optimizer: kinds_of_others(optimizer) for optimizer in optimizers}
    return any(has_any(kinds, optimizer.state.get(p, {})) for optimizer, kinds in odd.items() for p in own)


def optimizer_state(model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, dict[str, Tensor]]:
    """Of the parameters that have one: kind of state -> name -> a tensor of the parameter's shape."""
    found: dict[str, dict[str, Tensor]] = {}
    own = trained(model)
    for optimizer in optimizers:
        odd = kinds_of_others(optimizer)
        for name, p in own.items():
            for kind, value in optimizer.state.get(p, {}).items():
                if kind not in odd and lies_beside(value, p):
                    found.setdefault(kind, {})[name] = value
    return found
