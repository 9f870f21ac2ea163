#!/usr/bin/env python3
"""Ways to lose less by rare exchanges, in plain PyTorch: which of them would pay if prunex had it?

usage: bench/outer_trials.py DATA_DIR RESULT.jsonl [--seeds 12] [--only NAME,NAME] [--table]

Two replicas in one process train ResNet-8 on 16,000 images of CIFAR-10, 32 images each per step, for 8 epochs = 2,000
steps, and exchange as DiLoCo in 2 bits does (docs/strategies.md): the change since the last common z in blocks of 128
values and four levels, what rounding leaves out kept for the next exchange. A variant changes one thing; a seed has the
same first weights and the same images for all of them. Results are appended seed by seed, and a run that is there is not
repeated. --table prints the mean differences to `base` with their 95 % confidence intervals.
"""
import argparse
import copy
import json
import math
import os
import statistics

import torch
from torch import nn

from batches import read_cifar10
from eager import make
from pytorch_accuracy import accuracy, augmented, normalised, with_initial_weights

IMAGES, BATCH, EPOCHS, RATE, BLOCK = 16000, 32, 8, 0.2, 128
STEPS = IMAGES * EPOCHS // (2 * BATCH)
SPACING = 0.9957  # of four levels, in root mean squares: the best for a normal distribution (Max, 1960)
VARIANTS = {
    "ddp": {"every": 1},
    "base": {},
    "fp32": {"bits": 32},
    "H 20": {"every": 20},
    "fp32 at H 5": {"bits": 32, "every": 5, "outer": (1, 0)},
    "fp32 at H 5 and outer 1 / 0.5": {"bits": 32, "every": 5},
    "fp32 at H 20": {"bits": 32, "every": 20},
    "1 bit at H 20": {"bits": 1, "every": 20},
    "1 bit at H 20 and outer 1 / 0.3": {"bits": 1, "every": 20, "outer": (1, 0.3)},
    "last exchange fp32": {"last": 32},
    "mean of the last 5 z": {"mean_of": 5},
    "outer 1 / 0": {"outer": (1, 0)},
    "outer 1 / 0.3": {"outer": (1, 0.3)},
    "outer 1 / 0.7": {"outer": (1, 0.7)},
    "outer 1.5 / 0.3": {"outer": (1.5, 0.3)},
    "outer 0.7 / 0.8": {"outer": (0.7, 0.8)},
    "momentum reset": {"momentum": "reset"},
    "momentum averaged": {"momentum": "average"},
    "momentum of z": {"momentum": "of z"},
    "rate 0.1": {"rate": 0.1},
    "ddp at rate 0.1": {"every": 1, "rate": 0.1},
    "batch norm fixed in the last third": {"fixed_from": 2 / 3},
    "H 20 for a fifth then 53": {"schedule": (0.2, 20, 53)},
    "H 53 for four fifths then 20": {"schedule": (0.8, 53, 20)},
    "alternating flip": {"flip": "alternating"},
    "1/32 of the values at H 5": {"every": 5, "share": 1 / 32, "outer": (1, 0)},
    "1/32 at H 5 and vectors at H 40": {"every": 5, "share": 1 / 32, "outer": (1, 0), "vectors": 8},
    "1/32 at H 5 and outer 1 / 0.5": {"every": 5, "share": 1 / 32, "outer": (1, 0.5)},
    "1/16 at H 10": {"every": 10, "share": 1 / 16, "outer": (1, 0), "vectors": 4},
    "1/8 of the values at H 15": {"every": 15, "share": 1 / 8, "outer": (1, 0)},
    "1/32 at H 5 both ways": {"every": 5, "share": 1 / 32, "outer": (1, 0), "again": True},
    "2 of 128 at H 5": {"every": 5, "of_128": 2, "outer": (1, 0)},
    "4 of 128 at H 7": {"every": 7, "of_128": 4, "outer": (1, 0)},
    "8 of 128 at H 12": {"every": 12, "of_128": 8, "outer": (1, 0)},
    "4 of 128 at H 7 and outer 1 / 0.3": {"every": 7, "of_128": 4, "outer": (1, 0.3)},
    "4 of 128 at H 7 with whole residues": {"every": 7, "of_128": 4, "outer": (1, 0), "decay": 1},
}


def annealed(step):
    warmup = 0.5 * STEPS / EPOCHS
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (STEPS - warmup)))


def flipped(images, numbers, epoch, how, coins):
    """Mirrored by a coin per image and epoch, or in every other epoch, by one coin per image (2404.00498)."""
    mirror = torch.rand(len(images)) < 0.5
    if how == "alternating":
        mirror = (coins[numbers] + epoch) % 2 == 1
    return torch.where(mirror.view(-1, 1, 1, 1), images.flip(3), images)


