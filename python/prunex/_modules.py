"""Modules and optimizers of torch: their tensors by name, and what a cut makes of them."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from prunex._library import library

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


def expect_optimizer(optimizer: torch.optim.Optimizer, params: Iterable[Tensor]) -> set[int]:
    """One that moves some of the parameters. Returns the ids of all that it moves."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"`optimizer`: got a {type(optimizer).__name__}, wanted a torch.optim.Optimizer")
    if not hasattr(optimizer, "_optimizer_step_post_hooks"):
        raise ValueError(f"`optimizer`: got a {type(optimizer).__name__} that wraps another, wanted the one in it")
    moved = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not any(id(p) in moved for p in params):
        raise ValueError("`optimizer`: it moves no parameter of the model")
    return moved


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
    moved = {p for optimizer in optimizers for p in expect_optimizer(optimizer, own.values())}
    if whole:
        for optimizer in optimizers:
            expect_followable(optimizer)
        for name, module in model.named_modules():
            if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse:
                raise ValueError(f"`model`: {name or 'it'} has sparse gradients, which masks and pulls do not reach; "
                                 "wanted sparse=False")
    others = [name for name, p in own.items() if id(p) not in moved]
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


def learning_rates(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Of the parameters that the optimizer moves, by name."""
    rates: dict[int, float] = {}
    for group in optimizer.param_groups:
        rates |= dict.fromkeys(map(id, group["params"]), float(group["lr"]))  # which may be read from a GPU
    return {name: rates[id(p)] for name, p in model.named_parameters() if id(p) in rates}


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


def _lies_beside(value: Any, parameter: Tensor) -> bool:
    """Whether an optimizer keeps it entry by entry of the parameter, in numbers that a mask can be multiplied with."""
    is_plain = type(value) in (Tensor, nn.Parameter)
    is_narrow = is_plain and value.is_floating_point() and value.element_size() == 1
    return is_plain and not is_narrow and value.shape == parameter.shape and parameter.dim() > 0


def _has_others(state: Mapping[str, Any], parameter: Tensor) -> bool:
    """Tensors that do not lie entry by entry beside it, but for counters."""
    others = tensors_in([value for value in state.values() if not _lies_beside(value, parameter)])
    return any(tensor.numel() > 1 for tensor in others)


def mixes_rows(model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> bool:
    """Whether the step of a weight may depend on what an optimizer remembers of others, as Shampoo's does."""
    return any(_has_others(optimizer.state.get(p, {}), p) for optimizer in optimizers for p in trained(model).values())


def optimizer_state(model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, dict[str, Tensor]]:
    """Of the parameters that have one: kind of state -> name -> a tensor of the parameter's shape."""
    found: dict[str, dict[str, Tensor]] = {}
    for optimizer in optimizers:
        for name, p in trained(model).items():
            for kind, value in optimizer.state.get(p, {}).items():
                if _lies_beside(value, p):
                    found.setdefault(kind, {})[name] = value
    return found


# What a cut makes of them.


def _shape_of(m: Any, name: str = "weight") -> torch.Size:
    """Of a tensor, or of the parameter that a hook makes it of in each call, as those of nn.utils.prune and weight_norm
    do."""
    made_of = [of for of in (f"{name}_orig", f"{name}_v") if of in m._parameters] if name in m.__dict__ else []
    tensor: Tensor = getattr(m, made_of[0] if made_of else name)
    return tensor.shape


def _set_convolution(m: Any) -> None:
    transposed = isinstance(m, nn.modules.conv._ConvTransposeNd)
    m.out_channels, m.in_channels = _shape_of(m)[:2]
    if transposed:
        m.in_channels, m.out_channels = m.out_channels, m.in_channels * m.groups
    else:
        m.in_channels *= m.groups


def _set_linear(m: Any) -> None:
    m.out_features, m.in_features = _shape_of(m)


def _set_features(m: Any) -> None:
    m.num_features = (_shape_of(m) if m.weight is not None else m.running_mean.shape)[0]


def _set_layer_norm(m: Any) -> None:
    m.normalized_shape = tuple(_shape_of(m))


def _set_group_norm(m: Any) -> None:
    m.num_channels = _shape_of(m)[0]


def _set_prelu(m: Any) -> None:
    m.num_parameters = _shape_of(m)[0]


def _set_embedding(m: Any) -> None:
    m.num_embeddings, m.embedding_dim = _shape_of(m)


def _set_recurrent(m: Any) -> None:
    gates = {"LSTM": 4, "GRU": 3}.get(m.mode, 1)
    m.hidden_size = _shape_of(m, "weight_hh_l0")[0] // gates
    m.input_size = _shape_of(m, "weight_ih_l0")[1]
    m._flat_weights = [getattr(m, name) for name in m._flat_weights_names]
    m.flatten_parameters()


_ATTRIBUTES: list[tuple[Any, Callable[[Any], None]]] = [
    (nn.modules.conv._ConvNd, _set_convolution),
    (nn.Linear, _set_linear),
    ((nn.modules.batchnorm._NormBase,), _set_features),
    (nn.LayerNorm, _set_layer_norm),
    (nn.RMSNorm, _set_layer_norm),
    (nn.GroupNorm, _set_group_norm),
    (nn.PReLU, _set_prelu),
    (nn.Embedding, _set_embedding),
    (nn.RNNBase, _set_recurrent),
]


def _set_attributes(module: nn.Module) -> None:
    for kinds, setter in _ATTRIBUTES:
        if isinstance(module, kinds):
            return setter(module)


def _set_groups(module: Any, groups: int) -> None:
    if isinstance(module, nn.modules.conv._ConvNd):
        module.groups = groups
    elif isinstance(module, nn.GroupNorm):
        module.num_groups = groups


def _owner(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return model.get_submodule(path), leaf


def is_made(layer: nn.Module) -> bool:
    """Whether torch.nn.utils.parametrize makes its weight of parameters that are elsewhere."""
    return nn.utils.parametrize.is_parametrized(layer, "weight")


def _layers(model: nn.Module, name: str) -> list[nn.Module]:
    """What has a tensor and, where torch.nn.utils.parametrize makes another one of it, the layer that has that."""
    owner, _ = _owner(model, name)
    is_made = isinstance(owner, nn.utils.parametrize.ParametrizationList)
    return [owner, model.get_submodule(".".join(name.split(".")[:-3]))] if is_made else [owner]


def cut(model: nn.Module, cut: library.Cut, optimizers: Sequence[torch.optim.Optimizer],
        layer_groups: Mapping[str, int]) -> Callable[[], None]:
    """Module and optimizer state lose what `cut` removes; attributes such as `out_channels` follow. layer_groups: of
    convolutions and group norms of the smaller network, by weight. Returns what undoes it."""
    for optimizer in optimizers:
        expect_followable(optimizer)
    everything = tensors_of(model)
    lost = {id(everything[name]): name for name in cut.kept() if name in everything}
    before: dict[nn.Module, dict[str, Any]] = {}
    undo_optimizers = [_keep_optimizer(optimizer) for optimizer in optimizers]

    def undo() -> None:
        for owner, state in before.items():
            owner.__dict__.clear()
            owner.__dict__.update(state)
        for undo_optimizer in undo_optimizers:
            undo_optimizer()

    try:
        with torch.inference_mode(False):  # new parameters are to be trained
            smaller = _cut_tensors(model, cut, everything, lost, before, layer_groups)
            for optimizer in optimizers:
                _cut_optimizer(optimizer, everything, lost, smaller, cut)
    except BaseException:
        undo()
        raise
    return undo


def _cut_tensors(model: nn.Module, cut: library.Cut, everything: Mapping[str, Tensor], lost: Mapping[int, str],
                 before: dict[nn.Module, dict[str, Any]], layer_groups: Mapping[str, int]) -> dict[int, Tensor]:
    """The new tensors, by the id of the old; what their modules were comes into `before`."""
    smaller: dict[int, Tensor] = {}
    for name, old in everything.items():
        if id(old) not in lost:
            continue
        owner, leaf = _owner(model, name)
        for layer in _layers(model, name):
            before.setdefault(layer, {**layer.__dict__, "_parameters": dict(layer._parameters),
                                      "_buffers": dict(layer._buffers)})
        if id(old) not in smaller:
            smaller[id(old)] = _smaller(cut, lost[id(old)], old)
        place: dict[str, Any] = owner._parameters if isinstance(old, nn.Parameter) else owner._buffers
        place[leaf] = smaller[id(old)]
        if lost[id(old)] in layer_groups and leaf == "weight":
            _set_groups(owner, layer_groups[lost[id(old)]])
    for owner in before:
        _set_attributes(owner)
    return smaller


def _smaller(cut: library.Cut, name: str, old: Tensor) -> Tensor:
    """With the gradient, unless it is sparse, the attributes and the hooks of a parameter."""
    new = cut.apply(name, old)
    if not isinstance(old, nn.Parameter):
        return new
    parameter = nn.Parameter(new, old.requires_grad)
    parameter.__dict__.update(old.__dict__)
    if old.grad is not None and old.grad.layout == torch.strided:
        parameter.grad = cut.apply(name, old.grad)
    if old.requires_grad:
        hooks: Any = parameter  # has no types for them
        for hook in (old._backward_hooks or {}).values():
            hooks.register_hook(hook)
        for hook in (old._post_accumulate_grad_hooks or {}).values():
            hooks.register_post_accumulate_grad_hook(hook)
    return parameter


def _keep_optimizer(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """Returns what makes it again what it is now."""
    lists = [(group, list(group["params"])) for group in optimizer.param_groups]
    states = dict(optimizer.state)

    def undo() -> None:
        for group, params in lists:
            group["params"] = params
        optimizer.state.clear()
        optimizer.state.update(states)

    return undo


def _cut_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], names: Mapping[int, str],
                   smaller: Mapping[int, Tensor], cut: library.Cut) -> None:
    """States that do not lie entry by entry beside their parameter, such as Adafactor's or SOAP's, begin anew."""
    for group in optimizer.param_groups:
        group["params"] = [smaller.get(id(p), p) for p in group["params"]]
    for old in {id(t): t for t in tensors.values()}.values():
        if id(old) not in smaller or old not in optimizer.state:
            continue
        state = optimizer.state.pop(old)
        if _has_others(state, old):
            continue
        optimizer.state[smaller[id(old)]] = {
            kind: cut.apply(names[id(old)], value) if _lies_beside(value, old) else value
            for kind, value in state.items()}


def kind_of_owner(model: nn.Module, tensor: str) -> str:
    """Of a parameter or buffer: the type of its layer and of the module around it, and its name in the layer."""
    path, _, leaf = tensor.rpartition(".")
    around = model.get_submodule(path.rpartition(".")[0])
    return f"{type(around).__name__} {type(model.get_submodule(path)).__name__} {leaf}"
