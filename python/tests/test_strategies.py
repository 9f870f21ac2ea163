"""LocalSGD, DiLoCo and HSADMM against their formulas written out in PyTorch, on real ranks."""

import contextlib
import copy
import datetime
import warnings

import pytest
import torch
from torch import nn

import prunex
from ranks import CASES, OPTIMIZERS, Shuffled, batch, small_network, train_step


@pytest.mark.parametrize("ranks, case", [(ranks, case) for ranks, cases in CASES.items() for case in cases
                                         if not case[0].startswith("hook")], ids=lambda value: "-".join(value)
                         if isinstance(value, tuple) else str(value))
def test_on_ranks(passed, ranks, case):
    passed(ranks, *case)


def test_a_lost_rank_is_named(by_hand):
    survivor, lost = by_hand(2, "a_rank_dies")
    assert lost.returncode == 7 and survivor.returncode == 1
    assert "RuntimeError: [comm] rank 0: all_to_all in world: its connection closed (with rank 1)" in survivor.stderr


def test_an_interrupt_ends_the_wait(by_hand):
    waiting, _ = by_hand(2, "one_waits", interrupt=0)
    assert waiting.stdout.endswith("KeyboardInterrupt\n"), (waiting.stdout, waiting.stderr)


def test_ranks_and_states_that_differ_are_refused(by_hand):
    for result in by_hand(2, "options_that_differ_are_refused"):
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("case", ["a_loop_ends_beside_an_exchange", "a_loop_is_dropped_beside_an_exchange"])
def test_exchanges_on_their_way_end_with_the_loop(by_hand, case):
    for result in by_hand(2, case):
        assert result.returncode == 0, result.stderr


def make(strategy=prunex.DiLoCo, **options):
    net = small_network()
    return strategy(net, OPTIMIZERS["sgd"](net.parameters()), **options)


@pytest.mark.parametrize("options, message", [
    ({"payload": "int3"}, "`payload`: got 'int3', wanted one of fp32"),
    ({"paylod": "int2"}, "`paylod`: no option of a strategy; did you mean 'payload'"),
    ({"sync_every": 0}, "`sync_every`: got 0, wanted 1 or more"),
    ({"sync_every": 2.0}, "`sync_every`: got 2.0, wanted a whole number, 1 or more"),
    ({"total_steps": True}, "`total_steps`: got True, wanted a whole number, 1 or more"),
    ({"payload": None}, "`payload`: got None, wanted a word, a number"),
    ({"timeout": 0}, "`timeout`: got 0, wanted seconds above 0"),
    ({"timeout": float("inf")}, "`timeout`: got inf, wanted seconds above 0"),
    ({"timeout": "soon"}, "`timeout`: got 'soon', wanted seconds above 0"),
    ({"outer_momentum": 1.5}, "`outer_momentum`: got 1.5"),
    ({"kappa": 0.3}, "`kappa`: diloco has no duals"),
    ({"groups": "coupled"}, "`example`: got none"),
    ({"groups": "coupled", "example": torch.zeros(1, 3, 8, 8)}, "`total_steps`: got none"),
    ({"total_steps": 0}, "`total_steps`: got 0"),
    ({"overlap": 2}, "`overlap`: wants `total_steps`"),
    ({"learning_rate": 0.1}, "`learning_rate`: diloco has no pull"),
    ({"example": torch.zeros(1, 3, 8, 8), "total_steps": 100}, "`example`: diloco masks nothing without `groups`"),
    ({"prune_to": "macs=0.5"}, "`prune_to`: no option of a strategy"),
    ({"local_after": 2}, "`local_after`: no option of a strategy"),
    ({"ranks_per_node": 2}, "`ranks_per_node`: got 2, this process is alone"),
    ({"example": torch.zeros(1, 2, 8, 8), "groups": "coupled", "total_steps": 100}, "`model`: torch.export cannot"),
])
def test_options_without_sense_are_refused_by_name(options, message):
    with pytest.raises(ValueError) as error:
        make(**options)
    assert message in str(error.value)


def test_a_rank_that_does_not_know_the_others_is_refused(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="torch.distributed: this is rank 1 of 2, which know nothing of each other"):
        make()


