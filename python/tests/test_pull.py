"""ADMM's pull beside learning rates and gradients as they come."""

import contextlib

import pytest
import torch
from torch import nn

from training import OPTIMIZERS, admm, batch, small_network, train_step

pytestmark = pytest.mark.filterwarnings("ignore:HSADMM. ended after step")  # loops here are short


def test_a_schedule_that_begins_low_is_refused_or_warned_of():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 20)
    with pytest.raises(ValueError, match="`learning_rate`: got 0.0, which the optimizer has now; the pull of ADMM"):
        admm(net, optimizer)
    optimizer.param_groups[0]["lr"] = 0.001
    with admm(net, optimizer):
        train_step(net, optimizer, 0, 1)
        optimizer.param_groups[0]["lr"] = 0.05
        with pytest.warns(UserWarning, match="has grown from 0.001 to 0.05"):
            train_step(net, optimizer, 0, 2)
        train_step(net, optimizer, 0, 3)


def test_dampening_is_refused():
    net = small_network()
    with pytest.raises(ValueError, match="`optimizer`: got SGD with dampening 0.5, wanted 0"):
        admm(net, torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, dampening=0.5))


def test_several_optimizers_are_refused():
    net = small_network()
    with pytest.raises(ValueError, match="`optimizer`: got 2; the pull of ADMM follows the rates of one, .* `kappa=0`"):
        admm(net, OPTIMIZERS["several"](net.parameters()))
    admm(net, OPTIMIZERS["several"](net.parameters()), kappa=0)


@pytest.mark.parametrize("slow_first", [True, False])
def test_the_pull_suits_the_largest_rate_of_groups(slow_first):
    net = small_network()
    rates = (1e-5, 1e-2) if slow_first else (1e-2, 1e-5)
    optimizer = torch.optim.SGD([{"params": net[:3].parameters(), "lr": rates[0]},
                                 {"params": net[3:].parameters(), "lr": rates[1]}])
    with admm(net, optimizer):
        for step in range(1, 31):
            train_step(net, optimizer, 0, step)
    assert all(float(p.detach().abs().max()) < 2 for p in net.parameters())


def scaled_step(net, optimizer, step, unscaled=True, factor=1.0):
    images, labels = batch(0, step)
    scaler = torch.amp.GradScaler("cpu")
    optimizer.zero_grad()
    scaler.scale(factor * nn.functional.cross_entropy(net(images), labels)).backward()
    if unscaled:
        scaler.unscale_(optimizer)
    scaler.step(optimizer)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("unscaled", [False, True])
def test_gradients_that_a_scaler_leaves_scaled_are_refused(kind, unscaled):
    net = small_network()
    optimizer = kind(net.parameters(), 0.05, fused=True)
    refused = pytest.raises(ValueError, match="wanted `scaler.unscale_")
    with contextlib.nullcontext() if unscaled else refused, admm(net, optimizer):
        scaled_step(net, optimizer, 1, unscaled)


@pytest.mark.parametrize("factor, moves", [(1.0, True), (float("inf"), False)])
def test_a_step_that_is_skipped_has_no_pull(factor, moves):
    """By a fused optimizer, which finds gradients that are not finite by itself."""
    net = small_network()
    optimizer = torch.optim.AdamW(net.parameters(), 0.01, fused=True)
    with admm(net, optimizer):
        for step in (1, 2):
            scaled_step(net, optimizer, step)
        before = [p.detach().clone() for p in net.parameters()]
        scaled_step(net, optimizer, 3, factor=factor)
        assert any(not torch.equal(p, was) for p, was in zip(net.parameters(), before)) == moves
