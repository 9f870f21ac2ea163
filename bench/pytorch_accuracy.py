#!/usr/bin/env python3
"""Test accuracy of ResNet-20 on CIFAR-10 in plain PyTorch, by the recipe of compare/converged.toml.

usage: bench/pytorch_accuracy.py DATA_DIR [--epochs 30] [--seed 0]        DATA_DIR holds data_batch_1.bin …

One process, 128 images per step: SGD with momentum 0.9 and weight decay 5e-4, linear warm-up over one epoch to 0.2, then
cosine; crops of images padded by 4, flips; bf16 where autocast uses it; batch norm's running averages. torchvision's
initial weights. What prunex's `ddp` is held against in docs/results.md.
"""
import argparse
import math
import os
import sys

import torch
from torch import nn

from batches import MEAN, STD, read_cifar10
from eager import make

BATCH = 128


def normalised(pixels):
    mean, std = (torch.tensor(values, dtype=torch.float32).view(3, 1, 1) for values in (MEAN, STD))
    return (torch.from_numpy(pixels).float() / 255 - mean) / std


def augmented(images, mirrors=True):
    """Every image shifted by up to 4 pixels, zeros moving in, and mirrored or not."""
    padded, count, device = nn.functional.pad(images, (4, 4, 4, 4)), len(images), images.device
    top, left = torch.randint(9, (2, count, 1, 1)).to(device)
    column = torch.arange(32, device=device).expand(count, 1, 32)
    if mirrors:
        column = torch.where(torch.rand(count, 1, 1).to(device) < 0.5, column, 31 - column)
    row = torch.arange(32, device=device).view(1, 32, 1)
    picked = padded.permute(0, 2, 3, 1)[torch.arange(count, device=device).view(-1, 1, 1), top + row, left + column]
    return picked.permute(0, 3, 1, 2)


def with_initial_weights(model):
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return model.to(memory_format=torch.channels_last)


def save(what, path):
    torch.save(what, f"{path}.part")
    os.replace(f"{path}.part", path)


def train(model, images, labels, epochs, rate=0.2, warmup=1, weight_decay=5e-4, penalty=None, end_of_epoch=None,
          checkpoint=None):
    """Linear warm-up over so many epochs, then cosine. `penalty(model)` adds to the gradients of every step. With a file
    `checkpoint`, which every epoch writes, it goes on where it was stopped."""
    steps = len(images) // BATCH
    rising, falling = warmup * steps, (epochs - warmup) * steps
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=weight_decay)

    def share(step):
        return (step + 1) / rising if step < rising else (1 + math.cos(math.pi * (step - rising) / falling)) / 2

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
    state, begin = {"model": model, "optimizer": optimizer, "schedule": schedule}, 0
    if checkpoint and os.path.exists(checkpoint):
        saved = torch.load(checkpoint)
        for name, part in state.items():
            part.load_state_dict(saved[name])
        torch.set_rng_state(saved["generator"])
        begin = saved["epochs"]
    model.train()
    for epoch in range(begin, epochs):
        for batch in torch.randperm(len(images))[: steps * BATCH].view(steps, BATCH).to(images.device):
            with torch.autocast(images.device.type, torch.bfloat16):
                logits = model(augmented(images[batch]).contiguous(memory_format=torch.channels_last))
            loss = nn.functional.cross_entropy(logits.float(), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            if penalty:
                penalty(model)
            optimizer.step()
            schedule.step()
        if end_of_epoch:
            end_of_epoch()
        if checkpoint:
            parts = {name: part.state_dict() for name, part in state.items()}
            save({"epochs": epoch + 1, "generator": torch.get_rng_state(), **parts}, checkpoint)
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}", file=sys.stderr, flush=True)


@torch.no_grad()
def accuracy(model, images, labels):
    model.eval()
    right = sum((model(part).argmax(1) == answers).sum().item()
                for part, answers in zip(images.split(500), labels.split(500)))
    return right / len(images)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_dir")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    model = with_initial_weights(make("resnet20"))
    images, labels = read_cifar10(options.data_dir)
    train(model, normalised(images), torch.from_numpy(labels), options.epochs)
    images, labels = read_cifar10(options.data_dir, ["test_batch.bin"])
    right = accuracy(model, normalised(images), torch.from_numpy(labels))
    print(f"seed {options.seed}: test accuracy {right:.4f}")


if __name__ == "__main__":
    main()
