"""groups, prune and sparsify: modules in place, exported programs, files."""

import copy
import pickle
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torchvision
from torch import nn

import prunex
from ranks import OPTIMIZERS, Shuffled, batch, small_network, train_step

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/data/prune"))
import axis_cases, convolution_cases, sequence_cases, shape_cases  # noqa: E401, E402, F401
from layers import CASES  # noqa: E402

X = batch(0, 0)[0]


def outputs(net, inputs):
    with torch.no_grad():
        result = net(*inputs)
    return [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]


# What the code of these does not follow: attention that knows its width, numbers of channels written into forward().
STAY_PARTLY_WHOLE = {
    "timm_attention_qkv_unbind", "mha_residual", "mha_with_weights", "mha_cross", "encoder_layer", "split_sizes",
    "slice_channels", "overlapping_slices", "batchnorm_after_concat_then_split", "linear_view_convtranspose",
    "pixel_shuffle_by_views", "channel_shuffle", "unbind_then_multiply", "squeeze_of_several",
    "sum_of_what_a_view_has_rectified", "other_names", "written_into",
    "split_at_positions"}


def case(name):
    net, inputs = CASES[name]
    torch.manual_seed(0)
    net = copy.deepcopy(net)
    for weight in net.parameters():
        weight.data.uniform_(-0.7, 0.7)
    return net, tuple(inputs)


@pytest.mark.parametrize("name", CASES)
def test_modules_are_pruned_in_place(name):
    net, inputs = case(name)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        pruned = prunex.prune(net, inputs, ratio=0.5)
    whole = any("does not follow cuts" in str(warning.message) for warning in said)
    assert whole == (name in STAY_PARTLY_WHOLE)
    for group in pruned.groups:
        assert group["kept"] < group["units"] or group["reason"], group
    smaller = sum(p.numel() for p in net.parameters())
    assert smaller == pruned.parameters[1] <= pruned.parameters[0]
    outputs(net.eval(), inputs)
    again = torch.export.export(net, inputs)  # the attributes say what the weights are: it can be pruned once more
    assert sum({p.data_ptr(): p.numel() for p in again.parameters()}.values()) == smaller


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "tests/data/prune/cases").glob("*.pt2"))[::8])
def test_exported_programs_are_pruned_whole(name):
    path = ROOT / f"tests/data/prune/cases/{name}.pt2"
    pruned = prunex.prune(path, ratio=0.5)
    assert pruned.parameters[1] == sum(p.numel() for p in pruned.model.parameters())
    before = torch.export.load(path)
    assert [str(spec) for spec in pruned.model.graph_signature.user_inputs] == [
        str(spec) for spec in before.graph_signature.user_inputs]


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x, scale=None, extra=None):
        return {"logits": self.head(self.a(x).relu()) * scale, "aux": None, "n": 4, "sum": extra["u"] + 1}


def test_exported_programs_are_called_as_before(tmp_path):
    """With keywords, nested inputs, and outputs of which some are no tensors."""
    x, keywords = torch.randn(2, 4), {"scale": torch.ones(1), "extra": {"u": torch.ones(2, 3)}}
    pruned = prunex.prune(torch.export.export(Nested(), (x,), kwargs=keywords), ratio=0.5)
    torch.export.save(pruned.model, tmp_path / "net.pt2")
    for program in (pruned.model, torch.export.load(tmp_path / "net.pt2")):
        answer = program.module()(x, **keywords)
        assert list(answer) == ["logits", "aux", "n", "sum"] and answer["aux"] is None and answer["n"] == 4
        assert answer["logits"].shape == (2, 3) and torch.equal(answer["sum"], torch.full((2, 3), 2.0))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "regnet_y_400mf"])
def test_torchvisions_networks_lose_half_of_their_work(name):
    torch.manual_seed(0)
    net = getattr(torchvision.models, name)(num_classes=10)
    x = torch.randn(2, 3, 32, 32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pruned = prunex.prune(net, x, macs=0.5, scope="global")
    assert 0.49 < pruned.macs[1] / pruned.macs[0] <= 0.5
    nn.functional.cross_entropy(net.train()(x), torch.tensor([1, 2])).backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in net.parameters())


