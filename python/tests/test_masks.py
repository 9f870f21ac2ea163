"""Networks that are pruned while they train: their masks, and the cuts that follow."""

import contextlib
import warnings

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import prunex
from on_ranks import masks
from training import (DEVICE, OPTIMIZERS, POOLED, Auxiliary, Mixing, OfTwo, Shuffled, admm, batch, divided, masked,
                      small_network, train_step)


@pytest.mark.parametrize("ranks, case", masks.CASES)
def test_on_ranks(passed, ranks, case):
    passed(ranks, case)


def test_a_process_alone_prunes_while_it_trains():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with prunex.HSADMM(net, optimizer, sync_every=2, total_steps=40, example=batch(0, 0)[0], groups="coupled",
                       round_to=1) as training:
        for step in range(1, 41):
            train_step(net, optimizer, 0, step)
            training.cut()
    assert net[0].out_channels == 4 and training.sent_bytes == 0


@pytest.mark.parametrize("cuts", [False, True])
def test_several_optimizers_do_what_one_does(cuts):
    def trained(made):
        net = small_network()
        optimizer = made(net.parameters())
        with masked(prunex.DiLoCo, net, optimizer) as training:
            for step in range(1, 41):
                train_step(net, optimizer, 0, step)
                if cuts:
                    training.cut()
        momenta = [one.state[p]["momentum_buffer"] for p in net.parameters() for one in training.optimizers
                   if p in one.state]
        return [*net.state_dict().values(), *momenta]

    one, several = trained(OPTIMIZERS["sgd"]), trained(lambda params: divided(params, "sgd", "sgd"))
    assert one[0].shape[0] == (4 if cuts else 8)
    assert all(torch.equal(a, b) for a, b in zip(one, several, strict=True))


def test_what_masks_have_taken_stays_zero_after_resuming(tmp_path):
    def made():
        net = small_network()
        optimizer = Mixing(net.parameters())
        return net, optimizer, masked(prunex.DiLoCo, net, optimizer)

    net, optimizer, training = made()
    with training:
        for step in range(1, 27):
            train_step(net, optimizer, 0, step)
        assert training.exchange.frozen
        training.save(tmp_path)
    net, optimizer, training = made()
    training.resume(tmp_path)
    gone = [p.eq(0) for p in net.parameters()]
    assert sum(zero.sum() for zero in gone) > 0
    with training:
        train_step(net, optimizer, 0, 27)
        assert all((p[zero] == 0).all() for p, zero in zip(net.parameters(), gone))


@pytest.mark.parametrize("kind", [divided, Mixing, OfTwo])
def test_what_masks_have_taken_stays_zero_after_every_step(kind):
    net = small_network()
    optimizer, gone = kind(net.parameters()), None
    with masked(prunex.DiLoCo, net, optimizer) as training:
        for step in range(1, 32):
            train_step(net, optimizer, 0, step)
            if gone is None and training.exchange is not None and training.exchange.frozen:
                gone = [p.eq(0) for p in net.parameters()]
                assert torch.equal(gone[0].flatten(1).all(1), ~training.masks()["0"]) and gone[0].any()
            assert gone is None or all(p[zero].eq(0).all() for p, zero in zip(net.parameters(), gone))
        training.cut()
        train_step(net, optimizer, 0, 32)
    assert net[0].out_channels == 4


