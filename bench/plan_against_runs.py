#!/usr/bin/env python3
"""What prunex plan predicts against what runs take on the emulated cluster (root: bench/cluster.sh).

    bench/plan_against_runs.py --output runs/plan

Runs of every row (ddp, DiLoCo in 2 bits, H-SADMM) on every number of nodes, over every link, with node 0 behind a
quarter of the middle link, and with node 0 half as fast, are held against what `prunex plan` predicts from a record and
from `prunex bench all_reduce --json` on these nodes (--network). The record is a run on two nodes without a limit of
their links. It is made beside the run, at the same time, because the speed of machines drifts; and so is one on nodes
that are half as fast, which says how many times as long a step takes there (--straggler): caches that are cold after
longer pauses make it more than two. Every rank has a share of a processor to itself, --cores, so that ten of them
compute on two processors as fast as two. Seconds are of an interval with its exchange; for every size that the network
has, the median over the run's intervals, as the plan has them of its record.

OUTPUT gets result.json and every run, of one set of options; runs that are there with their records are not repeated."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

from kept import one_set

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = {"ddp": ["--strategy", "ddp"],
        "diloco-int2": ["--strategy", "diloco", "--payload", "int2", "--outer-lr", "1", "--outer-momentum", "0.5"],
        "hsadmm": ["--strategy", "hsadmm"]}
PARTS = ("local", "intra", "project", "inter", "dual")
BURST_KB = 32  # of the links: with the usual 256 whole messages would cross them faster than their rate
SLOWER_LINK, SLOWER_NODE = 4, 2


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, help="folder of the results")
    parser.add_argument("--prunex", default="build/release/prunex", help="the command (build/release/prunex)")
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4, 8], help="(2 4 8)")
    parser.add_argument("--mbit", type=float, nargs="+", default=[25, 100, 400], help="(25 100 400)")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="(all)")
    parser.add_argument("--model", default="resnet20", help="(resnet20)")
    parser.add_argument("--batch-size", type=int, default=16, help="images per rank and step (16)")
    parser.add_argument("--local-steps", type=int, default=8, help="(8)")
    parser.add_argument("--exchanges", type=int, default=8, help="(8)")
    parser.add_argument("--cores", type=float, default=0.16, help="share of a processor that every rank has (0.16)")
    return parser.parse_args()


def start(options, result, nodes, links, cores, command):
    """On the emulated cluster."""
    print(f"{result}: {nodes} nodes, {links} Mbit/s, cores {cores}", file=sys.stderr, flush=True)
    return subprocess.Popen([f"{HERE}/cluster.sh", str(nodes), "1", links, "--cores", cores, "--burst", str(BURST_KB),
                             "--", os.path.abspath(options.prunex), *command], stdout=subprocess.DEVNULL)


def finish(*processes):
    for process in processes:
        process.wait()
    for process in processes:
        if process.returncode != 0:
            sys.exit(f"ended with status {process.returncode}: {' '.join(process.args)}")


def start_training(options, row, nodes, directory, links, cores):
    steps = options.local_steps * options.exchanges
    shutil.rmtree(directory, ignore_errors=True)
    return start(options, directory, nodes, links, cores, [
        "train", "--nodes", str(nodes), "--model", options.model, *ROWS[row], "--batch-size", str(options.batch_size),
        "--local-steps", str(options.local_steps), "--exchanges", str(options.exchanges), "--samples",
        str(nodes * options.batch_size * steps), "--test-limit", "100", "--eval-every", "0", "--precision", "fp32",
        "--heartbeat-timeout", "60", "--checkpoint-every", "0", "--quiet", "--run-dir", directory])


def exchanges(directory):
    with open(f"{directory}/metrics.jsonl") as lines:
        return [json.loads(line) for line in lines]


def seconds_of(line, parts=PARTS):
    return sum(line["seconds"][part] for part in parts)


def measured(lines):
    by_size = {}
    for line in lines:
        by_size.setdefault(line["macs"], []).append(seconds_of(line))
    return sum(len(of_size) * statistics.median(of_size) for of_size in by_size.values()) / len(lines)


def local_seconds(lines):
    """Of the network's first size."""
    return statistics.median(seconds_of(line, ["local"]) for line in lines if line["macs"] == lines[0]["macs"])