def test_layers_lose_groups_or_keep_them():
    """Of group norm equal positions of all groups, of depthwise convolutions all but one."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8),
                        nn.Conv2d(8, 4, 1))
    pruned = prunex.prune(copy.deepcopy(net), X, ratio=0.5, statistics=True)
    assert (pruned.model[1].num_groups, pruned.model[1].num_channels, pruned.model[3].groups) == (2, 4, 4)
    pruned = prunex.prune(nn.Sequential(net[0], net[3], net[4]), X, ratio=0.875)
    assert (pruned.model[1].groups, pruned.model[1].in_channels, pruned.model[1].out_channels) == (1, 1, 1)


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


def test_a_cut_that_hits_zeros_changes_nothing():
    net = small_network().eval()
    with torch.no_grad():
        for part in (net[0].weight, net[1].weight, net[1].bias):
            part[2] = part[5] = 0
        net[1].running_mean[2] = net[1].running_mean[5] = 0
    want = outputs(net, (X,))
    pruned = prunex.prune(net, X, ratio=0.25, ignore=["3"])
    assert pruned.cut.kept()["0.weight"] == {0: [0, 1, 3, 4, 6, 7]}
    torch.testing.assert_close(outputs(net, (X,)), want, rtol=1e-5, atol=1e-6)


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


def test_states_that_do_not_lie_beside_a_parameter_begin_anew():
    net = small_network()
    optimizer = torch.optim.Adafactor(net.parameters())
    train_step(net, optimizer, 0, 1)
    prunex.prune(net, X, ratio=0.5, optimizer=optimizer)
    train_step(net, optimizer, 0, 2)
    assert net[0].out_channels == 4


def test_an_interrupt_leaves_the_module_whole(monkeypatch):
    net = small_network()
    evaluated = prunex._modules.evaluated

    def interrupted(*arguments):
        evaluated(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(prunex._modules, "evaluated", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prunex.prune(net, X, ratio=0.5)
    assert net[0].out_channels == 8 and net[0].weight.shape[0] == 8


def test_the_weakest_units_go():
    net = small_network()
    with torch.no_grad():
        for unit, size in enumerate([5, 1, 7, 2, 8, 3, 6, 4]):
            net[0].weight[unit] = size
            net[1].weight[unit] = size
            net[3].weight[:, unit] = size
    assert prunex.prune(net, X, ratio=0.5, importance="l1", ignore=["3"]).cut.kept()["0.weight"] == {0: [0, 2, 4, 6]}


def test_importance_may_be_a_function():
    seen = []

    def last_first(group, tensors):
        seen.append(group.name)
        layer = group.slices[0]
        assert tensors[layer.tensor].shape[layer.axis] == len(group.positions(layer))
        return -torch.arange(group.size, dtype=torch.float32)

    net = small_network()
    pruned = prunex.prune(net, X, ratio=0.5, importance=last_first)
    assert seen == ["0", "3"] and pruned.cut.kept()["0.weight"] == {0: [0, 1, 2, 3]}
    with pytest.raises(ValueError, match=r"`importance`: got \(1,\) scores for group 0, wanted \(4,\)"):
        prunex.prune(net, X, ratio=0.5, importance=lambda group, tensors: torch.zeros(1))
    with pytest.raises(ValueError, match="`steps`: has no effect beside an `importance` of one's own"):
        prunex.prune(net, X, ratio=0.5, importance=last_first, steps=2)


def test_taylor_looks_at_the_gradients_that_are_there():
    net = small_network()
    with pytest.raises(ValueError, match="call backward"):
        prunex.prune(net, X, ratio=0.5, importance="taylor")
    images, labels = batch(0, 1)
    nn.functional.cross_entropy(net(images), labels).backward()
    for name, p in net.named_parameters():
        if name != "8.weight":
            p.grad.zero_()
    w, g, by_hand = net[8].weight, net[8].weight.grad, copy.deepcopy(net)
    kept = prunex.prune(net, X, ratio=0.5, importance="taylor", ignore=["0"]).cut.kept()["8.weight"][1]
    blocks = (w * g).abs().sum(0).view(4, 4).sum(1).topk(2).indices.tolist()  # group norm's four groups go as wholes
    assert kept == [4 * block + i for block in sorted(blocks) for i in range(4)]
    evidence = {"8.weight": -g}
    again = prunex.prune(by_hand, X, ratio=0.5, importance="taylor", ignore=["0"], evidence=evidence)
    assert again.cut.kept()["8.weight"][1] == kept


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


def test_modules_and_names_may_be_ignored():
    for ignore in (["0"], [small_network()]):
        net = small_network()
        entry = [net[0]] if isinstance(ignore[0], nn.Module) else ignore
        pruned = prunex.prune(net, X, ratio=0.5, ignore=entry)
        assert net[0].out_channels == 8 and net[3].out_channels == 8, pruned.groups
    with pytest.raises(ValueError, match="`ignore`: got a Linear that is no part of the model"):
        prunex.prune(small_network(), X, ratio=0.5, ignore=[nn.Linear(2, 2)])
    with pytest.raises(ValueError, match="`ignore`: got '0', wanted a list"):
        prunex.prune(small_network(), X, ratio=0.5, ignore="0")


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


@pytest.mark.parametrize("options, message", [
    ({}, "wanted one of `ratio`, `macs`, `parameters`, `speed_up`, got 0"),
    ({"ratio": 0.5, "macs": 0.5}, "got 2"),
    ({"ratio": 1.5}, "`ratio` 1.5: wanted a share"),
    ({"speed_up": 0.5}, "`speed_up` 0.5: wanted 1 or more"),
    ({"ratio": 0.5, "importance": "l3"}, "`importance`: got 'l3', wanted one of l1"),
    ({"ratio": 0.5, "scope": "here"}, "`scope`: got 'here', wanted one of local"),
    ({"ratio": 0.5, "steps": 0}, "`steps`: got 0"),
    ({"ratio": 0.5, "max_ratio": 2}, "`max_ratio`"),
    ({"ratio": 0.5, "ignore": ["nothing"]}, "`ignore`"),
    ({"ratio": 0.5, "layer_ratio": {"nothing": 0.1}}, "`layer_ratio`"),
    ({"ratio": 0.5, "importance": "obdc"}, "`evidence`: got none, obdc wants"),
    ({"ratio": 0.5, "evidence": {}}, "`evidence`: l2 looks at none"),
    ({"ratio": 0.5, "importance": "hessian", "evidence": {}}, "`evidence`: got {}, wanted tensors by"),
    ({"ratio": 0.5, "importance": "hessian", "evidence": {"module.0.weight": X}}, "module.0.weight is no parameter"),
    ({"ratio": 0.5, "importance": "hessian", "evidence": {"0.weight": X}}, "got [6, 3, 8, 8] for 0.weight, wanted [8, 3,"),
    ({"macs": "50%"}, "`macs`: got '50%', wanted 0 or more"),
    ({"ratio": 0.5, "round_to": 2.0}, "`round_to`: got 2.0, wanted a whole number"),
    ({"ratio": 0.5, "round_to": 0}, "`round_to`: got 0, wanted 1 or more"),
    ({"ratio": 0.5, "seed": -1}, "`seed`: got -1"),
    ({"ratio": 0.5, "layer_ratio": [0.5]}, "`layer_ratio`: got [0.5], wanted a dictionary"),
    ({"ratio": 0.5, "layer_ratio": {"0": "half"}}, "`layer_ratio` of `0`: got 'half'"),
    ({"ratio": 0.5, "importance": None}, "`importance`: got None, wanted a name or a function"),
    ({"ratio": 0.5, "optimizer": 3}, "`optimizer`: got a int"),
    ({"ratio": 0.5, "optimizer": torch.optim.SGD(nn.Linear(2, 2).parameters())}, "it moves no parameter of the model"),
    ({"cut": 1}, "`cut`: got a int"),
])
def test_options_without_sense_are_refused_by_name(options, message):
    with pytest.raises(ValueError) as error:
        prunex.prune(small_network(), X, **options)
    assert message in str(error.value)


@pytest.mark.parametrize("model", [None, {}, 3])
def test_what_is_no_network_is_refused(model):
    with pytest.raises(ValueError, match="`model`: got a .*, wanted a torch.nn.Module"):
        prunex.prune(model, X, ratio=0.5)


class Auxiliary(nn.Module):
    """With a head that no exported graph has."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3), nn.Conv2d(16, 4, 3)
        self.aux, self.norm = nn.Conv2d(16, 4, 1), nn.BatchNorm2d(16)

    def forward(self, x):
        y = self.a(x).relu()
        out = self.c(self.norm(self.b(y)).relu())
        return (out, self.aux(y)) if self.training else out


