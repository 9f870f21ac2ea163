"""Modules that are cut in place: what goes along, and what their code does not follow."""

import gc
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils import prune as magnitude

import prunex
from prunex import _in_place
from training import (OPTIMIZERS, POOLED, Auxiliary, ByParameter, Mixing, OfTwo, Shuffled, batch, small_network,
                      train_step)

X = batch(0, 0)[0]


def test_parameters_keep_what_hangs_on_them():
    net = small_network()
    seen = []
    for p in net.parameters():
        p.decays = p.dim() > 1
    net[0].weight.register_hook(lambda gradient: seen.append(gradient.shape))
    net[3].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.shape))
    net(X).square().sum().backward()
    gradient = net[0].weight.grad.clone()
    pruned = prunex.prune(net, X, ratio=0.5)
    assert all(p.decays == (p.dim() > 1) for p in net.parameters())
    assert torch.equal(net[0].weight.grad, pruned.cut.apply("0.weight", gradient))
    seen.clear()
    net(X).square().sum().backward()
    assert sorted(seen) == [(4, 3, 3, 3), (8, 4, 3, 3)]


def test_a_sparse_gradient_goes():
    net = nn.Sequential(nn.Embedding(5, 8, sparse=True), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    rows = torch.tensor([0, 3])
    net(rows).sum().backward()
    prunex.prune(net, rows, ratio=0.5)
    assert net[0].embedding_dim == 4 and net[0].weight.grad is None and net[1].weight.grad.shape == (3, 4)


class Merged(nn.Linear):
    """As loralib's: eval() changes the weight, train() gives it back."""

    def train(self, mode=True):
        if mode != self.training:
            with torch.no_grad():
                self.weight.add_(-1 if mode else 1)
        return super().train(mode)


def test_what_train_does_beside_its_flag_is_undone():
    net = nn.Sequential(Merged(3, 4), nn.ReLU(), nn.Linear(4, 2))
    before = net[0].weight.detach().clone()
    prunex.groups(net, torch.randn(2, 3))
    assert net.training and net[0].training
    torch.testing.assert_close(net[0].weight.detach(), before)
    net[0].eval()  # a part that stays as it is while the rest trains
    merged = net[0].weight.detach().clone()
    prunex.groups(net, torch.randn(2, 3))
    assert net.training and not net[0].training
    torch.testing.assert_close(net[0].weight.detach(), merged)


class OfPositive(nn.Module):
    """Its code knows a width, and takes what it is given for positive."""

    def __init__(self):
        super().__init__()
        self.net = Shuffled()

    def forward(self, x):
        return self.net(x.log())


class OfNumbers(nn.Module):
    """Looks up rows by what it is given as floating-point numbers."""

    def __init__(self):
        super().__init__()
        self.rows, self.a, self.b = nn.Embedding(5, 4), nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(self.a(self.rows(x[:, 0].long())).relu())


def test_inputs_that_a_module_does_not_take_are_not_tried_on_it():
    net = OfPositive()
    with pytest.warns(UserWarning, match="the code of OfPositive does not follow cuts of net.a"):
        prunex.prune(net, torch.rand(2, 4) + 0.5, ratio=0.5)
    assert net.net.a.out_features == 8
    net = OfNumbers()
    prunex.prune(net, torch.tensor([[4.0], [1.0]]), ratio=0.5)
    assert net.a.out_features == 4


def test_an_optimizer_that_is_left_behind_is_warned_of_once():
    net, other = small_network(), small_network()
    optimizer, unconcerned = (OPTIMIZERS["sgd"](n.parameters()) for n in (net, other))
    prunex.prune(net, X, ratio=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train_step(other, unconcerned, 0, 1)
    with pytest.warns(UserWarning, match=r"SGD: moves \d+ parameters that prune\(\) has replaced"):
        train_step(net, optimizer, 0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train_step(net, optimizer, 0, 2)


def test_of_two_optimizers_the_one_that_is_left_behind_is_warned_of():
    net = small_network()
    given, other = torch.optim.SGD(net[0].parameters(), 0.1), torch.optim.Adam(net[3:].parameters(), 0.1)
    prunex.prune(net, X, ratio=0.5, optimizer=given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train_step(net, given, 0, 1)
    with pytest.warns(UserWarning, match=r"Adam: moves \d+ parameters that prune\(\) has replaced"):
        train_step(net, other, 0, 1)


def test_what_nobody_has_any_longer_is_forgotten():
    gc.collect()
    net, before = small_network(), set(_in_place._replaced)
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    prunex.prune(net, X, ratio=0.5)
    assert set(_in_place._replaced) > before
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    gc.collect()
    assert set(_in_place._replaced) <= before
    train_step(net, optimizer, 0, 1)


def test_the_optimizer_follows():
    net = small_network()
    optimizer = OPTIMIZERS["adamw"](net.parameters())
    train_step(net, optimizer, 0, 1)
    moment = optimizer.state[net[0].weight]["exp_avg"].clone()
    pruned = prunex.prune(net, X, ratio=0.5, optimizer=optimizer)
    kept = pruned.cut.kept()["0.weight"][0]
    assert torch.equal(optimizer.state[net[0].weight]["exp_avg"], moment[kept])
    assert {id(p) for p in optimizer.param_groups[0]["params"]} == {id(p) for p in net.parameters()}
    assert len(optimizer.state) == len(list(net.parameters()))
    train_step(net, optimizer, 0, 2)


def test_several_optimizers_follow():
    net = small_network()
    optimizers = OPTIMIZERS["several"](net.parameters())
    train_step(net, optimizers, 0, 1)

    def moments():
        return optimizers[0].state[net[0].weight]["momentum_buffer"], optimizers[1].state[net[1].weight]["exp_avg"]

    before = moments()
    kept = prunex.prune(net, X, ratio=0.5, optimizer=optimizers).cut.kept()["0.weight"][0]
    assert all(torch.equal(value, was[kept]) for value, was in zip(moments(), before))
    train_step(net, optimizers, 0, 2)


def test_a_module_that_is_pruned_in_inference_mode_trains():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    train_step(net, optimizer, 0, 1)
    with torch.inference_mode():
        prunex.prune(net, X, ratio=0.5, optimizer=optimizer)
    train_step(net, optimizer, 0, 2)
    assert net[0].out_channels == 4


def test_parameters_without_rows_stay():
    net = small_network()
    net.register_parameter("none", nn.Parameter(torch.empty(0, 4)))
    prunex.prune(net, X, ratio=0.5)
    assert net[0].out_channels == 4 and net.none.shape == (0, 4)


def test_an_optimizer_follows_a_module_of_bf16():
    net = small_network(torch.bfloat16)
    optimizer = torch.optim.AdamW(net.parameters(), 0.01)
    train_step(net, optimizer, 0, 1, torch.bfloat16)
    prunex.prune(net, X.bfloat16(), ratio=0.5, optimizer=optimizer)
    assert optimizer.state[net[0].weight]["exp_avg"].shape == (4, 3, 3, 3)
    train_step(net, optimizer, 0, 2, torch.bfloat16)
    with pytest.raises(ValueError, match="`optimizer`: got LBFGS"):
        prunex.prune(net, X.bfloat16(), ratio=0.5, optimizer=torch.optim.LBFGS(net.parameters()))


def test_states_that_do_not_lie_beside_a_parameter_begin_anew():
    net = small_network()
    optimizer = torch.optim.Adafactor(net.parameters())
    train_step(net, optimizer, 0, 1)
    prunex.prune(net, X, ratio=0.5, optimizer=optimizer)
    train_step(net, optimizer, 0, 2)
    assert net[0].out_channels == 4


def test_states_that_are_no_plain_tensors_begin_anew():
    net = small_network()
    optimizer = OfTwo(net.parameters())
    train_step(net, optimizer, 0, 1)
    mean = optimizer.state[net[0].weight]["mean"]
    pruned = prunex.prune(net, X, ratio=0.5, optimizer=optimizer)
    assert net[0].weight not in optimizer.state
    train_step(net, optimizer, 0, 2)
    assert optimizer.state[net[0].weight]["mean"].shape == (4, 3, 3, 3)
    with pytest.raises(TypeError, match="got .*TwoTensor, .* wanted a plain torch.Tensor"):
        pruned.cut.apply("0.weight", mean)


def test_preconditioners_of_a_square_parameter_are_known_by_those_of_others():
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = Mixing(net.parameters())
    x = torch.randn(4, 6)

    def step():
        net(x).square().mean().backward()
        optimizer.step()

    step()
    assert optimizer.state[net[2].weight]["factor"].shape == net[2].weight.shape
    prunex.prune(net, x, ratio=0.5, optimizer=optimizer)
    optimizer.zero_grad()
    step()
    assert optimizer.state[net[2].weight]["factor"].shape == (4, 4)


class OfLists(ByParameter):
    """Keeps matrices in lists, as SOAP and Shampoo do."""

    def __init__(self, params, counter=()):
        super().__init__(params)
        self.counter = counter

    def move(self, p, state):
        if not state:
            state.update(step=torch.zeros(self.counter), mean=torch.zeros_like(p),
                         factors=[torch.eye(size) for size in p.shape] if p.dim() == 2 else [])
        state["step"] += 1
        state["mean"] += p.grad
        p -= 0.01 * (state["factors"][0] @ p.grad @ state["factors"][1] if p.dim() == 2 else p.grad)


@pytest.mark.parametrize("counter", [(), (1,)])
def test_states_in_lists_begin_anew_too(counter):
    net = small_network()
    optimizer = OfLists(net.parameters(), counter)
    train_step(net, optimizer, 0, 1)
    prunex.prune(net, X, ratio=0.5, optimizer=optimizer)
    assert net[8].weight not in optimizer.state and optimizer.state[net[0].weight]["mean"].shape == (4, 3, 3, 3)
    train_step(net, optimizer, 0, 2)
    assert optimizer.state[net[8].weight]["step"] == 1 and optimizer.state[net[0].weight]["step"] == 2


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated", "ignore:The tensor attribute")
@pytest.mark.parametrize("made", [
    parametrizations.weight_norm, nn.utils.weight_norm, lambda layer: magnitude.l1_unstructured(layer, "weight", 0.3)],
    ids=["parametrization", "hook", "mask"])
def test_attributes_follow_weights_that_are_made_of_others(made):
    net = nn.Sequential(made(nn.Conv2d(3, 8, 3, bias=False)), nn.ReLU(), nn.Conv2d(8, 4, 3))
    prunex.prune(net, X, ratio=0.5)
    assert net[0].out_channels == net[2].in_channels == 4
    net(X).sum().backward()
    assert net[0].weight.shape == (4, 3, 3, 3)


def test_a_weight_whose_code_does_not_follow_stays_whole():
    class OfEight(nn.Module):
        def forward(self, weight):
            return weight.view(8, 4) * 2

    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    parametrize.register_parametrization(net[0], "weight", OfEight())
    with pytest.warns(UserWarning, match="does not follow cuts of 0.*, which stay whole"):
        prunex.prune(net, torch.randn(2, 4), ratio=0.5)
    assert (net[0].out_features, net[2].out_features) == (8, 3) and net(torch.randn(2, 4)).shape == (2, 3)


def test_a_group_stays_whole_without_others_that_its_layer_makes():
    class Halves(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(3, 32, 3), nn.Conv2d(8, 4, 3), nn.Conv2d(24, 4, 3)

        def forward(self, x):
            y = self.a(x).relu()
            return self.b(y[:, :8]) + self.c(y[:, 8:])

    net = Halves()
    with pytest.warns(UserWarning, match="does not follow cuts of a, which stay whole"):
        pruned = prunex.prune(net, X, ratio=0.5)
    assert (net.b.in_channels, net.c.in_channels) == (8, 12)
    reasons = {group["group"]: group["reason"] for group in pruned.groups}
    assert reasons["a"] == "the module's code does not follow its cut" and reasons["a[8]"] == ""


def test_linear_layers_of_gpt2_know_their_width():
    class Conv1D(nn.Module):
        def __init__(self, nf, nx):
            super().__init__()
            self.nf, self.nx = nf, nx
            self.weight, self.bias = nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.zeros(nf))

        def forward(self, x):
            return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], self.nf)

    Conv1D.__module__ = "transformers.pytorch_utils"
    net = nn.Sequential(Conv1D(64, 16), nn.ReLU(), Conv1D(16, 64))
    prunex.prune(net, torch.randn(2, 5, 16), ratio=0.5)
    assert (net[0].nx, net[0].nf, net[2].nx, net[2].nf) == (16, 32, 32, 16)
    assert net(torch.randn(2, 5, 16)).shape == (2, 5, 16)


def test_a_group_stays_whole_if_the_code_follows_but_one_unit_less():
    class Halves(nn.Module):
        """Seven channels in two chunks are four and three: without an unused one the first chunk is as before."""

        def __init__(self):
            super().__init__()
            self.a, self.both, self.b, self.c = (nn.Conv2d(3, 16, 3), nn.Conv2d(16, 8, 1), nn.Conv2d(4, 12, 1),
                                                 nn.Conv2d(12, 5, 1))

        def forward(self, x):
            first, _ = self.both(self.a(x).relu()).chunk(2, 1)
            h = self.b(first)
            return self.c(h.view(len(h), 12, -1).relu().view(len(h), 12, *h.shape[2:]))

    net = Halves()
    with pytest.warns(UserWarning, match="does not follow cuts of b, both, both.4., which stay whole"):
        prunex.prune(net, X, ratio=0.5)
    assert (net.a.out_channels, net.both.out_channels, net.b.out_channels) == (8, 8, 12)


def test_instance_norms_without_tensors_know_their_channels():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prunex.prune(net, X, ratio=0.5)
        net(X)
    assert net[1].num_features == 4 and not net[1]._forward_pre_hooks


def test_instance_norms_of_a_cut_that_is_undone_are_as_they_were(monkeypatch):
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(prunex._checked_cut, "expect_close", fail)
    with pytest.raises(KeyboardInterrupt):
        prunex.prune(net, X, ratio=0.5)
    assert net[1].num_features == 8 and not net[1]._forward_pre_hooks


def test_an_interrupt_leaves_the_module_whole(monkeypatch):
    net = small_network()
    evaluated = prunex._checked_cut.evaluated

    def interrupted(*arguments):
        evaluated(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(prunex._checked_cut, "evaluated", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prunex.prune(net, X, ratio=0.5)
    assert net[0].out_channels == 8 and net[0].weight.shape[0] == 8


def test_a_module_that_cannot_be_cut_so_far_stays_as_it_was():
    net = small_network()
    optimizer = OPTIMIZERS["adamw"](net.parameters())
    train_step(net, optimizer, 0, 1)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    params = [id(p) for p in net.parameters()]
    with pytest.raises(ValueError, match="wanted 2 at most"):
        prunex.prune(net, X, macs=2, optimizer=optimizer)

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net

        def forward(self, x):
            return self.inner[1](self.inner[0](x)).view(x.shape[0], 8, -1).mean(2)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prunex.prune(Wide(), X, ratio=0.5, optimizer=optimizer)
    assert [id(p) for p in net.parameters()] == params
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert net[0].out_channels == 8 and len(optimizer.state) == len(params)


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_code_that_does_not_follow_is_noticed_whatever_the_example(scale):
    torch.manual_seed(0)
    net = Shuffled()
    with torch.no_grad():
        for part in net.head.parameters():
            part *= scale
    with pytest.warns(UserWarning, match="does not follow cuts of a"):
        prunex.prune(net, torch.zeros(2, 4), ratio=0.5)
    assert net.a.weight.shape == (8, 4)


def test_what_only_trains_keeps_what_it_reads():
    net = Auxiliary()
    mean, state = net.norm.running_mean.clone(), torch.get_rng_state()
    with pytest.warns(UserWarning, match="does not follow cuts of a, which stay whole"):
        prunex.prune(net, X, ratio=0.5)
    assert (net.a.out_channels, net.b.out_channels, net.norm.num_features) == (16, 8, 8)
    assert net.training and net.norm.running_mean.equal(mean[:8] if mean[0] == 0 else mean)
    assert torch.get_rng_state().equal(state)
    assert [out.shape[1] for out in net(X)] == [4, 4]


def test_what_trains_on_several_rows_only_is_looked_at_with_two():
    net = Auxiliary(*POOLED)
    whole = prunex.prune(torch.export.export(net.eval(), (X[:1],)), ratio=0.5).cut
    with pytest.raises(ValueError, match="`cut`: the code of Auxiliary does not follow .in training mode: "):
        prunex.prune(net, X[:1], cut=whole)
    with pytest.warns(UserWarning, match="does not follow cuts of a, which stay whole") as said:
        prunex.prune(net.train(), X[:1], ratio=0.5)
    assert len(said) == 1 and (net.a.out_channels, net.b.out_channels) == (16, 8)
    assert [out.shape[1] for out in net(X)] == [4, 4]


def test_what_cannot_be_seen_to_train_is_warned_of_once():
    class Taught(nn.Sequential):
        def forward(self, x, target=None):
            return super().forward(x) - target if self.training else super().forward(x)

    net = Taught(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    for example in (torch.randn(2, 4), (torch.randn(1, 4),)):
        with pytest.warns(UserWarning, match=r"Taught does not run in training mode with this `example` \(u") as said:
            prunex.prune(net, example, ratio=0.5)
        assert [warning.filename for warning in said] == [__file__]
    assert net[0].out_features == 2


class Attention(nn.Module):
    """Heads of eight features, whatever the width; its branch hardly counts at the start."""

    def __init__(self, scale):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))
        self.scale = nn.Parameter(torch.full((32,), scale))
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, 0, 0.02)

    def forward(self, x):
        q, k, v = (layer(x).unflatten(2, (-1, 8)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return x + self.scale * self.o(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_a_branch_that_hardly_counts_is_looked_at_as_closely(scale):
    net = Attention(scale)
    with pytest.warns(UserWarning, match="does not follow cuts of"):
        prunex.prune(net, torch.randn(2, 5, 32), ratio=0.5)
    assert net.q.out_features == 32


def test_tied_weights_are_checked_with_others_too():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.c(torch.relu(self.a(x)) + torch.relu(self.b(x)))

    net = Tied()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prunex.prune(net, torch.randn(2, 8), ratio=0.5)
    assert net.a.weight is net.b.weight and net.a.out_features == net.b.out_features == 4


def test_a_statistic_that_a_module_puts_anew_in_its_place_stays():
    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)
            self.register_buffer("seen", torch.ones(()))

        def forward(self, x):
            h = self.a(x).relu()
            if self.training:
                self.seen = 0.9 * self.seen + 0.1 * h.detach().mean()
            return self.b(h)

    net = Watched()
    seen = net.seen
    prunex.prune(net, torch.zeros(1, 3, 8, 8), ratio=0.5)
    assert net.a.out_channels == 4 and net.seen is seen and seen == 1


def test_what_draws_in_eval_mode_is_told_so():
    class Doubtful(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.fc = nn.Linear(6, 8), nn.Linear(8, 6), nn.Linear(6, 3)

        def forward(self, x):
            return self.fc(nn.functional.dropout(self.b(self.a(x).relu()).relu(), 0.5, training=True))

    net = Doubtful()
    with pytest.raises(ValueError, match="it draws random numbers in eval mode.*prune the exported program"):
        prunex.prune(net, torch.randn(8, 6), ratio=0.5)
    assert net.a.out_features == 8 and net.b.out_features == 6
