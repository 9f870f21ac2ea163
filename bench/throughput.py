#!/usr/bin/env python3
"""Samples per second of prunex's local steps, one rank on one thread.

cut: after the cut over before it, next to what the multiply-accumulates promise. `time` is the median of the runs'
ratios, `fastest` compares the fastest exchanges of both halves, and is what the share of the gain is computed from.
python: against a plain PyTorch loop that does the same step, the two taking turns.
Run it on a core that nobody else uses: taskset -c 0 bench/throughput.py cut ..."""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

NETWORKS = {"resnet20": 128, "resnet18": 32, "vgg16_bn": 32}  # images per step
MOMENTUM, DECAY = 0.9, 5e-4
OPTIMIZERS = {"fused": {"fused": True}, "foreach": {"foreach": True}, "for loop": {"foreach": False}}
WINDOWS = 12  # in which steps are timed, in each run


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cut", "python"))
    parser.add_argument("--prunex", default="build/release/prunex", help="the command (build/release/prunex)")
    parser.add_argument("--data-dir", help="folder of CIFAR-10; default: prunex's synthetic images")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--groups", nargs="+", default=["coupled-inner", "coupled"])
    parser.add_argument("--precision", nargs="+", default=["fp32", "bf16"], choices=("fp32", "bf16"))
    parser.add_argument("--steps", type=int, default=2, help="in each of the exchanges that are timed (2)")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions, of which the median is taken (3)")
    return parser.parse_args()


def train(options, network, arguments):
    """Runs `prunex train`; its summary and its metrics."""
    data = ["--dataset", "cifar10", "--data-dir", options.data_dir] if options.data_dir else []
    batch = NETWORKS[network]
    with tempfile.TemporaryDirectory() as folder:
        command = [options.prunex, "train", *data, "--test-limit", "64", "--model", network, "--batch-size", str(batch),
                   "--momentum", str(MOMENTUM), "--weight-decay", str(DECAY), "--lr", "0.01", "--local-steps",
                   str(options.steps), "--eval-every", "0", "--quiet", "--run-dir", f"{folder}/run", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
        with open(f"{folder}/run/summary.json") as summary, open(f"{folder}/run/metrics.jsonl") as metrics:
            return json.load(summary), [json.loads(line) for line in metrics]


def fastest(metrics, exchanges, options):
    """Seconds per step in the fastest of the exchanges: the rest is other processes' noise."""
    return min(line["seconds"]["local"] for line in metrics if line["exchange"] in exchanges) / options.steps


def measure_cut(options):
    """24 exchanges, of which the first twelve have the whole network. Rates are those of the summary."""
    print("| network | groups | precision | samples/s before | after | time | fastest | MACs | share of the gain |")
    print("|---" * 9 + "|")
    for network in options.networks:
        for groups in options.groups:
            for precision in options.precision:
                arguments = ["--groups", groups, "--keep", "0.5", "--precision", precision, "--exchanges", "24",
                             "--keep-schedule", "hard", "--prune-start", "1", "--prune-end", "11"]
                runs = [train(options, network, arguments) for _ in range(options.rounds)]
                rates = [summary["samples_per_second"] for summary, _ in runs]
                before, after = (statistics.median(rate[key] for rate in rates) for key in ("before_cut", "after_cut"))
                seconds = statistics.median(rate["before_cut"] / rate["after_cut"] for rate in rates)
                whole, small = (min(fastest(metrics, exchanges, options) for _, metrics in runs)
                                for exchanges in (range(1, 13), range(13, 25)))
                macs = runs[0][0]["macs_compact"] / runs[0][0]["macs_dense"]
                share = (1 - small / whole) / (1 - macs)
                print(f"| {network} | {groups} | {precision} | {before:.0f} | {after:.0f} | {seconds:.3f} | "
                      f"{small / whole:.3f} | {macs:.3f} | {share:.2f} |", flush=True)


def prunex_seconds(options, network, precision):
    """Per step of dense local SGD, exchange by exchange; the first one warms up."""
    arguments = ["--groups", "none", "--kappa", "0", "--after-freeze", "average", "--precision", precision,
                 "--exchanges", str(WINDOWS + 1)]
    _, metrics = train(options, network, arguments)
    return [line["seconds"]["local"] / options.steps for line in metrics[1:]]


class PythonLoop:
    """The step in eager PyTorch, its inputs ready in memory."""

    def __init__(self, network, bf16, optimizer):
        import torch

        from eager import make
        self.torch, self.bf16 = torch, bf16
        self.model = make(network).to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=MOMENTUM, weight_decay=DECAY,
                                         **optimizer)
        batch = NETWORKS[network]
        self.images = torch.randn(batch, 3, 32, 32).to(memory_format=torch.channels_last)
        self.labels = torch.randint(10, (batch,))

    def step(self):
        with self.torch.autocast("cpu", self.torch.bfloat16, enabled=self.bf16):
            loss = self.torch.nn.functional.cross_entropy(self.model(self.images), self.labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def seconds(self, steps):
        """Per step, in as many windows as prunex_seconds()."""
        def window():
            start = time.perf_counter()
            for _ in range(steps):
                self.step()
            return (time.perf_counter() - start) / steps
        return [window() for _ in range(WINDOWS + 1)][1:]


def measure_python(options):
    """The optimizer is the fastest of PyTorch's forms here."""
    import torch
    torch.set_num_threads(1)
    print("| network | precision | prunex, samples/s | PyTorch, samples/s | optimizer | ratio | of medians |")
    print("|---" * 7 + "|")
    for network in options.networks:
        for precision in options.precision:
            loops = {form: PythonLoop(network, precision == "bf16", setting) for form, setting in OPTIMIZERS.items()}
            form = min(loops, key=lambda form: min(loops[form].seconds(options.steps)))
            ours, theirs = [], []
            for _ in range(options.rounds):
                ours += prunex_seconds(options, network, precision)
                theirs += loops[form].seconds(options.steps)
            batch, median = NETWORKS[network], statistics.median
            print(f"| {network} | {precision} | {batch / min(ours):.1f} | {batch / min(theirs):.1f} | {form} | "
                  f"{min(theirs) / min(ours):.3f} | {median(theirs) / median(ours):.3f} |", flush=True)


if __name__ == "__main__":
    options = parse_options()
    measure_cut(options) if options.what == "cut" else measure_python(options)