def test_what_only_trains_keeps_what_it_reads():
    net = Auxiliary()
    mean, state = net.norm.running_mean.clone(), torch.get_rng_state()
    with pytest.warns(UserWarning, match="does not follow cuts of a, which stay whole"):
        prunex.prune(net, X, ratio=0.5)
    assert (net.a.out_channels, net.b.out_channels, net.norm.num_features) == (16, 8, 8)
    assert net.training and net.norm.running_mean.equal(mean[:8] if mean[0] == 0 else mean)
    assert torch.get_rng_state().equal(state)
    assert [out.shape[1] for out in net(X)] == [4, 4]


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


class Differences(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(15, 4)

    def forward(self, x, mask=None):
        return self.c(torch.diff(self.b(self.a(x).relu())))


def test_operations_without_a_rule_keep_what_they_touch():
    net, inputs = Differences(), (torch.randn(2, 8), None)
    reasons = {group.name: group.reason for group in prunex.groups(net, inputs)}
    assert reasons["a"] == "" and "aten::diff (node diff) has no rule" in reasons["b"]
    assert "<prunex.Group a: 16 units, inner>" in repr(prunex.groups(net, inputs))
    prunex.prune(net, inputs, ratio=0.5)
    assert (net.a.out_features, net.b.out_features) == (8, 16)
    assert net(*inputs).shape == (2, 4)


def test_files_may_not_hold_what_modules_may(tmp_path):
    torch.export.save(torch.export.export(Differences(), (torch.randn(2, 8),)), tmp_path / "net.pt2")
    with pytest.raises(ValueError, match="is not among the operations that a program from a file may hold"):
        prunex.groups(tmp_path / "net.pt2")


@pytest.mark.parametrize("name", ["resnet", "grouped"])
def test_a_cut_that_was_saved_is_made_again(name):
    def made():
        if name == "resnet":
            return torchvision.models.resnet18(num_classes=10)
        return nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3, groups=4), nn.ReLU(), nn.Conv2d(16, 4, 3))

    x = torch.randn(2, 3, 32, 32)
    net = made()
    pruned = prunex.prune(net, x, macs=0.5)
    cut = pickle.loads(pickle.dumps(pruned.cut))
    again = made()
    optimizer = torch.optim.SGD(again.parameters(), 0.1)
    same = prunex.prune(again, x, cut=cut, optimizer=optimizer)
    again.load_state_dict(net.state_dict())
    assert (same.parameters, same.macs) == (pruned.parameters, pruned.macs)
    assert again.eval()(x).equal(net.eval()(x))
    assert {id(p) for p in optimizer.param_groups[0]["params"]} == {id(p) for p in again.parameters()}
    with pytest.raises(ValueError, match="`cut`: it is of another network, with a tensor"):
        prunex.prune(small_network(), X, cut=cut)
    with pytest.raises(ValueError, match="`macs`: has no effect beside `cut`"):
        prunex.prune(made(), x, cut=cut, macs=0.5)


