"""LocalSGD, DiLoCo and HSADMM under a loop: what they do on real ranks, and what the loop may do."""

import copy
import warnings

import pytest
import torch
from torch import nn

import prunex
from on_ranks import strategies
from training import DEVICE, OPTIMIZERS, InTurn, admm, batch, diloco, small_network, train_step

pytestmark = pytest.mark.filterwarnings("ignore:HSADMM. ended after step")  # loops here are short


@pytest.mark.parametrize("ranks, case", strategies.CASES)
def test_on_ranks(passed, ranks, case):
    passed(ranks, case)


def loop(net, optimizer, steps=4):
    for step in range(steps):
        train_step(net, optimizer, 0, step)


def test_steps_count_for_one_strategy_at_a_time():
    one = diloco(sync_every=2)
    other = prunex.LocalSGD(one.model, one.optimizer)
    with one:
        for again in (one, other):
            with pytest.raises(ValueError, match="`optimizer`: its steps count for a DiLoCo already"), again:
                pass
        train_step(one.model, one.optimizer, 0, 1)
        assert one.step == 1
    with other:
        train_step(one.model, one.optimizer, 0, 2)
    assert (one.step, other.step) == (1, 1)


def test_weights_are_of_one_strategy_at_a_time():
    net = small_network()
    first, second = (prunex.LocalSGD(net, OPTIMIZERS[kind](net.parameters()), 2) for kind in ("sgd", "adamw"))
    with first:
        with pytest.raises(ValueError, match="`model`: a LocalSGD, whose context has not ended, exchanges the same"):
            second.__enter__()
        train_step(net, first.optimizer, 0, 1)
    with second:
        train_step(net, second.optimizer, 0, 2)
    assert (first.step, second.step) == (1, 1)


def test_another_order_than_that_of_their_steps_is_warned_of_once():
    net = small_network()
    optimizers = OPTIMIZERS["several"](net.parameters())
    with pytest.warns(UserWarning, match="`optimizer`: SGD, the last one, stepped before AdamW") as said:
        with prunex.DiLoCo(net, optimizers[::-1], 2):
            loop(net, optimizers, 4)
    assert len(said) == 1


def test_one_that_does_not_step_each_time_is_in_order():
    net = small_network()
    often, last = OPTIMIZERS["several"](net.parameters())
    with warnings.catch_warnings(), prunex.DiLoCo(net, [often, last], 2):
        warnings.simplefilter("error")
        for _ in range(2):  # as where a scaler leaves a step out
            loop(net, last, 1)
            loop(net, InTurn([often, last]), 1)


def test_strategies_may_share_what_does_not_train():
    trunk = small_network().requires_grad_(False)
    heads = [torch.nn.Sequential(trunk, torch.nn.Linear(3, 2)) for _ in range(2)]
    first, second = (prunex.DiLoCo(net, torch.optim.SGD(net[1].parameters(), 0.1), 2) for net in heads)
    with first, second:
        pass


def test_steps_outside_of_the_context_are_warned_of():
    net = small_network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    strategy = prunex.DiLoCo(net, optimizer, 2)
    with pytest.warns(UserWarning, match="a step of its optimizer does not count, wanted `with` this DiLoCo"):
        loop(net, optimizer, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop(net, optimizer, 1)
        with strategy:
            loop(net, optimizer, 1)
    assert repr(strategy) == "<prunex.DiLoCo of Sequential: every 2 steps, after step 1>"


class Own(torch.optim.SGD):
    fails = False

    def step(self, closure=None):
        if self.fails:
            raise ArithmeticError
        return super().step(closure)


@pytest.mark.parametrize("with_closure", [False, True])
def test_a_step_that_calls_that_of_its_base_counts_once(with_closure):
    torch.optim.SGD(small_network().parameters(), 0.1)  # from now on the base's own step() has hooks, too

    def trained(kind):
        net = small_network()
        optimizer = kind(net.parameters(), 0.05, momentum=0.9)
        with admm(net, optimizer) as training:
            for step in range(1, 9):
                if step == 3 and kind is Own:
                    optimizer.fails = True
                    with pytest.raises(ArithmeticError):
                        optimizer.step()
                    optimizer.fails = False
                train_step(net, optimizer, 0, step, with_closure=with_closure)
                assert training.step == step
        return net.state_dict()

    base, own = trained(torch.optim.SGD), trained(Own)
    assert all(torch.equal(value, own[name]) for name, value in base.items())


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_closure_does_what_a_loop_does(kind):
    def trained(with_closure):
        net = small_network()
        optimizer = OPTIMIZERS[kind](net.parameters())
        with admm(net, optimizer):
            for step in range(1, 9):
                assert train_step(net, optimizer, 0, step, with_closure=with_closure) > 0
        return net.state_dict()

    by_loop, by_closure = trained(False), trained(True)
    assert all(torch.equal(value, by_closure[name]) for name, value in by_loop.items())


def test_compiled_modules_and_frozen_parameters_train():
    net = small_network()
    net[0].weight.requires_grad_(False)
    before = net[0].weight.clone()
    optimizer = OPTIMIZERS["adamw"](p for p in net.parameters() if p.requires_grad)
    with prunex.DiLoCo(torch.compile(net, backend="eager"), optimizer, sync_every=2) as training:
        for step in range(1, 5):
            train_step(net, optimizer, 0, step)
    assert torch.equal(net[0].weight, before)
    assert "0.weight" not in training.product() and "1.running_mean" in training.product()


def test_modules_that_share_a_parameter_keep_sharing_it():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
            self.b.weight = self.a.weight
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.b(self.a(x).relu()).relu())

    net = Tied()
    optimizer = OPTIMIZERS["adamw"](net.parameters())
    x = torch.randn(4, 6)
    with prunex.DiLoCo(net, optimizer, sync_every=2) as training:
        for _ in range(4):
            net(x).sum().backward()
            optimizer.step()
    assert net.a.weight is net.b.weight and training.exchange.index == 2


