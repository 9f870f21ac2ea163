"""What prunex.evidence takes from batches, against the command's own and against loops."""

import json
import subprocess

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import parametrizations

import prunex
from prunex import _runs
from training import batch, small_network

X = batch(0, 0)[0]
IMAGES = 23  # three batches of seven and a rest


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A file of images and labels that the command reads."""
    draws = torch.Generator().manual_seed(3)
    path = tmp_path_factory.mktemp("images") / "images.safetensors"
    pixels = torch.randint(256, (IMAGES, 3, 8, 8), dtype=torch.uint8, generator=draws)
    save_file({"images": pixels, "labels": torch.arange(IMAGES) % 5}, path)
    return path


def batches_of(path, described_by):
    """As the command normalises them."""
    with safe_open(described_by, "pt") as file:
        said = json.loads(file.metadata()["prunex.json"])["normalization"]
    mean, std = (torch.tensor(said[name]).view(1, 3, 1, 1) for name in ("mean", "std"))
    with safe_open(path, "pt") as file:
        pixels, labels = file.get_tensor("images"), file.get_tensor("labels")
    scaled = (pixels / 255 - mean) / std
    return [(scaled[i:i + 7], labels[i:i + 7]) for i in range(0, IMAGES, 7)]


@pytest.mark.parametrize("importance", ["taylor", "hessian", "activation"])
def test_cuts_are_those_of_the_command(importance, images, tmp_path):
    net, out = small_network().eval(), tmp_path / "small"
    torch.export.save(torch.export.export(net, (X,), dynamic_shapes=({0: torch.export.Dim("n", min=1)},)),
                      tmp_path / "net.pt2")
    words = ["prune", "--model", str(tmp_path / "net.pt2"), "--dataset", str(images), "--test", str(images),
             "--importance", importance, "--ratio", "0.5", "--output", str(out), "--quiet"]
    subprocess.run([*_runs._command(), *words], check=True, stdout=subprocess.DEVNULL)
    seen = prunex.evidence(net, batches_of(images, out / "model.safetensors"), importance)
    pruned = prunex.prune(net, X, ratio=0.5, importance=importance, evidence=seen)
    kept = {name: {int(axis): places for axis, places in tensor["kept"].items()}
            for name, tensor in json.loads((out / "structure.json").read_text())["tensors"].items() if tensor["kept"]}
    assert pruned.cut.kept() == kept and kept


def test_they_are_what_their_formulas_say():
    net, (x, y) = small_network().eval(), batch(0, 1)
    net[0].weight.grad = torch.ones_like(net[0].weight)
    net[3].requires_grad_(False)
    rows = [(x[:4], y[:4]), (x[4:], y[4:])]
    mean = prunex.evidence(net, rows, "taylor")
    squares = prunex.evidence(net, rows, "hessian")
    inputs = prunex.evidence(net, rows, "activation")
    assert net[0].weight.grad.eq(1).all() and not net[3].weight.requires_grad and not net.training
    net[3].requires_grad_(True)
    params = dict(net.named_parameters())
    singles = [torch.autograd.grad(nn.functional.cross_entropy(net(x[i:i + 1]), y[i:i + 1]), list(params.values()))
               for i in range(6)]
    for place, name in enumerate(params):
        each = torch.stack([gradients[place] for gradients in singles])
        torch.testing.assert_close(mean[name], each.mean(0), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(squares[name], each.square().mean(0), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(inputs["3.weight"], net[:3](x).abs().mean((0, 2, 3)).detach())
    torch.testing.assert_close(inputs["8.weight"], net[:8](x).abs().mean(0).detach())


def test_gradients_of_few_bits_are_summed_in_many():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).bfloat16()
    x, y = torch.randn(300, 4).bfloat16(), torch.arange(300) % 3
    squares = prunex.evidence(net, [(x, y)], "hessian")
    singles = [torch.autograd.grad(nn.functional.cross_entropy(net(x[i:i + 1]), y[i:i + 1]), list(net.parameters()))
               for i in range(300)]
    for name, gradients in zip(squares, zip(*singles), strict=True):
        want = sum(gradient.double().square() for gradient in gradients) / 300
        torch.testing.assert_close(squares[name].double(), want, rtol=1e-2, atol=0)


class ByKeyword(nn.Sequential):
    def forward(self, x):
        for layer in self:
            x = layer(input=x)
        return x


def tied(net, name, other):
    net.get_submodule(name).weight = net.get_submodule(other).weight
    return net


# Modules, inputs, and for each weight the numbers of layers behind which its layers read what they read.
READERS = {
    "a head tied to the embedding": (
        tied(nn.Sequential(nn.Embedding(7, 6), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6), nn.Linear(6, 7)), "4", "0"),
        torch.tensor([2, 5]), {"0.weight": [4], "1.weight": [1], "3.weight": [3]}),
    "two layers of one weight": (
        tied(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 3)),
             "4", "2"),
        torch.randn(2, 6), {"0.weight": [0], "2.weight": [2, 4], "5.weight": [5]}),
    "a layer that makes its weight": (
        nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 3)),
        torch.randn(2, 6), {"2.weight": [2]}),
    "inputs by keyword": (
        ByKeyword(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)),
        torch.randn(2, 6), {"0.weight": [0], "2.weight": [2]}),
    "one sequence without a batch": (
        nn.Sequential(nn.Conv1d(6, 8, 3), nn.ReLU(), nn.Conv1d(8, 3, 3)),
        torch.randn(6, 9), {"0.weight": [0], "2.weight": [2]}),
}


@pytest.mark.filterwarnings("ignore:prune. nothing was cut")
@pytest.mark.parametrize("net, x, read", READERS.values(), ids=READERS)
def test_what_layers_read_is_told_by_the_names_of_their_weights(net, x, read):
    seen = prunex.evidence(net, [(x, torch.zeros(2))], "activation")
    over = 1 if isinstance(net[0], nn.Conv1d) else 0
    assert seen.keys() == read.keys()
    for name, places in read.items():
        torch.testing.assert_close(seen[name], sum(net[:place](x).detach().abs().mean(over) for place in places))
    prunex.prune(net, x, ratio=0.5, importance="activation", evidence=seen)


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(2, 3)

    def forward(self, x, y):
        return self.a(x) + self.b(y)


@pytest.mark.parametrize("importance", ["taylor", "hessian", "obdc", "activation"])
def test_empty_batches_say_nothing(importance):
    net = small_network()
    images, labels = batch(0, 0)
    want = prunex.evidence(net, [(images, labels)], importance)
    got = prunex.evidence(net, [(images, labels), (images[:0], labels[:0])], importance)
    for name, value in want.items():
        assert torch.equal(got[name], value)


def test_activations_of_another_network_are_refused():
    net = small_network()
    seen = prunex.evidence(net, [batch(0, 0)], "activation")
    prunex.prune(net, X, ratio=0.5, importance="activation", evidence=seen)
    with pytest.raises(ValueError, match="`evidence`: got that of 8 inputs for 3.weight, which reads 4"):
        prunex.prune(net, X, ratio=0.5, importance="activation", evidence=seen)


def test_of_the_first_layer_alone_nothing_else_counts():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))
    net[0].weight.requires_grad_(False)
    net(X).square().mean().backward()
    with pytest.warns(UserWarning, match="nothing was cut"):
        prunex.prune(net, X, ratio=0.5, importance="taylor", reduction="first")


def test_several_inputs_come_as_loaders_make_them():
    net, rows = Sum(), [((torch.randn(4), torch.randn(2)), i % 3) for i in range(5)]
    inputs, targets = torch.utils.data.default_collate(rows)
    assert isinstance(inputs, list)
    seen = prunex.evidence(net, [(inputs, targets)], "taylor")
    torch.testing.assert_close(seen["b.weight"], torch.autograd.grad(
        nn.functional.cross_entropy(net(*inputs), targets), net.b.weight)[0])


def test_gradients_are_taken_where_none_are_recorded():
    net = small_network()
    want = prunex.evidence(net, [batch(0, 1)], "taylor")
    with torch.no_grad():
        seen = prunex.evidence(net, [batch(0, 1)], "taylor")
    assert all(torch.equal(seen[name], value) for name, value in want.items())


def test_obdc_draws_from_the_networks_own_answers():
    net, (x, y) = small_network().eval(), batch(0, 1)
    first, again, other = (prunex.evidence(net, [(x, y)], "obdc", seed=seed)["0.weight"] for seed in (1, 1, 2))
    assert first.equal(again) and not first.equal(other)
    with torch.no_grad():
        net[8].weight.mul_(1e4)  # so sure of its answers that it draws nothing else
    sure = prunex.evidence(net, [(x, y)], "obdc")
    right = prunex.evidence(net, [(x, net(x).argmax(1))], "hessian")
    for name, value in right.items():
        torch.testing.assert_close(sure[name], value)


def test_answers_that_are_no_classes_are_refused():
    x, y = torch.randn(2, 5, 4), torch.zeros(2, dtype=torch.long)
    with pytest.raises(ValueError, match=r"`importance`: obdc draws .* \(samples, classes\), got \(1, 5, 3\)"):
        prunex.evidence(nn.Linear(4, 3), [(x, y)], "obdc")


def test_a_module_of_which_nothing_takes_part_is_refused():
    with pytest.raises(ValueError, match="`model`: it calls no layer that reads channels"):
        prunex.evidence(nn.Embedding(5, 3), [(torch.tensor([1, 2]), torch.zeros(2))], "activation")
    with pytest.raises(ValueError, match="`model`: none of its parameters takes part in the loss"):
        prunex.evidence(nn.ReLU(), [(torch.randn(2, 3), torch.zeros(2).long())], "taylor")
    with torch.inference_mode(), pytest.raises(ValueError, match="within torch.inference_mode.. there are no gradient"):
        prunex.evidence(nn.Linear(3, 2), [(torch.randn(2, 3), torch.zeros(2).long())], "taylor")


@pytest.mark.parametrize("options, message", [
    ({"importance": "l2"}, "`importance`: l2 looks at no data"),
    ({"importance": "taylor", "seed": 1}, "`seed`: has no effect with taylor"),
    ({"importance": "activation", "criterion": nn.functional.mse_loss}, "`criterion`: has no effect with activation"),
    ({"importance": "taylor", "batches": []}, "`batches`: got none"),
    ({"importance": "taylor", "batches": [X]}, "`batches`: got a Tensor, wanted pairs"),
])
def test_options_without_sense_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        prunex.evidence(small_network(), **{"batches": [batch(0, 1)], **options})
