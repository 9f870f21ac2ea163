"""What cuts make of modules and optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from prunex import _modules
from prunex._library import library


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


def _take_channels(m: Any, inputs: tuple[Any, ...]) -> None:
    """Before the first call after a cut, of an instance norm that has no tensors to tell the channels by."""
    _forget_to_take_channels(m)
    if inputs:
        m.num_features = inputs[0].shape[-m._get_no_batch_dim()]


def _forget_to_take_channels(m: nn.Module) -> None:
    for key in [key for key, hook in m._forward_pre_hooks.items() if hook is _take_channels]:
        del m._forward_pre_hooks[key]


def _is_bare_norm(m: Any) -> bool:
    return isinstance(m, nn.modules.instancenorm._InstanceNorm) and m.weight is None and m.running_mean is None


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


def _is_transposed_linear(m: nn.Module) -> bool:
    """That of GPT-2 in Hugging Face's transformers, which need not be installed."""
    return (type(m).__module__, type(m).__name__) == ("transformers.pytorch_utils", "Conv1D")


def _set_attributes(module: Any) -> None:
    if _is_transposed_linear(module):
        module.nx, module.nf = _shape_of(module)
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
        _modules.expect_followable(optimizer)
    everything = _modules.tensors_of(model)
    lost = {id(everything[name]): name for name in cut.kept() if name in everything}
    before: dict[nn.Module, dict[str, Any]] = {}
    norms: dict[Any, int] = {m: m.num_features for m in model.modules() if _is_bare_norm(m)}  # type: ignore[misc]
    undo_optimizers = [_keep_optimizer(optimizer) for optimizer in optimizers]

    def undo() -> None:
        for owner, state in before.items():
            owner.__dict__.clear()
            owner.__dict__.update(state)
        for norm, channels in norms.items():
            _forget_to_take_channels(norm)
            norm.num_features = channels
        for undo_optimizer in undo_optimizers:
            undo_optimizer()

    try:
        with torch.inference_mode(False):  # new parameters are to be trained
            smaller = _cut_tensors(model, cut, everything, lost, before, layer_groups)
            for optimizer in optimizers:
                _cut_optimizer(optimizer, everything, lost, smaller, cut)
        for norm in norms:
            norm.register_forward_pre_hook(_take_channels)
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
    odd = _modules.kinds_of_others(optimizer)
    for group in optimizer.param_groups:
        group["params"] = [smaller.get(id(p), p) for p in group["params"]]
    for old in {id(t): t for t in tensors.values()}.values():
        if id(old) not in smaller or old not in optimizer.state:
            continue
        state = optimizer.state.pop(old)
        if _modules.has_any(odd, state):
            continue
        optimizer.state[smaller[id(old)]] = {
            kind: cut.apply(names[id(old)], value) if _modules.lies_beside(value, old) else value
            for kind, value in state.items()}


def kind_of_owner(model: nn.Module, tensor: str) -> str:
    """Of a parameter or buffer: the type of its layer and of the module around it, and its name in the layer."""
    path, _, leaf = tensor.rpartition(".")
    around = model.get_submodule(path.rpartition(".")[0])
    return f"{type(around).__name__} {type(model.get_submodule(path)).__name__} {leaf}"
