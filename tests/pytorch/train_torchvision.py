"""train_torchvision.py PRUNEX [NAME...]: stock torchvision networks through prunex and back.

Each is exported by examples/export_torchvision.py, trained by two ranks, pruned and cut; stock PyTorch must then
compute from model.pt2 what `prunex predict` does. Prints a row of a table for each, and fails at the end if one failed.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import torch
from safetensors.torch import load_file, save_file

NAMES = ("resnet18", "mobilenet_v2", "densenet121", "shufflenet_v2_x1_0", "efficientnet_b0")
EXPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/export_torchvision.py")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prunex", help="the command")
    parser.add_argument("names", nargs="*", default=list(NAMES), help="torchvision's; default: " + ", ".join(NAMES))
    parser.add_argument("--data-dir", help="folder of CIFAR-10; default: prunex's synthetic images")
    parser.add_argument("--groups", default="coupled")
    parser.add_argument("--keep", default="0.5")
    return parser.parse_args()


def run(*command):
    result = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {result.stdout.strip()}")


def train(options, name, folder):
    """Eight exchanges of two steps, whose second half has the small network."""
    run(sys.executable, EXPORT, name, "--output", f"{folder}/{name}.pt2")
    data = ["--dataset", "cifar10", "--data-dir", options.data_dir] if options.data_dir else ["--samples", "512"]
    run(options.prunex, "train", *data, "--train-limit", "512", "--test-limit", "100", "--nodes", "2",
        "--model", f"{folder}/{name}.pt2", "--exchanges", "8", "--local-steps", "2", "--batch-size", "16",
        "--lr", "0.01", "--groups", options.groups, "--keep", options.keep, "--prune-start", "1", "--prune-end", "4",
        "--eval-every", "0", "--run-dir", f"{folder}/run")
    with open(f"{folder}/run/summary.json") as summary:
        return json.load(summary)


def images(size):
    """Noise of one value per square: single pixels leave channels silent that answer to smooth images."""
    noise = torch.randn(4, 3, 32 // size, 32 // size, generator=torch.Generator().manual_seed(size))
    return noise.repeat_interleave(size, 2).repeat_interleave(size, 3)


def largest_difference(options, folder):
    """Of the logits, relative to the largest: from single images to several, fine and coarse."""
    module = torch.export.load(f"{folder}/run/model.pt2").module()
    errors = []
    for x in (images(1)[:1], images(1), images(8)):
        save_file({"input": x.contiguous()}, f"{folder}/input.safetensors")
        run(options.prunex, "predict", "--model", f"{folder}/run/model.pt2", "--input", f"{folder}/input.safetensors",
            "--output", f"{folder}/output.safetensors")
        with torch.no_grad():
            wanted = module(x)
        if len(x) > 1 and (wanted[0] - wanted[1]).abs().max() < 1e-3 * wanted.abs().max():
            raise RuntimeError("the logits are the same for all images")
        got = load_file(f"{folder}/output.safetensors")["output"]
        errors.append((got - wanted).abs().max() / wanted.abs().max())
    return torch.stack(errors).max().item()  # nan if one is


def check(options, name):
    """A row of the table, and whether all is well."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        summary = train(options, name, folder)
        error = largest_difference(options, folder)
        drift = abs(summary["accuracy"] - summary["accuracy_compact"])
    macs = summary["macs_compact"] / summary["macs_dense"]
    parameters = summary["parameters_compact"] / summary["parameters_dense"]
    removed, pruned = summary["units_removed"], summary["units_pruned"]
    good = error <= 1e-5 and drift <= 2e-4 and macs < 1 and 0 < removed == pruned
    return (f"| {name} | {macs:.3f} | {parameters:.3f} | {removed} of {pruned} | "
            f"{drift:.1g} | {error:.1e} | {time.monotonic() - start:.0f} |", good)


def main():
    options = parse_options()
    print("| network | MACs | parameters | units removed of pruned | accuracy, compact - trained | logits' error | s |")
    print("|---" * 7 + "|")
    failed = False
    for name in options.names:
        try:
            row, good = check(options, name)
        except RuntimeError as error:
            row, good = f"{name}: {error}", False
        print(row, flush=True)
        failed = failed or not good
    sys.exit(failed)


if __name__ == "__main__":
    main()
