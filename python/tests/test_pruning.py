"""prune: modules in place, exported programs and files lose the units that matter least."""

import copy
import io
import pickle
import warnings
from pathlib import Path

import pytest
import torch
import torchvision
from torch import nn

import prunex
from layer_cases import CASES, case
from training import batch, small_network

ROOT = Path(__file__).parents[2]

X = batch(0, 0)[0]


def outputs(net, inputs):
    with torch.no_grad():
        result = net(*inputs)
    return [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]

# What the code of these does not follow: attention that knows its width, numbers of channels written into forward().
STAY_PARTLY_WHOLE = {
    "timm_attention_qkv_unbind", "mha_residual", "mha_then_packed_qkv", "mha_with_weights", "mha_cross",
    "mha_of_memory",
    "encoder_layer", "split_sizes", "slice_channels", "overlapping_slices", "batchnorm_after_concat_then_split",
    "linear_view_convtranspose",
    "pixel_shuffle_by_views", "channel_shuffle", "unbind_then_multiply", "squeeze_of_several",
    "sum_of_what_a_view_has_rectified", "other_names", "written_into",
    "split_at_positions", "split_into_five", "groups_by_image"}


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
    assert pruned.parameters[1] == sum({p.data_ptr(): p.numel() for p in pruned.model.parameters()}.values())
    before = torch.export.load(path)
    assert [str(spec) for spec in pruned.model.graph_signature.user_inputs] == [
        str(spec) for spec in before.graph_signature.user_inputs]


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x, scale=None, extra=None):
        return {"logits": self.head(self.a(x).relu()) * scale, "aux": None, "n": 4, "sum": extra["u"] + 1}


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)

    def forward(self, pair, named, *, last):
        return self.fc(sum(self.a(x) for x in (*pair, named["b"], named["a"], last)).mean((2, 3)))


def test_nested_inputs_stay_nested():
    x = torch.randn(2, 3, 6, 6)
    batch_axis = {0: torch.export.Dim("batch")}
    args, kwargs = ([x, x + 1], {"b": x + 2, "a": x + 3}), {"last": x + 4}
    shapes = ([batch_axis] * 2, {"b": batch_axis, "a": batch_axis}, batch_axis)
    exported = torch.export.export(Pairs().eval(), args, kwargs, dynamic_shapes=shapes)
    pruned = prunex.prune(exported, ratio=0.5).model
    assert torch.utils._pytree.tree_structure(pruned.example_inputs) == torch.utils._pytree.tree_structure(
        (args, kwargs))
    assert pruned.module()(*args, **kwargs).shape == (2, 4)
    pruned.run_decompositions()


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.l, self.fc = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 6), nn.Linear(6, 4)

    def forward(self, x):
        return self.fc(self.l(self.a(x).permute(0, 2, 3, 1).view(-1, 8)).view(-1, 36, 6).mean(1))


