"""train_images.py PRUNEX: photographs learnt by prunex and by stock PyTorch from the same weights and batches.

What prunex ships must score on test images what PyTorch scores with its running averages: once with the network that
PyTorch trained, once with prunex's own weights, whose statistics PyTorch then averages over training batches.
"""
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../../bench"))
import batches  # noqa: E402
from eager import make  # noqa: E402

NETWORK, SEED, BATCH, EPOCHS, RATE, WARMUP = "resnet8", 3, 50, 16, 0.1, 1


def tiles(name):
    """Images [N, 3, 32, 32] and labels of tests/data/images/NAME."""
    sheet = np.asarray(Image.open(os.path.join(HERE, "../data/images", name)))
    rows, columns = sheet.shape[0] // 32, sheet.shape[1] // 32
    images = sheet.reshape(rows, 32, columns, 32, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 3, 32, 32)
    return images, np.repeat(np.arange(10), len(images) // 10)


def write_cifar10(folder):
    for name, files in (("train.jpg", [f"data_batch_{i}.bin" for i in range(1, 6)]), ("test.jpg", ["test_batch.bin"])):
        images, labels = tiles(name)
        records = np.concatenate([labels[:, None].astype(np.uint8), images.reshape(len(images), -1)], 1)
        for file, part in zip(files, np.array_split(records, len(files))):
            part.tofile(os.path.join(folder, file))


def normalised(pixels):
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (batches.MEAN, batches.STD))
    return ((torch.from_numpy(np.ascontiguousarray(pixels)).double() / 255 - mean) / std).float()


def accuracy(model):
    images, labels = tiles("test.jpg")
    with torch.no_grad():
        return (model.eval()(normalised(images)).argmax(1) == torch.from_numpy(labels)).float().mean().item()


def rate(step, steps):
    """Of the step counted from 0: linear from 0, then half a cosine to 0."""
    warmup = WARMUP * steps / EPOCHS
    if step < warmup:
        return RATE * (step + 1) / (warmup + 1)
    return RATE * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def train_pytorch(model, drawn):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4)
    for step, (pixels, labels) in enumerate(drawn):
        optimizer.param_groups[0]["lr"] = rate(step, len(drawn))
        loss = nn.functional.cross_entropy(model.train()(normalised(pixels)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return accuracy(model)


def train_prunex(prunex, folder, initial):
    save_file(initial, f"{folder}/initial.safetensors")
    subprocess.run(
        [prunex, "train", "--dataset", "cifar10", "--data-dir", folder, "--model", NETWORK, "--strategy", "ddp",
         "--weights", f"{folder}/initial.safetensors", "--precision", "fp32", "--seed", str(SEED), "--epochs", str(EPOCHS),
         "--batch-size", str(BATCH), "--lr", str(RATE), "--warmup-epochs", str(WARMUP), "--eval-every", "0",
         "--run-dir", f"{folder}/run", "--quiet"], check=True, stdout=subprocess.DEVNULL)
    with open(f"{folder}/run/summary.json") as summary:
        return json.load(summary)["accuracy_compact"], load_file(f"{folder}/run/model.safetensors")


def with_averages(weights, drawn):
    """prunex's parameters with cumulative averages of batch norm over training batches."""
    model = make(NETWORK, 32)
    model.load_state_dict(weights)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None
    with torch.no_grad():
        for pixels, _ in drawn:
            model.train()(normalised(pixels))
    return accuracy(model)


def main():
    torch.manual_seed(SEED)
    model = make(NETWORK, 32)
    initial = {name: value.clone() for name, value in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        write_cifar10(folder)
        ours, weights = train_prunex(sys.argv[1], folder, initial)
        steps = EPOCHS * (len(tiles("train.jpg")[1]) // BATCH)
        pixels, labels = batches.draw(folder, SEED, steps, 1, BATCH)
    drawn = list(zip(pixels[:, 0], torch.from_numpy(labels[:, 0])))
    averaged, theirs = with_averages(weights, drawn[-60:]), train_pytorch(model, drawn)
    print(f"test accuracy: prunex {ours:.3f}, its weights with PyTorch's averages {averaged:.3f}, PyTorch {theirs:.3f}")
    sys.exit(abs(ours - averaged) > 0.015 or ours < theirs - 0.02)


if __name__ == "__main__":
    main()