def predicted(options, record, nodes, network, *more):
    """The plan's row of the run as it was recorded."""
    file = f"{options.output}/plan.json"
    subprocess.run([options.prunex, "plan", "--from", record, "--nodes", str(nodes), "--network", network, "--json",
                    file, "--overhead", *more], check=True, stdout=subprocess.DEVNULL)
    with open(file) as plan:
        return next(row for row in json.load(plan)["rows"] if row["is_recorded"])


class Cell:
    """A run of a row. `slowed`: nothing, or node 0's "link" or "node"."""

    def __init__(self, options, row, nodes, mbit, slowed=None):
        self.options, self.row, self.nodes, self.mbit, self.slowed = options, row, nodes, mbit, slowed
        place = f"{nodes}-{mbit:g}" + (f"-{slowed}" if slowed else "")
        self.run, self.network = f"{options.output}/{row}-{place}", f"{options.output}/network-{place}.json"
        self.links = f"{mbit / SLOWER_LINK:g},{mbit:g}" if slowed == "link" else f"{mbit:g}"
        self.usual_cores, self.fewer_cores = f"{options.cores:g}", f"{options.cores / SLOWER_NODE:g}"
        self.cores = f"{self.fewer_cores},{self.usual_cores}" if slowed == "node" else self.usual_cores
        self.record, self.slow_record = f"{self.run}-record", f"{self.run}-slow-record"

    def measure(self):
        sizes = ["--form", "sharded", "--begin", "64K", "--end", "1M"]
        if not os.path.exists(self.network):
            finish(start(self.options, self.network, self.nodes, self.links, self.cores,
                         ["bench", "all_reduce", *sizes, "--json", self.network]))
        runs = [(self.nodes, self.run, self.links, self.cores),
                (min(self.options.nodes), self.record, "0", self.usual_cores)]
        if self.slowed == "node":
            runs.append((min(self.options.nodes), self.slow_record, "0", self.fewer_cores))
        if not all(os.path.exists(f"{directory}/summary.json") for _, directory, _, _ in runs):
            finish(*[start_training(self.options, self.row, *one) for one in runs])

    def straggler(self):
        if self.slowed != "node":
            return 1
        return local_seconds(exchanges(self.slow_record)) / local_seconds(exchanges(self.record))

    def result(self):
        straggler = max(1, self.straggler())
        plan = predicted(self.options, self.record, self.nodes, self.network, "--straggler", f"{straggler:.3f}")
        seconds = plan["seconds"] / plan["exchanges"]
        lines = exchanges(self.run)
        there, bytes_there = measured(lines), statistics.mean(line["inter_node_bytes"] for line in lines)
        return {"row": self.row, "nodes": self.nodes, "mbit": self.mbit, "slowed": self.slowed, "straggler": straggler,
                "predicted": seconds, "measured": there, "gap": seconds / there - 1, "wire_share": plan["wire_share"],
                "bytes_gap": plan["bytes_per_node"] / plan["exchanges"] / bytes_there - 1}


def print_table(cells):
    print("| row | nodes | link, Mbit/s | predicted, s | measured, s | off by | waiting (predicted) | bytes off by |\n" +
          "|---" * 8 + "|")
    for one in cells:
        link = f"{one['mbit']:g}" + {None: "", "link": f", node 0 {one['mbit'] / SLOWER_LINK:g}",
                                     "node": f", node 0 {one['straggler']:.2f} times as slow"}[one["slowed"]]
        print(f"| {one['row']} | {one['nodes']} | {link} | {one['predicted']:.2f} | {one['measured']:.2f} | "
              f"{100 * one['gap']:+.1f} % | {100 * one['wire_share']:.0f} % | {100 * one['bytes_gap']:+.1f} % |")
    print(f"\nWithin 10 %: {sum(abs(one['gap']) <= 0.1 for one in cells)} of {len(cells)}")


def main():
    options = parse_options()
    one_set(options.output, model=options.model, batch_size=options.batch_size, local_steps=options.local_steps,
            exchanges=options.exchanges, cores=options.cores)
    cells = []
    middle = sorted(options.mbit)[len(options.mbit) // 2]
    for nodes in options.nodes:
        for row in options.rows:
            block = [Cell(options, row, nodes, mbit) for mbit in options.mbit]
            block += [Cell(options, row, nodes, middle, slowed) for slowed in ("link", "node")]
            for cell in block:
                cell.measure()
            cells += block
    cells = [cell.result() for cell in cells]
    with open(f"{options.output}/result.json", "w") as file:
        json.dump({"options": vars(options), "cells": cells}, file, indent=1)
    print_table(cells)


if __name__ == "__main__":
    main()