def test_what_cannot_be_trained_is_refused():
    net = small_network()
    with pytest.raises(ValueError, match="`optimizer`: got a list, wanted a torch.optim.Optimizer"):
        prunex.DiLoCo(net, [])
    with pytest.raises(ValueError, match="`model`: got a function, wanted a torch.nn.Module"):
        prunex.DiLoCo(batch, OPTIMIZERS["sgd"](net.parameters()))
    with pytest.raises(ValueError, match="`optimizer`: it moves no parameter of the model"):
        prunex.DiLoCo(net, OPTIMIZERS["sgd"](small_network().parameters()))
    half = small_network(torch.bfloat16)
    with pytest.raises(ValueError, match="0.weight is torch.bfloat16, wanted torch.float32"):
        prunex.DiLoCo(half, OPTIMIZERS["sgd"](half.parameters()))
    for name, buffer, message in [("low", torch.ones(4).bfloat16(), "low is torch.bfloat16, wanted torch.float32"),
                                  ("wide", torch.ones(1).expand(4), "wide is an expanded view")]:
        other = small_network()
        other.register_buffer(name, buffer)
        with pytest.raises(ValueError, match=message):
            prunex.DiLoCo(other, OPTIMIZERS["sgd"](other.parameters()))
    with pytest.raises(ValueError, match="`example`: got none"):
        make(prunex.HSADMM)
    for p in net.parameters():
        p.requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter requires gradients"):
        prunex.LocalSGD(net, OPTIMIZERS["sgd"](net.parameters()))


def test_a_loop_outside_of_the_context_is_noticed():
    loop = make(sync_every=2, timeout=datetime.timedelta(minutes=1))
    with pytest.raises(ValueError, match="finish: no step was counted, wanted `with` this DiLoCo around the loop"):
        loop.finish()


def test_steps_count_for_one_strategy_at_a_time():
    loop = make(sync_every=2)
    other = prunex.LocalSGD(loop.model, loop.optimizer)
    with loop:
        for again in (loop, other):
            with pytest.raises(ValueError, match="`optimizer`: its steps count for a DiLoCo already"), again:
                pass
        train_step(loop.model, loop.optimizer, 0, 1)
        assert loop.step == 1
    with other:
        train_step(loop.model, loop.optimizer, 0, 2)
    assert (loop.step, other.step) == (1, 1)


def test_a_process_alone_prunes_while_it_trains():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with prunex.HSADMM(net, optimizer, sync_every=2, total_steps=40, example=batch(0, 0)[0], groups="coupled",
                       round_to=1) as training:
        for step in range(1, 41):
            train_step(net, optimizer, 0, step)
            training.cut()
    assert net[0].out_channels == 4 and training.sent_bytes == 0


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


def test_masks_want_one_optimizer_of_all():
    net = small_network()
    half = torch.optim.SGD(net[0].parameters(), 0.05)
    prunex.DiLoCo(net, half)
    with pytest.raises(ValueError, match="`optimizer`: it does not move 1.weight; with masks one optimizer is wanted"):
        prunex.DiLoCo(net, half, total_steps=40, example=batch(0, 0)[0], groups="coupled")


def test_hooks_end_with_the_context():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with prunex.LocalSGD(net, optimizer, sync_every=2) as training:
        train_step(net, optimizer, 0, 1)
    train_step(net, optimizer, 0, 2)
    assert training.step == 1


def test_an_error_in_the_loop_is_not_hidden_by_an_exchange():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with pytest.raises(KeyError, match="mine"):
        with prunex.LocalSGD(net, optimizer, sync_every=2) as training:
            train_step(net, optimizer, 0, 1)
            raise KeyError("mine")
    assert training.exchange is None


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


def admm(net, optimizer, **options):
    return prunex.HSADMM(net, optimizer, sync_every=2, total_steps=40, example=batch(0, 0)[0], groups="coupled",
                         round_to=1, **options)


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