def rounded(values, bits):
    """To four levels per block of 128; in one bit to the mean magnitude with the sign."""
    blocks = nn.functional.pad(values, (0, -len(values) % BLOCK)).view(-1, BLOCK)
    if bits == 1:
        levels = blocks.abs().mean(1, keepdim=True)
        return torch.where(blocks < 0, -levels, levels).view(-1)[: len(values)]
    spacing = SPACING * blocks.square().mean(1, keepdim=True).sqrt().clamp(min=1e-30)
    return (((blocks / spacing).floor().clamp(-2, 1) + 0.5) * spacing).view(-1)[: len(values)]


def largest(values, share):
    """The largest values, with the two magnitudes that are the means of their smaller and their larger half."""
    magnitudes, places = values.abs().topk(max(2, int(share * len(values))))
    half = len(places) // 2
    levels = torch.cat([magnitudes[:half].mean().expand(half), magnitudes[half:].mean().expand(len(places) - half)])
    return torch.zeros_like(values).index_put((places,), levels * values[places].sign())


def largest_of_blocks(values, count):
    """The largest of every block of 128, their mean magnitude with their signs."""
    blocks = nn.functional.pad(values, (0, -len(values) % BLOCK)).view(-1, BLOCK)
    magnitudes, places = blocks.abs().topk(count, dim=1)
    sent = magnitudes.mean(1, keepdim=True) * blocks.gather(1, places).sign()
    return torch.zeros_like(blocks).scatter(1, places, sent).view(-1)[: len(values)]


class Exchange:
    """Of matrices' values as one vector; vectors are exact, batch norm's statistics stay."""

    def __init__(self, models, options):
        self.parameters = [[p for p in model.parameters() if p.dim() > 1] for model in models]
        self.vectors = [[p for p in model.parameters() if p.dim() == 1] for model in models]
        self.options, self.z, self.z_vectors = options, self.flat(self.parameters[0]), self.flat(self.vectors[0])
        self.residues = [torch.zeros_like(self.z) for _ in range(3)]  # of the two nodes' messages, of the mean
        self.momenta = [torch.zeros_like(self.z), torch.zeros_like(self.z_vectors)]
        self.count = 0

    @staticmethod
    def flat(tensors):
        return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])

    @staticmethod
    def unflatten(values, tensors):
        for tensor, part in zip(tensors, values.split([tensor.numel() for tensor in tensors])):
            tensor.data.copy_(part.view_as(tensor))

    def compressed(self, values, bits):
        if "of_128" in self.options:
            return largest_of_blocks(values, self.options["of_128"])
        return largest(values, self.options["share"]) if "share" in self.options else rounded(values, bits)

    def message(self, which, values, bits, part=slice(None)):
        if bits == 32:
            return values
        sparse = "of_128" in self.options or "share" in self.options
        decay = self.options.get("decay", 0.95 if sparse else 1)  # SparseLoCo, 2508.15706
        due = values + decay * self.residues[which][part]
        sent = self.compressed(due, bits)
        self.residues[which][part] = due - sent
        return sent

    def mean_change(self, bits):
        changes = [self.flat(parameters) - self.z for parameters in self.parameters]
        if "share" in self.options and "again" not in self.options:  # everyone's message goes to all
            return sum(self.message(node, change, bits) for node, change in enumerate(changes)) / 2
        half = len(self.z) // 2  # node 0 adds up the first half, node 1 the second; own values do not travel
        first, second = slice(0, half), slice(half, None)
        summed = torch.cat([changes[0][first] + self.message(1, changes[1][first], bits, first),
                            changes[1][second] + self.message(0, changes[0][second], bits, second)]) / 2
        return torch.cat([self.message(2, summed[part], bits, part) for part in (first, second)])

    def __call__(self, last):
        bits = self.options.get("last", 2) if last else self.options.get("bits", 2)
        lr, mu = self.options.get("outer", (1, 0.5))
        self.count += 1
        self.change = self.mean_change(bits)
        self.z = self.z + self.outer_step(0, self.change, lr, mu)
        for parameters in self.parameters:
            self.unflatten(self.z, parameters)
        if self.count % self.options.get("vectors", 1) == 0 or last:
            change = sum(self.flat(vectors) for vectors in self.vectors) / 2 - self.z_vectors
            self.z_vectors = self.z_vectors + self.outer_step(1, change, lr, mu)
            for vectors in self.vectors:
                self.unflatten(self.z_vectors, vectors)

    def outer_step(self, which, change, lr, mu):
        self.momenta[which] = mu * self.momenta[which] + change
        return lr * (change + mu * self.momenta[which])


def due(step, options):
    if "schedule" in options:
        share, first, then = options["schedule"]
        begin = int(share * STEPS)
        return step % first == 0 if step <= begin else (step - begin) % then == 0
    return step % options.get("every", 40) == 0


@torch.no_grad()
def estimate_statistics(model, images):
    """Batch norm's, from these images, as prunex ships them."""
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    for part in augmented(images).split(128):
        model(part)
    for norm in norms:
        norm.momentum = 0.1


