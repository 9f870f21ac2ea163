"""What data says of weights, for the importances that ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from prunex import _arguments, _modules
from prunex._library import library

Criterion = Callable[[Any, Tensor], Tensor]


def evidence(model: nn.Module, batches: Iterable[tuple[Any, Tensor]], importance: str, *,
             criterion: Criterion = nn.functional.cross_entropy, seed: int = 0) -> dict[str, Tensor]:
    """What prune(…, importance=, evidence=) looks at, of a module in eval mode. `.grad` stays as it is.

        seen = prunex.evidence(model, loader, "hessian")
        prunex.prune(model, images[:1], macs=0.5, importance="hessian", evidence=seen)

    batches: pairs of inputs, a tensor or several in a tuple or list, and targets, on the module's device; a few hundred
    samples do. importance: taylor, the mean gradient; hessian, the mean squared gradient of single samples; obdc, the
    same with targets that the module draws from the softmax of its own answers; activation, the mean |x| of every
    channel that linear layers and convolutions read. criterion: mean loss of (answers, targets). seed: of what obdc draws.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 10))
    >>> batches = [(torch.randn(5, 3, 8, 8), torch.arange(5))]
    >>> seen = prunex.evidence(net, batches, "activation")
    >>> [(name, tuple(mean.shape)) for name, mean in seen.items()]
    [('0.weight', (3,)), ('2.weight', (8,)), ('4.weight', (64,))]
    """
    if not library.needs_evidence(importance):
        raise ValueError(f"`importance`: {importance} looks at no data")
    seed = _arguments.whole("seed", seed, least=0)
    if importance != "obdc":
        _arguments.expect_unused(f"with {importance}", seed=(seed, 0))
    if importance == "activation":
        _arguments.expect_unused(f"with {importance}", criterion=(criterion, nn.functional.cross_entropy))
    module = _modules.plain(model)
    with _modules.mode(module, False), torch.enable_grad():
        if importance == "activation":
            return _inputs_of_layers(module, batches)
        floats = {name: p for name, p in module.named_parameters() if p.is_floating_point()}
        with _modules.taking_gradients(module, floats.keys()):
            if importance == "taylor":
                return _means(module, floats, batches, criterion, lambda gradient: gradient)
            singles = _single_samples(batches)
            if importance == "obdc":
                singles = _with_drawn_targets(module, singles, seed)
            return _means(module, floats, singles, criterion, torch.square)


def _with_rows(batches: Iterable[tuple[Any, Tensor]]) -> Iterator[tuple[tuple[Any, ...], Tensor, int]]:
    """Inputs, targets and how many; without the empty ones, whose means are none."""
    for batch in batches:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2 or not isinstance(batch[1], Tensor):
            raise ValueError(f"`batches`: got a {type(batch).__name__}, wanted pairs of inputs and targets")
        inputs = tuple(batch[0]) if isinstance(batch[0], (tuple, list)) else (batch[0],)
        if len(batch[1]) > 0:
            yield inputs, batch[1], len(batch[1])


def _single_samples(batches: Iterable[tuple[Any, Tensor]]) -> Iterator[tuple[Any, Tensor]]:
    for inputs, targets, rows in _with_rows(batches):
        for row in range(rows):
            one = tuple(x[row:row + 1] if isinstance(x, Tensor) and x.dim() > 0 and len(x) == rows else x
                        for x in inputs)
            yield one, targets[row:row + 1]


def _with_drawn_targets(module: nn.Module, samples: Iterable[tuple[Any, Tensor]],
                        seed: int) -> Iterator[tuple[Any, Tensor]]:
    draws = torch.Generator().manual_seed(seed)
    for inputs, targets in samples:
        with torch.no_grad():
            answers = module(*inputs)
        if answers.dim() != 2:
            raise ValueError(f"`importance`: obdc draws targets from answers of (samples, classes), got "
                             f"{tuple(answers.shape)}; hessian takes those of the data")
        chances = _wide(answers).softmax(1).cpu()
        yield inputs, torch.multinomial(chances, 1, generator=draws).flatten().to(targets.device)


def _wide(x: Tensor) -> Tensor:
    """In numbers that many can be summed in."""
    return x if x.dtype == torch.float64 else x.float()


def _means(module: nn.Module, params: Mapping[str, Tensor], batches: Iterable[tuple[Any, Tensor]], criterion: Criterion,
           part: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Of a part of the batches' gradients, by their rows; of parameters that take part in the loss."""
    sums: dict[str, Tensor] = {}
    samples = 0
    for inputs, targets, rows in _with_rows(batches):
        loss = criterion(module(*inputs), targets)
        if not loss.requires_grad:
            why = ("within torch.inference_mode() there are no gradients" if torch.is_inference_mode_enabled()
                   else "none of its parameters takes part in the loss")
            raise ValueError(f"`model`: {why}")
        gradients = torch.autograd.grad(loss, list(params.values()), allow_unused=True)
        for name, gradient in zip(params, gradients):
            if gradient is not None:
                sums[name] = sums.get(name, 0) + rows * part(_wide(gradient))
        samples += rows
    return _divided(sums, samples)


def _inputs_of_layers(module: nn.Module, batches: Iterable[tuple[Any, Tensor]]) -> dict[str, Tensor]:
    sums: dict[str, Tensor] = {}
    rows = samples = 0

    def hear(name: str, images: bool) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def add(layer: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            x = _wide((inputs[0] if inputs else named["input"]).detach()).abs()
            if images:  # one may come without the dimension of the batch
                by_channel = x.reshape(-1, *x.shape[1 - layer.weight.dim():]).flatten(2).mean(2)
            else:
                by_channel = x.reshape(-1, x.shape[-1])
            sums[name] = sums.get(name, 0) + rows * by_channel.mean(0)
        return add

    kinds = (nn.Linear, nn.modules.conv._ConvNd)
    names = {id(p): name for name, p in module.named_parameters()}
    handles = [layer.register_forward_pre_hook(hear(names[id(layer.weight)], not isinstance(layer, nn.Linear)),
                                               with_kwargs=True)
               for layer in module.modules() if isinstance(layer, kinds) and id(layer.weight) in names]
    try:
        with torch.no_grad():
            for inputs, _, rows in _with_rows(batches):
                module(*inputs)
                samples += rows
    finally:
        for handle in handles:
            handle.remove()
    return _divided(sums, samples)


def _divided(sums: dict[str, Tensor], samples: int) -> dict[str, Tensor]:
    if samples == 0:
        raise ValueError("`batches`: got none, or empty ones")
    if not sums:
        raise ValueError("`model`: it calls no layer that reads channels by a weight of its own")
    return {name: total / samples for name, total in sums.items()}