@pytest.mark.parametrize("unscaled", [False, True])
def test_gradients_that_a_scaler_leaves_scaled_are_refused(unscaled):
    net = small_network()
    optimizer = torch.optim.SGD(net.parameters(), 0.05, fused=True)
    refused = pytest.raises(ValueError, match="wanted `scaler.unscale_")
    with contextlib.nullcontext() if unscaled else refused, admm(net, optimizer):
        images, labels = batch(0, 1)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(nn.functional.cross_entropy(net(images), labels)).backward()
        if unscaled:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_closure_does_what_a_loop_does(kind):
    def trained(with_closure):
        net = small_network()
        optimizer = OPTIMIZERS[kind](net.parameters())
        with admm(net, optimizer):
            for step in range(1, 9):
                images, labels = batch(0, step)

                def closure():
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(net(images), labels)
                    loss.backward()
                    return loss

                if with_closure:
                    assert optimizer.step(closure) > 0
                else:
                    closure()
                    optimizer.step()
        return net.state_dict()

    by_loop, by_closure = trained(False), trained(True)
    assert all(torch.equal(value, by_closure[name]) for name, value in by_loop.items())


def test_a_cut_that_the_code_does_not_follow_leaves_the_masks():
    net = Shuffled()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    x = torch.randn(8, 4)
    with prunex.HSADMM(net, optimizer, 2, total_steps=40, example=x, round_to=1) as training:
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


def test_wide_numbers_are_not_rounded():
    net = small_network(torch.float64)
    with pytest.raises(ValueError, match="`payload`: got int8; parameter 0.weight is of float64"):
        prunex.DiLoCo(net, OPTIMIZERS["sgd"](net.parameters()), payload="int8")


def test_an_optimizer_that_no_mask_reaches_is_refused():
    net = small_network()
    optimizer = torch.optim.LBFGS(net.parameters())
    prunex.LocalSGD(net, optimizer)
    with pytest.raises(ValueError, match="`optimizer`: got LBFGS"):
        admm(net, optimizer)
    with pytest.raises(ValueError, match="`optimizer`: got LBFGS"):
        prunex.prune(net, batch(0, 0)[0], ratio=0.5, optimizer=optimizer)


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
    with admm(net, optimizer) as training:
        for step in range(1, 19):
            train_step(net, optimizer, 0, step)
        assert training.cut() is None
    alive = int(training.masks()["0"].sum())
    assert training.cut() is not None and net[0].out_channels == alive < 8


def test_what_trains_must_stay_what_trains():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with pytest.raises(ValueError, match="`model`: 0.weight has lost `requires_grad` in the loop"):
        with prunex.LocalSGD(net, optimizer, sync_every=2):
            train_step(net, optimizer, 0, 1)
            net[0].weight.requires_grad_(False)
            train_step(net, optimizer, 0, 2)


def test_a_state_of_something_else_is_refused():
    training = make()
    with pytest.raises(ValueError, match="state_dict: has no 'cut'"):
        training.load_state_dict({"step": 1})


def loop(net, optimizer, steps=4):
    for step in range(steps):
        train_step(net, optimizer, 0, step)


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


def test_parameters_that_no_exchange_has_are_warned_of():
    net, temperature = small_network(), nn.Parameter(torch.ones(1))
    with pytest.warns(UserWarning, match="`optimizer`: it also moves 1 parameters that are not of `model`"):
        prunex.LocalSGD(net, torch.optim.SGD([*net.parameters(), temperature], 0.1), 2)


def test_numbers_that_are_not_finite_are_not_given_on():
    net = small_network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with pytest.raises(FloatingPointError, match="3.weight of rank 0 has numbers that are not finite after step 2"):
        with prunex.DiLoCo(net, optimizer, 2, outer_lr=1, outer_momentum=0.5):
            loop(net, optimizer, 1)
            net[3].weight.data[0, 0, 0, 0] = float("nan")
            optimizer.zero_grad()
            optimizer.step()


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


def test_a_group_of_nobody_is_refused():
    with pytest.raises(ValueError, match="`process_group`: got a object, and torch.distributed is not initialized"):
        prunex.comm_hook(payload="int8", process_group=object())


def test_messages_have_the_names_of_the_loop():
    net = small_network()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with pytest.raises(ValueError, match="`overlap`.*`sync_every`"):
        prunex.LocalSGD(net, optimizer, 10, total_steps=100, overlap=12)


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
