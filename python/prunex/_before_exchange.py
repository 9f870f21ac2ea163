"""What an exchange wants: ranks that are as far as one another, finite numbers, and the tensors that were there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from prunex import _modules, _ranks


class Standing(NamedTuple):
    """Of a rank that has come to an exchange."""

    step: int
    """Optimizer steps so far."""
    ends: bool
    """Whether its loop has ended."""
    has_news: bool
    """Whether it has steps that no exchange has had."""
    infinite: int
    """The first tensor among those that are averaged, from 1, that is not finite, if it is a buffer, is not a number;
    0: there is none."""


def _first_infinite(model: nn.Module) -> int:
    averaged, params = _modules.averaged(model), _modules.trained(model)
    tensors = [(i, name, t.detach()) for i, (name, t) in enumerate(averaged.items(), 1) if t.numel() > 0]
    norms = torch._foreach_norm([torch.view_as_real(t) if t.is_complex() else t for _, _, t in tensors], math.inf)
    largest = torch.stack([norm.double() for norm in norms])
    is_param = torch.tensor([name in params for _, name, _ in tensors], device=largest.device)
    bad = (largest.isnan() | largest.isinf() & is_param).nonzero()  # a mask of -inf may be a buffer
    return tensors[int(bad[0])][0] if len(bad) > 0 else 0


def _expect_as_far(everyone: Sequence[Standing]) -> None:
    if all(other.ends for other in everyone) or len({(other.step, other.ends) for other in everyone}) == 1:
        return
    said = [f"rank {rank} {'ends its loop' if other.ends else 'exchanges'} after step {other.step}"
            for rank, other in enumerate(everyone)]
    other = next(said[rank] for rank, far in enumerate(everyone) if far[:2] != everyone[0][:2])
    raise ValueError(f"`optimizer`: {said[0]}, {other}; wanted equally many steps on all ranks, on batches as a "
                     "DistributedSampler deals them out")


def _expect_finite(everyone: Sequence[Standing], model: nn.Module) -> None:
    for rank, other in enumerate(everyone):
        if other.infinite > 0:
            name = list(_modules.averaged(model))[other.infinite - 1]
            raise FloatingPointError(f"`model`: {name} of rank {rank} has numbers that are not finite after step "
                                     f"{other.step}, which an exchange would give to all ranks")


def meet(ranks: _ranks.Ranks, model: nn.Module, step: int, ends: bool, has_news: bool) -> list[Standing]:
    """Where every rank stands. Collective. Raises on all ranks: ValueError unless they are as far, or all at the end of
    their loops; FloatingPointError if one has numbers that are not finite."""
    mine = Standing(step, ends, has_news, _first_infinite(model) if has_news else 0)
    everyone = [Standing(theirs, bool(ended), bool(news), infinite)
                for theirs, ended, news, infinite in ranks.gathered(list(mine))]
    _expect_as_far(everyone)
    _expect_finite(everyone, model)
    return everyone


def expect_same_tensors(was: tuple[dict[str, Tensor], dict[str, Tensor]],
                        now: tuple[dict[str, Tensor], dict[str, Tensor]]) -> None:
    """Parameters and buffers of a module may be other objects than when its strategy was made, but none of another
    name, size or type."""
    (params, buffers), (own, own_buffers) = was, now
    for name in sorted(params.keys() ^ own.keys()):
        has = "gone" if name in params else "got `requires_grad`"
        raise ValueError(f"`model`: {name} has {has} in the loop; a strategy exchanges what was trained when it was "
                         "made")
    for name in sorted(buffers.keys() ^ own_buffers.keys()):
        raise ValueError(f"`model`: the buffer {name} has {'gone' if name in buffers else 'come'} in the loop")
    tensors = own | own_buffers
    for name, old in (params | buffers).items():
        new = tensors[name]
        if (new.shape, new.dtype) != (old.shape, old.dtype):
            before = "; run a batch through it before the strategy is made" if name in buffers else ""
            raise ValueError(f"`model`: {name} is {new.dtype} {list(new.shape)}, it was {old.dtype} {list(old.shape)} "
                             f"when the strategy was made{before}")


def moved(was: dict[str, Tensor], now: dict[str, Tensor]) -> str | None:
    """The first one, of those in both, whose numbers lie in another order than before."""
    return next((name for name, old in was.items()
                 if name in now and old.shape == now[name].shape and old.stride() != now[name].stride()), None)


def expect_same_layout(was: dict[str, Tensor], now: dict[str, Tensor]) -> None:
    if (name := moved(was, now)) is not None:
        raise ValueError(f"`model`: {name} lies otherwise in memory than when the loop began, which masks do not "
                         "follow; wanted module.to(memory_format=…) before it")
