#!/usr/bin/env python3
"""Inference latency of two programs in stock PyTorch: a dense network and the one prunex left of it, taking turns.

Both run eagerly and compiled by AOTInductor (which needs a C++ compiler), on one thread; medians of the calls. Both
are in eval form, as a run's model.pt2 is, and a built-in network that `prunex graph --save` writes."""
import argparse
import statistics
import sys
import tempfile
import time

import torch


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dense", metavar="DENSE.pt2")
    parser.add_argument("compact", metavar="COMPACT.pt2")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 128], help="images per call (1 128)")
    parser.add_argument("--seconds", type=float, default=5, help="for each row of the table (5)")
    return parser.parse_args()


def load(path):
    """A program in training form would compute other things than those to measure."""
    program = torch.export.load(path)
    for node in program.graph.nodes:
        if str(node.target).startswith("aten.batch_norm") and node.args[5]:
            print(f"latency.py: {path} is in training form, wanted eval form, as model.pt2 of a run", file=sys.stderr)
            sys.exit(2)
    return program


def compiled(program, folder, name):
    package = torch._inductor.aoti_compile_and_package(program, package_path=f"{folder}/{name}.pt2")
    return torch._inductor.aoti_load_package(package)


def milliseconds(run, x):
    start = time.perf_counter()
    run(x)
    return (time.perf_counter() - start) * 1e3


def measure(runs, x, seconds):
    """Median of each; at least ten calls of each, after one to warm up."""
    times = [[] for _ in runs]
    for run in runs:
        run(x)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 10:
        for run, own in zip(runs, times):
            own.append(milliseconds(run, x))
    return [statistics.median(own) for own in times]


def main():
    options = parse_options()
    torch.set_num_threads(1)
    programs = [load(path) for path in (options.dense, options.compact)]
    sizes = programs[0].example_inputs[0][0].shape[1:]
    print("| batch | | dense, ms | compact, ms | ratio |\n" + "|---" * 5 + "|")
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        forms = {"eager": [program.module() for program in programs],
                 "AOTInductor": [compiled(program, folder, i) for i, program in enumerate(programs)]}
        for batch in options.batch:
            x = torch.randn(batch, *sizes)
            for form, runs in forms.items():
                dense, compact = measure(runs, x, options.seconds)
                print(f"| {batch} | {form} | {dense:.2f} | {compact:.2f} | {compact / dense:.3f} |", flush=True)


if __name__ == "__main__":
    main()