def test_products_of_channels_last_networks_run_in_stock_pytorch():
    net = Rows().eval().to(memory_format=torch.channels_last)
    exported = torch.export.export(net, (torch.randn(2, 3, 6, 6),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert prunex.prune(exported, ratio=0.5).model.module()(torch.randn(3, 3, 6, 6)).shape == (3, 4)


def test_exported_programs_are_called_as_before(tmp_path):
    """With keywords, nested inputs, and outputs of which some are no tensors."""
    x, keywords = torch.randn(2, 4), {"scale": torch.ones(1), "extra": {"u": torch.ones(2, 3)}}
    pruned = prunex.prune(torch.export.export(Nested(), (x,), kwargs=keywords), ratio=0.5)
    torch.export.save(pruned.model, tmp_path / "net.pt2")
    for program in (pruned.model, torch.export.load(tmp_path / "net.pt2")):
        answer = program.module()(x, **keywords)
        assert list(answer) == ["logits", "aux", "n", "sum"] and answer["aux"] is None and answer["n"] == 4
        assert answer["logits"].shape == (2, 3) and torch.equal(answer["sum"], torch.full((2, 3), 2.0))


class Sizes(Nested):
    def forward(self, x):
        return {"rows": x.shape[0], "logits": self.head(self.a(x).relu()), "twice": 2 * x.shape[0]}


def test_sizes_that_are_given_out_stay(tmp_path):
    shapes = ({0: torch.export.Dim("batch")},)
    pruned = prunex.prune(torch.export.export(Sizes(), (torch.randn(2, 4),), dynamic_shapes=shapes), ratio=0.5)
    torch.export.save(pruned.model, tmp_path / "net.pt2")
    for program in (pruned.model, torch.export.load(tmp_path / "net.pt2")):
        answer = program.module()(torch.randn(5, 4))
        assert list(answer) == ["rows", "logits", "twice"] and (answer["rows"], answer["twice"]) == (5, 10)
        assert answer["logits"].shape == (5, 3)


class Labelled(Nested):
    def forward(self, x):
        return {"logits": self.head(self.a(x).relu()), "of": "a network"}


def test_outputs_that_no_file_gives_back_are_refused():
    with pytest.raises(ValueError, match="gives out something as_string that torch.export.load does not read"):
        prunex.prune(torch.export.export(Labelled(), (torch.randn(2, 4),)), ratio=0.5)


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


def test_heads_go_where_there_are_as_many_as_features_in_each():
    layer = nn.TransformerEncoderLayer(16, 4, 8, batch_first=True)
    program = torch.export.export(layer, (torch.randn(2, 5, 16),))
    heads = {group.name: group for group in prunex.groups(program, heads=True)}["self_attn"]
    rows = next(s for s in heads.slices if s.tensor == "self_attn.in_proj_weight")
    assert heads.size == 4 and heads.positions(rows)[:4] == [0, 1, 2, 3]
    kept = prunex.prune(program, ratio=0.5, heads=True).cut.kept()["self_attn.out_proj.weight"][1]
    assert len(kept) == 8 and all(kept[i] % 4 == i % 4 for i in range(8))


def test_modules_and_names_may_be_ignored():
    for ignore in (["0"], [small_network()]):
        net = small_network()
        entry = [net[0]] if isinstance(ignore[0], nn.Module) else ignore
        pruned = prunex.prune(net, X, ratio=0.5, ignore=entry)
        assert net[0].out_channels == 8 and net[3].out_channels == 8, pruned.groups
    with pytest.raises(ValueError, match="`ignore`: got a Linear that is no part of the model"):
        prunex.prune(small_network(), X, ratio=0.5, ignore=[nn.Linear(2, 2)])
    with pytest.raises(ValueError, match="`ignore`: got a ReLU, 2, which has no weights"):
        prunex.prune(net, X, ratio=0.5, ignore=[net[2]])
    with pytest.raises(ValueError, match="`ignore`: got '0', wanted a list"):
        prunex.prune(small_network(), X, ratio=0.5, ignore="0")


def test_a_module_stands_for_the_layers_in_it_that_make_channels():
    net = nn.Sequential(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3), nn.PReLU(8)),
                        nn.Conv2d(8, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 1))
    prunex.prune(net, X, ratio=0.5, ignore=[net[0]])
    assert (net[0][0].out_channels, net[0][2].out_channels, net[1].out_channels) == (8, 8, 3)
    with pytest.raises(ValueError, match="`ignore`: got a BatchNorm2d, 0.1, which makes no channels"):
        prunex.prune(net, X, ratio=0.5, ignore=[net[0][1]])


