"""ADMM's pull towards its anchor: the learning rates and the momentum of the optimizer that it has to suit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import nn

from prunex import _arguments


def _largest(optimizer: torch.optim.Optimizer, setting: str) -> float:
    """Of the groups of parameters: what is stable at the largest rate and momentum is so at others."""
    return max(float(group[setting]) for group in optimizer.param_groups)


def _sums(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its updates are sums of gradients, which a pull may then be a part of."""
    return isinstance(optimizer, torch.optim.SGD)


def momentum_of(optimizers: Iterable[torch.optim.Optimizer]) -> float:
    """By which gradients add up; 0 where they do not."""
    return max(_largest(optimizer, "momentum") if _sums(optimizer) else 0.0 for optimizer in optimizers)


def _learning_rates(learning_rate: float | Callable[[int], float] | None, optimizer: torch.optim.Optimizer,
                    total_steps: int) -> list[float]:
    """One for all steps, or one for each."""
    if learning_rate is None:
        rates = [_largest(optimizer, "lr")]
    elif callable(learning_rate):
        rates = [float(learning_rate(step)) for step in range(1, total_steps + 1)]
    else:
        rates = [_arguments.number("learning_rate", learning_rate)]
    if not all(math.isfinite(rate) and rate >= 0 for rate in rates) or max(rates) == 0:
        of_now = ", which the optimizer has now" if learning_rate is None else ""
        raise ValueError(f"`learning_rate`: got {rates[0]}{of_now}; the pull of ADMM wants the rates to come, as a "
                         "number or a function of the step")
    return rates


def _rates_of_now(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, float]:
    """Of the parameters that the optimizer moves, by name."""
    rates: dict[int, float] = {}
    for group in optimizer.param_groups:
        rates |= dict.fromkeys(map(id, group["params"]), float(group["lr"]))  # which may be read from a GPU
    return {name: rates[id(p)] for name, p in model.named_parameters() if id(p) in rates}


class Pull:
    """In the gradients of an optimizer that sums them; beside the updates of others."""

    def __init__(self, optimizer: torch.optim.Optimizer, learning_rate: float | Callable[[int], float] | None,
                 total_steps: int) -> None:
        if any(group.get("maximize") for group in optimizer.param_groups):
            raise ValueError("`optimizer`: got one that maximizes, which would push away from the anchor")
        if _sums(optimizer) and (dampening := _largest(optimizer, "dampening")) != 0:
            raise ValueError(f"`optimizer`: got SGD with dampening {dampening:g}, wanted 0: it would weaken ADMM's pull")
        self._optimizer = optimizer
        self.rates = _learning_rates(learning_rate, optimizer, total_steps)
        """One for all steps, or one for each."""
        self._assumed = self.rates[0] if learning_rate is None else math.inf

    def settings(self) -> dict[str, str]:
        """What it depends on, which is the same on all ranks and in a saved run."""
        return {"learning_rate": f"{self.rates[0]} … {self.rates[-1]} ({hash(tuple(self.rates)):x})",
                "the optimizer's momentum": str(momentum_of([self._optimizer]))}

    def doubt(self) -> str | None:
        """Once, of a rate that has grown above the one that was assumed for all steps."""
        assumed = self._assumed
        if assumed == math.inf or not (rate := _largest(self._optimizer, "lr")) > 1.01 * assumed:
            return None
        self._assumed = math.inf
        return (f"`learning_rate`: the optimizer's has grown from {assumed:g} to {rate:g}, so ADMM pulls too hard; "
                "wanted the rates to come, as a number or a function of the step")

    def rates_beside(self, model: nn.Module) -> dict[str, float] | None:
        """Those of the coming update by parameter, where the pull goes beside it. None where it goes into the
        gradients; ValueError if they are still scaled."""
        if getattr(self._optimizer, "grad_scale", None) is not None:
            raise ValueError("`optimizer`: got a fused one whose gradients are still scaled, wanted "
                             "`scaler.unscale_(optimizer)` before `scaler.step(optimizer)`")
        if _sums(self._optimizer):
            return None
        found_inf = getattr(self._optimizer, "found_inf", None)  # by which a fused one skips its step
        skips = found_inf is not None and float(found_inf) > 0
        return {} if skips else _rates_of_now(self._optimizer, model)