def test_nothing_to_cut_is_said_with_reasons():
    net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    with pytest.raises(ValueError, match="are left, wanted 24 at most .0: aten::layer_norm"):
        prunex.prune(net, torch.randn(2, 4), macs=0.5)
    with pytest.warns(UserWarning, match="nothing was cut .0: aten::layer_norm"):
        prunex.prune(net, torch.randn(2, 4), ratio=0.5)


@pytest.mark.parametrize("options, message", [
    ({"penalty": "l7"}, "`penalty`: got 'l7', wanted one of bn_scale, "),
    ({"penalty": "none"}, "`penalty`: got 'none'"),
    ({"strength": float("nan")}, "`strength`: got nan"),
    ({"strength": -1}, "`strength`: got -1"),
    ({"growth": -1}, "`growth`: got -1"),
])
def test_penalties_without_sense_are_refused_by_name(options, message):
    with pytest.raises(ValueError) as error:
        prunex.sparsify(small_network(), X, **options)
    assert message in str(error.value)
    with pytest.raises(ValueError, match="`penalty`: the network has no batch norm"):
        prunex.sparsify(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)), X, "bn_scale")
    with pytest.raises(ValueError, match="`factor`: got nan"):
        prunex.sparsify(small_network(), X)(float("nan"))


def test_groups_know_where_their_units_lie():
    groups = {group.name: group for group in prunex.groups(small_network(), X)}
    inner = groups["0"]
    assert (inner.size, inner.kind, inner.prunable) == (8, "inner", True)
    assert {(s.tensor, s.axis) for s in inner.slices} >= {("0.weight", 0), ("1.weight", 0), ("3.weight", 1)}
    assert any(not group.prunable and group.reason for group in groups.values())
    with pytest.raises(ValueError, match="`example`: got none"):
        prunex.groups(small_network())
    with pytest.raises(ValueError, match="`example`: an exported program carries its own"):
        prunex.groups(torch.export.export(small_network(), (X,)), X)