def test_a_layer_that_makes_its_weight_may_be_ignored():
    net = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3)), nn.ReLU(), nn.Conv2d(8, 6, 3),
                        nn.ReLU(), nn.Conv2d(6, 4, 3))
    prunex.prune(net, X, ratio=0.5, ignore=[net[0]])
    assert (net[0].out_channels, net[2].out_channels) == (8, 3)


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
    ({"ratio": 0.5, "importance": "hessian", "evidence": {"0.weight": X}},
     "got [6, 3, 8, 8] for 0.weight, wanted [8, 3,"),
    ({"macs": "50%"}, "`macs`: got '50%', wanted 0 or more"),
    ({"ratio": 0.5, "round_to": 2.0}, "`round_to`: got 2.0, wanted a whole number"),
    ({"ratio": 0.5, "round_to": 0}, "`round_to`: got 0, wanted 1 or more"),
    ({"ratio": 0.5, "seed": -1}, "`seed`: got -1"),
    ({"ratio": 0.5, "seed": 1}, "`seed`: has no effect with l2"),
    ({"ratio": 0.5, "heads": True}, "`heads`: the exported module has no attention of several heads"),
    ({"ratio": 0.5, "layer_ratio": [0.5]}, "`layer_ratio`: got [0.5], wanted a dictionary"),
    ({"ratio": 0.5, "layer_ratio": {"0": "half"}}, "`layer_ratio` of `0`: got 'half'"),
    ({"ratio": 0.5, "importance": None}, "`importance`: got None, wanted a name or a function"),
    ({"ratio": 0.5, "optimizer": 3}, "`optimizer`: got a int"),
    ({"ratio": 0.5, "optimizer": torch.optim.SGD(nn.Linear(2, 2).parameters())}, "it moves no parameter of the model"),
    ({"cut": 1}, "`cut`: got a int"),
    ({"ratio": 0.5, "importance": "random", "reduction": "max"}, "`reduction`: has no effect beside random scores"),
    ({"ratio": 0.5, "importance": "random", "normalizer": "max", "scope": "global"}, "`normalizer`: has no effect"),
    ({"ratio": 0.5, "importance": "bn_scale", "reduction": "first"}, "`reduction`: got first, but the layer that makes"),
    ({"ratio": 0.5, "reduction": "frist"}, "`reduction`: got 'frist', wanted one of mean, sum, max"),
])
def test_options_without_sense_are_refused_by_name(options, message):
    with pytest.raises(ValueError) as error:
        prunex.prune(small_network(), X, **options)
    assert message in str(error.value)


@pytest.mark.parametrize("model", [None, {}, 3])
def test_what_is_no_network_is_refused(model):
    with pytest.raises(ValueError, match="`model`: got a .*, wanted a torch.nn.Module"):
        prunex.prune(model, X, ratio=0.5)


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
    for idle in ({"macs": 0.5}, {"importance": "l1"}, {"ignore": ["0"]}, {"round_to": 8}):
        with pytest.raises(ValueError, match=f"`{next(iter(idle))}`: has no effect beside `cut`"):
            prunex.prune(made(), x, cut=cut, **idle)
    third = made()
    prunex.prune(third, x, cut=torch.load(saved(cut.values()), weights_only=True))
    third.load_state_dict(net.state_dict())
    assert third.eval()(x).equal(net.eval()(x))


def saved(values):
    file = io.BytesIO()
    torch.save(values, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("cut, message", [
    ({"tensors": {}}, "`cut`: a dictionary that is not a cut's values"),
    ({"tensors": {"0.weight": 3}, "groups": {}}, "`cut`: a dictionary that is not a cut's values"),
    (3, "`cut`: got a int, wanted that of a Pruned or of a strategy, its values.., or the path of a structure.json"),
])
def test_what_is_no_cut_is_refused(cut, message):
    with pytest.raises(ValueError, match=message):
        prunex.prune(small_network(), X, cut=cut)


def test_a_cut_that_attention_does_not_follow_is_refused_with_what_does():
    net, inputs = case("mha_residual")
    cut = prunex.prune(torch.export.export(net.eval(), inputs), ratio=0.5).cut
    with pytest.raises(ValueError, match="does not follow .*; nn.MultiheadAttention follows none: prune the exported"):
        prunex.prune(net, inputs, cut=cut)


def test_a_file_that_is_no_structure_is_refused(tmp_path):
    (tmp_path / "structure.json").write_text("{}")
    with pytest.raises(ValueError, match="`cut` .*structure.json: no structure of a pruned network"):
        prunex.prune(small_network(), X, cut=tmp_path)
    with pytest.raises(ValueError, match="`heads`: has no effect beside `cut`"):
        prunex.prune(small_network(), X, cut=tmp_path, heads=True)
    with pytest.raises(FileNotFoundError):
        prunex.prune(small_network(), X, cut=tmp_path / "none.json")


def test_nothing_to_cut_is_said_with_reasons():
    net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    with pytest.raises(ValueError, match="are left, wanted 24 at most .0: aten::layer_norm"):
        prunex.prune(net, torch.randn(2, 4), macs=0.5)
    with pytest.warns(UserWarning, match="nothing was cut .0: aten::layer_norm"):
        prunex.prune(net, torch.randn(2, 4), ratio=0.5)