class Centered(nn.Module):
    """Replaces its buffer in every step."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        if self.training:
            self.mean = 0.5 * self.mean + 0.5 * x.detach().mean(0)
        return self.layer(x - self.mean)


def test_tensors_that_the_loop_replaces_are_followed():
    net = Centered()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with prunex.LocalSGD(net, optimizer, sync_every=2) as training:
        for _ in range(6):
            optimizer.zero_grad()
            net(torch.ones(8, 4)).square().mean().backward()
            optimizer.step()
        at_the_end = net.mean.clone()
    assert float(at_the_end[0]) == 1 - 0.5 ** 6
    assert torch.equal(net.mean, at_the_end) and torch.equal(training.product()["mean"], at_the_end)


def test_what_begins_to_train_in_the_loop_is_refused():
    net = small_network()
    net[0].weight.requires_grad_(False)
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with pytest.raises(ValueError, match="`model`: 0.weight has got `requires_grad` in the loop; a strategy exchanges"):
        with prunex.LocalSGD(net, optimizer, sync_every=2):
            train_step(net, optimizer, 0, 1)
            net[0].weight.requires_grad_(True)
            train_step(net, optimizer, 0, 2)


def test_buffers_that_grow_with_the_first_batch_are_named():
    class Observed(nn.Sequential):
        def forward(self, x):
            self[0].least = x.amin((0, 2, 3))
            return super().forward(x)

    net = Observed(*small_network())
    net[0].register_buffer("least", torch.zeros(0))
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with pytest.raises(ValueError, match=r"0.least is torch.float32 \[3\], it was torch.float32 \[0\] when the "
                                         "strategy was made; run a batch through it before the strategy is made"):
        with prunex.LocalSGD(net, optimizer, sync_every=2):
            loop(net, optimizer)
    with prunex.LocalSGD(net, optimizer, sync_every=2) as training:
        loop(net, optimizer)
    assert training.exchange.index == 2


def test_gradients_may_be_switched_off_meanwhile():
    """As those of a GAN's critic while the generator makes its step."""

    def trained(switched_off):
        net = small_network()
        optimizer = OPTIMIZERS["adamw"](net.parameters())
        training = admm(net, optimizer)
        net.requires_grad_(not switched_off)
        with training:
            for step in range(1, 40):
                images, labels = batch(0, step)
                net.requires_grad_(True)
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(images), labels).backward()
                net[:7].requires_grad_(not switched_off)
                optimizer.step()
                net.requires_grad_(not switched_off)
                training.cut()
        assert training.exchange.index == 20 and net[0].out_channels < 8
        assert all(p.requires_grad != switched_off for p in net.parameters())
        return net.state_dict()

    left_on, switched_off = trained(False), trained(True)
    assert all(torch.equal(value, switched_off[name]) for name, value in left_on.items())


def test_weights_that_are_loaded_before_the_loop_are_what_it_begins_from():
    net, other = small_network(), small_network()
    for p in other.parameters():
        p.data.normal_()
    with_momentum = {"outer_lr": 0.7, "outer_momentum": 0.9}
    optimizer = torch.optim.SGD(net.parameters(), 0.0)
    strategy = prunex.DiLoCo(net, optimizer, 2, **with_momentum)
    net.load_state_dict(other.state_dict())
    with strategy:
        loop(net, optimizer)
    for p, was in zip(net.parameters(), other.parameters()):
        assert p.equal(was)
    net[0].weight.data.add_(1)
    with pytest.raises(ValueError, match="`model`: its weights were changed after the end of the training"):
        strategy.__enter__()