def test_a_context_that_ends_on_schedule_warns_of_nothing():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    training = admm(net, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with training:
            for step in range(1, 41):
                train_step(net, optimizer, 0, step)


@pytest.mark.filterwarnings("ignore:HSADMM. ended after step")
def test_a_loop_of_several_contexts_goes_on_after_a_cut():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    training = admm(net, optimizer)
    for epoch in range(3):
        with training:
            for step in range(1, 6):
                train_step(net, optimizer, 0, 5 * epoch + step)
        training.cut()
    assert net[0].out_channels == int(training.masks()["0"].sum()) < 8


def test_masks_that_the_end_makes_final_can_be_cut():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    early = pytest.warns(UserWarning, match="HSADMM: ended after step 18 of 40, before its masks were final")
    with early, admm(net, optimizer) as training:
        for step in range(1, 19):
            train_step(net, optimizer, 0, step)
        assert training.cut() is None
    alive = int(training.masks()["0"].sum())
    cut = training.cut()
    assert cut is not None and net[0].out_channels == alive < 8
    assert training.cut() is cut and net[0].out_channels == alive
    again = small_network()
    resumed = admm(again, OPTIMIZERS["sgd"](again.parameters()))
    again.requires_grad_(False)
    resumed.load_state_dict(training.state_dict())
    assert again[0].out_channels == alive and resumed.cut().kept() == cut.kept()


def test_a_cut_waits_for_an_exchange_on_its_way():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with prunex.DiLoCo(net, optimizer, 4, total_steps=80, example=batch(0, 0)[0], groups="coupled", round_to=1,
                       overlap=2) as training:
        for step in range(1, 81):
            train_step(net, optimizer, 0, step)
            if step == 61:
                assert training.cut() is None and net[0].out_channels == 8
            if step == 63:
                assert training.cut() is not None
    assert net[0].out_channels == 4


@pytest.mark.parametrize("before_the_loop", [True, False])
def test_another_layout_is_followed_before_the_loop_and_refused_in_it(before_the_loop):
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    training = admm(net, optimizer)
    if before_the_loop:
        net.to(memory_format=torch.channels_last)
    with contextlib.ExitStack() as stack:
        if not before_the_loop:
            stack.enter_context(pytest.raises(ValueError, match="lies otherwise in memory than when the loop began"))
        stack.enter_context(training)
        for step in range(1, 41):
            train_step(net, optimizer, 0, step)
            net.to(memory_format=torch.channels_last)
    assert training.exchange is None or training.exchange.frozen


def test_a_cut_within_autocast_is_looked_at_as_the_weights_are():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with admm(net, optimizer) as training, torch.autocast(DEVICE, torch.bfloat16):
        for step in range(1, 41):
            train_step(net, optimizer, 0, step)
            training.cut()
    assert net[0].out_channels == 4


class _CudasGenerators(TorchFunctionMode):
    """Random tensors lie, as on a GPU by torch.set_default_device, where no generator of the CPU serves."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        if function is torch.randn and "generator" in options and "device" not in options:
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        return function(*arguments, **options)


def test_a_cut_does_not_depend_on_the_default_device():
    net, example = small_network(), batch(0, 0)[0]
    with _CudasGenerators():
        prunex.prune(net, example, ratio=0.5)
    assert net[0].out_channels == 4


def test_layers_that_the_code_cannot_lose_may_be_ignored(recwarn):
    net, x = Shuffled(), torch.randn(8, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with prunex.HSADMM(net, optimizer, 2, total_steps=40, example=x, round_to=1, ignore=["a"]) as training:
        for _ in range(40):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
            training.cut()
    assert (net.a.out_features, net.b.out_features) == (8, 3)
    assert not any("follow" in str(warning.message) for warning in recwarn)


def test_a_cut_that_the_code_does_not_follow_leaves_the_masks():
    net = Shuffled()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    x = torch.randn(8, 4)
    with pytest.warns(UserWarning, match=r"`groups`: the code of Shuffled does not follow cuts of a: cut\(\) will"):
        made = prunex.HSADMM(net, optimizer, 2, total_steps=40, example=x, round_to=1)
    with made as training:
        for _ in range(40):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
            if training.exchange is not None and training.exchange.frozen:
                break
        with pytest.warns(UserWarning, match="cut: the code of Shuffled does not follow .other outputs"):
            assert training.cut() is None
        assert training.cut() is None
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    assert net.a.weight.shape == (8, 4)
    masks = training.masks()
    alive = torch.cat([masks["a"], masks["a[4]"]])
    assert torch.equal(net.a.weight.abs().sum(1) > 0, alive) and 0 < alive.sum() < 8


def test_a_cut_of_an_example_of_one_image_leaves_what_trains_on_several():
    net = Auxiliary(*POOLED)
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with pytest.warns(UserWarning, match="does not follow .in training mode"):
        with prunex.DiLoCo(net, optimizer, 2, total_steps=40, example=batch(0, 0)[0][:1], groups="coupled",
                           round_to=1) as training:
            for step in range(1, 41):
                optimizer.zero_grad()
                sum(out.square().mean() for out in net(batch(0, step)[0])).backward()
                optimizer.step()
                training.cut()
    assert net.a.out_channels == 16


def test_a_cut_leaves_what_only_trains():
    class WithHead(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 2)
            self.aux = nn.Linear(16, 2)

        def forward(self, x):
            y = self.a(x).relu()
            out = self.c(self.b(y).relu())
            return out + self.aux(y) if self.training else out

    torch.manual_seed(0)
    net, x = WithHead(), torch.randn(8, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    with pytest.warns(UserWarning, match="does not follow .in training mode"):
        with prunex.HSADMM(net, optimizer, 5, total_steps=60, example=x, keep=0.5) as strategy:
            for _ in range(60):
                optimizer.zero_grad()
                net(x).square().mean().backward()
                optimizer.step()
                strategy.cut()
    assert net.a.out_features == 16
