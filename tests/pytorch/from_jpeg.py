"""from_jpeg.py PRUNEX FOLDER: from the bytes of JPEG files to logits by what the product says of its images.

A short run on coloured images of one's own leaves model.pt2. Stock PyTorch decodes JPEGs, normalises by the numbers in
that file alone and runs the module; `prunex predict` gets the same pixels. Then the other way: a file that stock
PyTorch wrote with such numbers, for `prunex predict`, and one without."""
import io
import json
import subprocess
import sys

import numpy
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

prunex, folder = sys.argv[1:]


def run(*words, status=0):
    result = subprocess.run([prunex, *words], cwd=folder, text=True, capture_output=True)
    assert result.returncode == status, f"{words}: {result.returncode} {result.stdout} {result.stderr}"
    return result.stderr


def image(seed):
    """Smooth, of a colour of its own."""
    waves = numpy.random.default_rng(seed).uniform(0.05, 0.4, (3, 2))
    y, x = numpy.mgrid[0:32, 0:32]
    channels = [127 + (80 + 20 * c) * numpy.sin(waves[c, 0] * x + waves[c, 1] * y + seed) for c in range(3)]
    return numpy.stack(channels, 2).clip(0, 255).astype(numpy.uint8)


def decoded_jpeg(seed):
    file = io.BytesIO()
    Image.fromarray(image(seed)).save(file, "JPEG", quality=80)
    pixels = numpy.array(Image.open(io.BytesIO(file.getvalue())).convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1)


def save_images(name, seeds):
    images = torch.stack([torch.from_numpy(image(seed)).permute(2, 0, 1) for seed in seeds]).contiguous()
    save_file({"images": images, "labels": torch.tensor([seed % 3 for seed in seeds])}, f"{folder}/{name}")


def predicted(model, pixels):
    save_file({"input": pixels}, f"{folder}/input.safetensors")
    run("predict", "--model", model, "--input", "input.safetensors", "--output", "output.safetensors")
    return load_file(f"{folder}/output.safetensors")["output"]


def normalised(pixels, numbers):
    mean, std = (torch.tensor(numbers[key]).view(-1, 1, 1) for key in ("mean", "std"))
    return (pixels / 255 - mean) / std


def check_same(got, wanted):
    assert (wanted[0] - wanted[1]).abs().max() > 1e-3, "the logits are the same for all images"
    assert (got - wanted).abs().max() <= 1e-5 * max(1, wanted.abs().max()), f"{got}\n{wanted}"


save_images("train.safetensors", range(96))
save_images("test.safetensors", range(100, 120))
run("train", "--dataset", "train.safetensors", "--test", "test.safetensors", "--model", "resnet8", "--exchanges", "4",
    "--local-steps", "2", "--batch-size", "16", "--precision", "fp32", "--run-dir", "run")

extra = {"prunex.json": ""}
net = torch.export.load(f"{folder}/run/model.pt2", extra_files=extra).module()
said = json.loads(extra["prunex.json"])
train = load_file(f"{folder}/train.safetensors")["images"].double() / 255
assert torch.allclose(torch.tensor(said["normalization"]["mean"]).double(), train.mean((0, 2, 3)))
assert torch.allclose(torch.tensor(said["normalization"]["std"]).double(), train.std((0, 2, 3), correction=0))

pixels = torch.stack([decoded_jpeg(seed) for seed in (200, 201, 202)]).contiguous()
with torch.no_grad():
    wanted = net(normalised(pixels, said["normalization"]))
check_same(predicted("run/model.pt2", pixels), wanted)
check_same(predicted("run/model.pt2", normalised(pixels, said["normalization"])), wanted)

with safe_open(f"{folder}/run/model.safetensors", "pt") as weights:
    assert json.loads(weights.metadata()["prunex.json"]) == said
with open(f"{folder}/run/summary.json") as summary:
    summary = json.load(summary)
assert summary["normalization"] == said["normalization"] and summary["classes"] == ["0", "1", "2"], summary

stock = torch.export.load(f"{folder}/run/model.pt2")
numbers = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}
torch.export.save(stock, f"{folder}/stock.pt2", extra_files={"prunex.json": json.dumps({"normalization": numbers})})
torch.export.save(stock, f"{folder}/bare.pt2")
with torch.no_grad():
    check_same(predicted("stock.pt2", pixels), net(normalised(pixels, numbers)))
errors = run("predict", "--model", "bare.pt2", "--input", "input.safetensors", "--output", "o.safetensors", status=2)
assert "bare.pt2 does not say how pixels are normalised: wanted --mean and --std" in errors, errors