def at_exchange(models, optimizers, how, exchange, rates):
    """The momentum with which the next steps begin. "of z", for matrices: what would have moved z as it did at these
    rates, which costs no message."""
    buffers = [[optimizer.state[p]["momentum_buffer"] for p in model.parameters()]
               for model, optimizer in zip(models, optimizers)]
    if how == "of z":
        for buffer in buffers:
            exchange.unflatten(-exchange.change / rates, [tensor for tensor in buffer if tensor.dim() > 1])
        return
    for one, other in zip(*buffers):
        mean = torch.zeros_like(one) if how == "reset" else (one + other) / 2
        one.copy_(mean)
        other.copy_(mean)


def local_step(model, images, labels):
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(images.contiguous(memory_format=torch.channels_last))
    nn.functional.cross_entropy(logits.float(), labels).backward()


def train(options, seed, images, labels):
    torch.manual_seed(seed)
    models = [with_initial_weights(make("resnet8"))]
    models.append(copy.deepcopy(models[0]))
    optimizers = [torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4) for model in models]
    exchange, kept, coins, fixed = Exchange(models, options), [], torch.randint(2, (len(images),)), False
    averages_gradients, rates = options.get("every") == 1, 0
    for step in range(STEPS):
        epoch, place = divmod(step * 2 * BATCH, IMAGES)
        if place == 0:
            order = torch.randperm(IMAGES)
        numbers = order[place: place + 2 * BATCH]
        batch = flipped(augmented(images[numbers], mirrors=False), numbers, epoch, options.get("flip"), coins)
        if step >= options.get("fixed_from", 2) * STEPS and not fixed and due(step, options):
            fixed = True
            with torch.random.fork_rng():
                for model in models:
                    estimate_statistics(model, images[:1024])
        now = options.get("rate", RATE) * annealed(step)
        rates += now
        for model, optimizer, part, answers in zip(models, optimizers, batch.split(BATCH), labels[numbers].split(BATCH)):
            model.train(not fixed)
            optimizer.param_groups[0]["lr"] = now
            optimizer.zero_grad()
            local_step(model, part, answers)
        if averages_gradients:
            for one, other in zip(models[0].parameters(), models[1].parameters()):
                one.grad = other.grad = (one.grad + other.grad) / 2
        for optimizer in optimizers:
            optimizer.step()
        if not averages_gradients and (due(step + 1, options) or step + 1 == STEPS):
            exchange(last=step + 1 == STEPS)
            if options.get("momentum"):
                at_exchange(models, optimizers, options["momentum"], exchange, rates)
            rates = 0
            kept = (kept + [(exchange.z, exchange.z_vectors)])[-options.get("mean_of", 1):]
    if len(kept) > 1:
        exchange.unflatten(sum(z for z, _ in kept) / len(kept), exchange.parameters[0])
        exchange.unflatten(sum(vectors for _, vectors in kept) / len(kept), exchange.vectors[0])
    estimate_statistics(models[0], images[:1024])
    return models[0]


def table(rows):
    base = {row["seed"]: row["accuracy"] for row in rows if row["variant"] == "base"}
    print("| variant | seeds | accuracy | points to base |\n|---|---|---|---|")
    for name in VARIANTS:
        mine = {row["seed"]: row["accuracy"] for row in rows if row["variant"] == name}
        gaps = [100 * (mine[seed] - base[seed]) for seed in sorted(mine) if seed in base]
        if not gaps:
            continue
        text = f"{statistics.mean(gaps):+.2f}" if name != "base" else ""
        if len(gaps) >= 4 and text:
            text += f" ± {quantile(len(gaps) - 1) * statistics.stdev(gaps) / math.sqrt(len(gaps)):.2f}"
        print(f"| {name} | {len(gaps)} | {100 * statistics.mean(mine.values()):.2f} % | {text.replace('-', '−')} |")


def quantile(degrees):
    """Student's t, 97.5 %, by Cornish and Fisher's expansion: to 0.01 from 3 degrees of freedom on."""
    z = 1.959964
    terms = (z, (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96,
             (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
             (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160)
    return sum(term / degrees**power for power, term in enumerate(terms))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_dir")
    parser.add_argument("result")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--only", default=",".join(VARIANTS))
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    rows = [json.loads(line) for line in open(options.result)] if os.path.exists(options.result) else []
    if options.table:
        return table(rows)
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(VARIANTS):
        parser.error(f"--only: got {', '.join(sorted(unknown))}, wanted of {', '.join(VARIANTS)}")
    pixels, labels = read_cifar10(options.data_dir)
    images, labels = normalised(pixels[:IMAGES]), torch.from_numpy(labels[:IMAGES])
    test_pixels, test_labels = read_cifar10(options.data_dir, ["test_batch.bin"])
    test = normalised(test_pixels), torch.from_numpy(test_labels)
    for seed in range(options.seeds):
        for name in chosen:
            if any(row["variant"] == name and row["seed"] == seed for row in rows):
                continue
            row = {"variant": name, "seed": seed, "accuracy": accuracy(train(VARIANTS[name], seed, images, labels), *test)}
            with open(options.result, "a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
