#!/usr/bin/env python3
"""Sparse training, cuts and fine-tuning of a trained ResNet-20 on CIFAR-10: prunex, and Torch-Pruning's own code.

usage: bench/sparse_training.py PRUNEX DATA_DIR OUTPUT [--seeds 0 1 2] [--only TOOL:METHOD …] [--device cuda]
       bench/sparse_training.py … [--device cuda] --table

    bench/sparse_training.py build/release/prunex data runs/sparse --only prunex:group_norm torch-pruning:group_norm

The interpreter needs torch and safetensors, for rows of Torch-Pruning torch-pruning 1.6.1. Every seed trains a network
with `prunex train` (30 epochs at 0.2, warm-up of one, cosine; one rank, 128 images per step). From it both tools, on
the same schedule: sparse training with the tool's usual strength, without weight decay; global cuts to 2.11 times fewer
multiply-accumulates; fine-tuning. Both phases have as many epochs and anneal by cosine from their own rate; l1, which
has no penalty, fine-tunes for both. Torch-Pruning's penalties and cuts are called as its reproduce/main.py does, up to
400 steps; prunex cuts in 100. bf16 arithmetic. Accuracies are of all test images, and none is chosen: the last model,
with running averages there, with statistics estimated from training images here.

OUTPUT/result.jsonl gets a line per run of one schedule; what is there is not repeated, and a run that was stopped goes
on. --table prints means over seeds.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import warnings

import torch
from torch import nn

from batches import read_cifar10
from eager import make
from kept import one_set
from pytorch_accuracy import BATCH, accuracy, normalised, save, train

SPEED_UP, SPARSE_RATE, FINETUNE_RATE = 2.11, 0.1, 0.05
OF_PRUNEX = {  # how it scores: as Torch-Pruning's pruners below
    "group_norm": ["--importance", "group_norm", "--normalizer", "max"],
    "bn_scale": ["--importance", "bn_scale"],
    "growing": ["--importance", "group_norm"],
    "l1": ["--importance", "l1"],
}
TOOLS = ("prunex", "torch-pruning")


def folder_of(options, seed, name):
    return f"{options.output}/{options.device}/{seed}/{name}"


def run_prunex(options, seed, name, words):
    folder = folder_of(options, seed, name)
    if not os.path.exists(f"{folder}/summary.json"):
        command = [options.prunex, "train", "--dataset", "cifar10", "--data-dir", options.data_dir, "--model",
                   "resnet20", "--strategy", "ddp", "--nodes", "1", "--batch-size", str(BATCH), "--local-steps", "50",
                   "--eval-every", "0", "--checkpoint-every", "20", "--seed", str(seed), "--train-limit",
                   str(options.images), "--precision", "bf16", "--quiet", *words, "--device", options.device,
                   "--run-dir", folder]
        if os.path.isdir(f"{folder}/checkpoint"):
            command = [options.prunex, "train", "--resume", folder, "--quiet"]
        else:  # it ended before its first checkpoint
            shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(f"{folder}/summary.json") as file:
        return json.load(file)


def trained(options, seed):
    """Its weights, and its test accuracy."""
    summary = run_prunex(options, seed, "trained",
                         ["--epochs", str(options.trained_epochs), "--lr", "0.2", "--warmup-epochs", "1"])
    return f"{folder_of(options, seed, 'trained')}/model.safetensors", summary["accuracy"]


def of_prunex(options, seed, method, weights):
    words = ["--epochs", "0", "--weights", weights, "--prune-to", f"speed-up={SPEED_UP}", "--prune-steps", "100",
             "--prune-every", "0", "--scope", "global", *OF_PRUNEX[method], "--finetune-lr", str(FINETUNE_RATE)]
    epochs = options.epochs
    if method == "l1":
        words += ["--finetune-epochs", str(2 * epochs)]
    else:
        words += ["--finetune-epochs", str(epochs), "--sparse", method, "--sparse-epochs", str(epochs), "--sparse-lr",
                  str(SPARSE_RATE)]
    summary = run_prunex(options, seed, method, words)
    cut = summary["pruned"]
    return {"sparse": cut["accuracy_before"], "cut": cut["accuracy_after"], "accuracy": summary["accuracy"],
            "macs": summary["macs_compact"], "parameters": summary["parameters_compact"]}


def pruner_of(method, model, image):
    import torch_pruning as tp

    kinds = {"group_norm": (tp.pruner.GroupNormPruner, tp.importance.GroupMagnitudeImportance(p=2, normalizer="max")),
             "bn_scale": (tp.pruner.BNScalePruner, tp.importance.BNScaleImportance()),
             "growing": (tp.pruner.GrowingRegPruner, tp.importance.GroupMagnitudeImportance(p=2)),
             "l1": (tp.pruner.MagnitudePruner, tp.importance.MagnitudeImportance(p=1))}
    kind, importance = kinds[method]
    # of growing it is the strength of the start, like prunex's; the penalty of bn_scale is 1e-5 in both, too
    strength = {"group_norm": {"reg": 5e-4}, "bn_scale": {"reg": 1e-5}, "growing": {"reg": 1e-4, "delta_reg": 1e-4}}
    return kind(model, image, importance=importance, iterative_steps=400, pruning_ratio=1.0, global_pruning=True,
                ignored_layers=[layer for layer in model.modules() if isinstance(layer, nn.Linear)],
                **strength.get(method, {}))


def cut_by_torch_pruning(options, method, weights, images, labels, test, checkpoint):
    """What it measured, and the network that is left."""
    import torch_pruning as tp
    from safetensors.torch import load_file

    model, image = make("resnet20"), images[:1]
    missing, unknown = model.load_state_dict(load_file(weights), strict=False)
    assert not unknown and all(name.endswith("num_batches_tracked") for name in missing), (missing, unknown)
    model = model.to(options.device, memory_format=torch.channels_last)
    result = {"loaded": accuracy(model, *test)}
    pruner = pruner_of(method, model, image)
    if method != "l1":
        grows = method == "growing"  # by all its epochs: stopped, it begins anew
        train(model, images, labels, options.epochs, SPARSE_RATE, warmup=0, weight_decay=0, penalty=pruner.regularize,
              end_of_epoch=pruner.update_reg if grows else None, checkpoint=None if grows else checkpoint)
    result["sparse"] = accuracy(model, *test)
    whole, _ = tp.utils.count_ops_and_params(model, image)
    while whole / tp.utils.count_ops_and_params(model, image)[0] < SPEED_UP and pruner.current_step < 400:
        pruner.step()
    result["cut"] = accuracy(model, *test)
    result["macs"], result["parameters"] = tp.utils.count_ops_and_params(model, image)
    return result, model


def of_torch_pruning(options, seed, method, weights):
    warnings.filterwarnings("ignore")
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    pixels, labels = read_cifar10(options.data_dir)
    count = options.images or len(pixels)
    images, labels = normalised(pixels[:count]).to(options.device), torch.from_numpy(labels[:count]).to(options.device)
    test_pixels, test_labels = read_cifar10(options.data_dir, ["test_batch.bin"])
    test = normalised(test_pixels).to(options.device), torch.from_numpy(test_labels).to(options.device)
    folder = folder_of(options, seed, f"torch-pruning-{method}")
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(f"{folder}/cut.pt"):
        cut = cut_by_torch_pruning(options, method, weights, images, labels, test, f"{folder}/sparse.pt")
        save((*cut, torch.get_rng_state()), f"{folder}/cut.pt")
    result, model, generator = torch.load(f"{folder}/cut.pt", weights_only=False)
    torch.set_rng_state(generator)
    epochs = options.epochs * (2 if method == "l1" else 1)
    train(model, images, labels, epochs, FINETUNE_RATE, warmup=0, checkpoint=f"{folder}/finetune.pt")
    return result | {"accuracy": accuracy(model, *test)}


def table(rows):
    print("| | | seeds | trained | after sparse training | right after the cut | at the end | parameters | MACs |")
    print("|---" * 9 + "|")
    for method in OF_PRUNEX:
        for tool in TOOLS:
            mine = [row for row in rows if (row["tool"], row["method"]) == (tool, method)]
            if not mine:
                continue
            numbers = [key for key, value in mine[0].items() if not isinstance(value, str)]
            mean = {key: statistics.mean(row[key] for row in mine) for key in numbers}
            shares = " | ".join(f"{100 * mean[key]:.1f} %" for key in ("trained", "sparse", "cut", "accuracy"))
            print(f"| `{method}` | {tool} | {len(mine)} | {shares} | {mean['parameters']:,.0f} | {mean['macs']:,.0f} |")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prunex")
    parser.add_argument("data_dir")
    parser.add_argument("output")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="SEED", help="(0 1 2)")
    parser.add_argument("--epochs", type=int, default=10, help="of sparse training, and of fine-tuning (10)")
    parser.add_argument("--trained-epochs", type=int, default=30, help="(30)")
    parser.add_argument("--images", type=int, default=0, help="training images; 0 = all (0)")
    known = [f"{tool}:{method}" for method in OF_PRUNEX for tool in TOOLS]
    parser.add_argument("--only", nargs="+", default=known, choices=known, metavar="TOOL:METHOD", help=", ".join(known))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--table", action="store_true")
    return parser.parse_args()


def main():
    options = parse_options()
    if not options.table:
        one_set(options.output, epochs=options.epochs, trained_epochs=options.trained_epochs, images=options.images)
    path = f"{options.output}/result.jsonl"
    rows = [json.loads(line) for line in open(path)] if os.path.exists(path) else []
    if options.table:
        return table([row for row in rows if row["device"] == options.device])
    for seed in options.seeds:
        for tool, method in (words.split(":") for words in options.only):
            row = {"tool": tool, "method": method, "seed": seed, "device": options.device}
            if any(row.items() <= there.items() for there in rows):
                continue
            weights, before = trained(options, seed)
            run = of_prunex if tool == "prunex" else of_torch_pruning
            row |= {"trained": before, **run(options, seed, method, weights)}
            print(json.dumps(row), flush=True)
            with open(path, "a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