def test_penalties_are_added_to_gradients():
    net = small_network()
    penalties = prunex.sparsify(net, X, "group_lasso", strength=0.1)
    images, labels = batch(0, 1)
    nn.functional.cross_entropy(net(images), labels).backward()
    before = net[3].weight.grad.clone()
    penalties()
    # group lasso (arXiv 1901.09290): strength w / |unit|, of the unit's rows and of the units that it reads
    added = net[3].weight.grad - before
    assert (added * net[3].weight > 0).all() and not torch.equal(added, torch.zeros_like(added))
    penalties(factor=0.0)
    torch.testing.assert_close(net[3].weight.grad, before + added)
    with pytest.raises(ValueError, match="`strength`: got none"):
        prunex.sparsify(net, X, "group_lasso")
    with pytest.raises(ValueError, match="`penalty`: got 'none'"):
        prunex.sparsify(net, X, "none")


def test_sparse_training_shrinks_what_goes():
    torch.manual_seed(0)
    net, plain = small_network(), small_network()
    penalties = prunex.sparsify(net, X, "group_norm", strength=0.06)
    for model in (net, plain):
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for step in range(1, 31):
            images, labels = batch(0, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            if model is net:
                penalties()
            optimizer.step()
            if model is net and step % 10 == 0:
                penalties.refresh()

    def weakest(model):
        norms = model[3].weight.flatten(1).norm(dim=1).sort().values
        return (norms[:8].sum() / norms[8:].sum()).item()

    assert weakest(net) < 0.7 * weakest(plain)


def test_penalties_of_a_network_that_was_pruned_since_are_refused():
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    x = torch.randn(3, 4)
    penalties = prunex.sparsify(net, x, strength=0.1)
    prunex.prune(net, x, ratio=0.5)
    net(x).square().mean().backward()
    with pytest.raises(ValueError, match="they were made before it was pruned"):
        penalties()
