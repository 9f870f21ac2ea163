"""What prunex.evidence takes from batches, against the command's own and against loops."""

import json
import subprocess

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

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