def test_statistics_that_are_estimated_between_contexts_are_taken():
    net = small_network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    strategy = prunex.LocalSGD(net, optimizer, 2)
    with strategy:
        loop(net, optimizer)
    net[1].running_mean.add_(1)
    with strategy:
        loop(net, optimizer)
    assert strategy.step == 8


def test_what_comes_after_the_end_stays():
    net = small_network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with prunex.LocalSGD(net, optimizer, 3) as training:
        loop(net, optimizer)
        training.finish()
        net[1].running_mean.fill_(7)  # as update_bn would
    assert net[1].running_mean.eq(7).all()
    with training:
        training.finish()
        loop(net, optimizer)
    assert training.exchange.index == 4 and training.product()["1.running_mean"].equal(net[1].running_mean)


def test_what_moves_without_gradients_is_warned_of_once():
    net = small_network()
    net.target = torch.nn.Parameter(torch.zeros(3), requires_grad=False)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with pytest.warns(UserWarning, match="`model`: target takes no gradients, but the loop changes it") as warned:
        with prunex.LocalSGD(net, optimizer, 2):
            for step in range(1, 7):
                train_step(net, optimizer, 0, step)
                net.target.lerp_(torch.ones(3), 0.1)
    assert len(warned) == 1


def test_numbers_that_are_not_finite_are_not_given_on():
    net = small_network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with pytest.raises(FloatingPointError, match="3.weight of rank 0 has numbers that are not finite after step 2"):
        with prunex.DiLoCo(net, optimizer, 2, outer_lr=1, outer_momentum=0.5):
            loop(net, optimizer, 1)
            net[3].weight.data[0, 0, 0, 0] = float("nan")
            optimizer.zero_grad()
            optimizer.step()


def test_buffers_that_are_infinite_by_design_are_given_on():
    net = small_network()
    net.register_buffer("mask", torch.full((2, 2), -torch.inf).triu(1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with prunex.DiLoCo(net, optimizer, 2, outer_lr=1, outer_momentum=0.5):
        loop(net, optimizer)
    assert net.mask.equal(torch.full((2, 2), -torch.inf).triu(1))


def test_weights_that_change_without_a_step_are_not_overwritten():
    net = small_network()
    optimizer, other = (torch.optim.SGD(net.parameters(), 0.1) for _ in range(2))
    with pytest.raises(ValueError, match="`optimizer`: no step of it was counted, though the weights"):
        with prunex.DiLoCo(net, optimizer, 2, outer_lr=1, outer_momentum=0.5):
            loop(net, other)
    with prunex.LocalSGD(net, optimizer, 2):
        pass


def test_channels_last_goes_with_masks_whatever_the_kernels():
    net = small_network()
    net[3] = nn.Conv2d(8, 16, 1).to(DEVICE)
    net = net.to(memory_format=torch.channels_last)
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with admm(net, optimizer) as training:
        loop(net, optimizer, 40)
    assert training.exchange.frozen and training.exchange.keep < 1
    training.cut()
    assert net[3].out_channels < 16


def test_what_lies_sparsely_is_refused_by_name():
    net = small_network()
    net.register_buffer("adjacency", torch.eye(3).to_sparse())
    with pytest.raises(ValueError, match="`model`: adjacency is torch.sparse_coo, wanted torch.strided"):
        prunex.LocalSGD(net, OPTIMIZERS["sgd"](net.parameters()), 2)


def test_a_saved_state_stays_as_it_was():
    net = small_network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with prunex.DiLoCo(net, optimizer, 2, outer_lr=0.7, outer_momentum=0.9) as strategy:
        loop(net, optimizer, 2)
        saved = strategy.state_dict()
        was = copy.deepcopy(saved)
        loop(net, optimizer, 2)
    for part in ("global", "node", "rank"):
        assert all(saved[part][name].equal(value) for name, value in was[part].items())


def test_a_state_of_something_else_is_refused():
    training = diloco()
    with pytest.raises(ValueError, match="state_dict: has no 'cut'"):
        training.load_state_dict({"step": 1})


def test_a_compiled_step_is_counted_and_exchanged():
    torch._dynamo.reset()
    net = small_network()
    optimizer = OPTIMIZERS["adamw"](net.parameters())
    update = torch.compile(lambda: optimizer.step(), backend="eager")
    with prunex.DiLoCo(net, optimizer, sync_every=3) as training:
        for step in range(1, 10):
            images, labels = batch(0, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            update()
    assert training.step == 9 and training.exchange.index == 3
