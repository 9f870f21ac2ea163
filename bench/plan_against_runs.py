#!/usr/bin/env python3
"""What prunex plan predicts against what runs take on the emulated cluster (root: bench/cluster.sh).

    bench/plan_against_runs.py --output runs/plan

Of every row (ddp, DiLoCo in 2 bits, H-SADMM) runs on two nodes without a limit of the links are the record: one before
the runs on every number of nodes, because the speed of machines drifts. `prunex plan` predicts from the record alone
runs over every link, with node 0 behind a quarter of the middle link, and with node 0 half as fast; the mean of what it
predicts from each is held against these runs. Every rank has a share of a processor to itself, --cores,
so that eight of them compute on two processors as fast as two. Seconds are of an interval with its exchange, means over the run,
as metrics.jsonl has them; the first one, in which everything is touched for the first time, counts as the second.

OUTPUT gets every run and result.json; runs that are there are not repeated."""
import argparse
import json
import os
import statistics
import subprocess
import sys

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
    parser.add_argument("--exchanges", type=int, default=6, help="(6)")
    parser.add_argument("--cores", type=float, default=0.2, help="share of a processor that every rank has (0.2)")
    return parser.parse_args()


def finished(directory):
    return os.path.exists(f"{directory}/summary.json")


def train(options, row, nodes, directory, links="0", cores=None):
    if finished(directory):
        return
    steps = options.local_steps * options.exchanges
    command = [f"{HERE}/cluster.sh", str(nodes), "1", links, "--cores", cores or f"{options.cores:g}", "--burst",
               str(BURST_KB), "--", os.path.abspath(options.prunex), "train", "--nodes", str(nodes), "--model",
               options.model, *ROWS[row], "--batch-size", str(options.batch_size), "--local-steps",
               str(options.local_steps), "--exchanges", str(options.exchanges), "--samples",
               str(nodes * options.batch_size * steps), "--test-limit", "100", "--eval-every", "0", "--precision", "fp32",
               "--heartbeat-timeout", "60", "--checkpoint-every", "0", "--quiet", "--run-dir", directory]
    print(f"{row}, {nodes} nodes, {links} Mbit/s, cores {cores or options.cores}", file=sys.stderr, flush=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def exchanges(directory):
    with open(f"{directory}/metrics.jsonl") as lines:
        return [json.loads(line) for line in lines]


def measured(lines):
    seconds = [sum(line["seconds"][part] for part in PARTS) for line in lines]
    return (sum(seconds[1:]) + seconds[1]) / len(seconds)


def predicted(options, record, nodes, links, *more):
    """The plan's row of the run as it was recorded."""
    file = f"{options.output}/plan.json"
    subprocess.run([options.prunex, "plan", "--from", record, "--nodes", str(nodes), "--link", links, "--json", file,
                    "--overhead", *more], check=True, stdout=subprocess.DEVNULL)
    with open(file) as plan:
        return next(row for row in json.load(plan)["rows"] if row["is_recorded"])


def record_of(options, row, nodes):
    return f"{options.output}/{row}-{nodes}"


class Cell:
    """A run of a row. `slowed`: nothing, or node 0's "link" or "node"."""

    def __init__(self, options, row, nodes, mbit, slowed=None):
        self.options, self.row, self.nodes, self.mbit, self.slowed = options, row, nodes, mbit, slowed
        self.run = f"{options.output}/{row}-{nodes}-{mbit:g}" + (f"-{slowed}" if slowed else "")
        self.links = f"{mbit / SLOWER_LINK:g},{mbit:g}" if slowed == "link" else f"{mbit:g}"

    def train(self):
        cores = f"{self.options.cores / SLOWER_NODE:g},{self.options.cores:g}" if self.slowed == "node" else None
        train(self.options, self.row, self.nodes, self.run, self.links, cores)

    def result(self):
        straggler = ["--straggler", str(SLOWER_NODE)] if self.slowed == "node" else []
        records = [record_of(self.options, self.row, nodes) for nodes in self.options.nodes]
        plans = [predicted(self.options, record, self.nodes, self.links, *straggler) for record in records]
        seconds = statistics.mean(plan["seconds"] / plan["exchanges"] for plan in plans)
        lines = exchanges(self.run)
        there, bytes_there = measured(lines), statistics.mean(line["inter_node_bytes"] for line in lines)
        return {"row": self.row, "nodes": self.nodes, "mbit": self.mbit, "slowed": self.slowed, "predicted": seconds,
                "measured": there, "gap": seconds / there - 1,
                "wire_share": statistics.mean(plan["wire_share"] for plan in plans),
                "bytes_gap": plans[0]["bytes_per_node"] / plans[0]["exchanges"] / bytes_there - 1}


def print_table(cells):
    print("| row | nodes | link, Mbit/s | predicted, s | measured, s | off by | waiting (predicted) | bytes off by |\n" +
          "|---" * 8 + "|")
    for one in cells:
        link = f"{one['mbit']:g}" + {None: "", "link": f", node 0 {one['mbit'] / SLOWER_LINK:g}",
                                     "node": f", node 0 {SLOWER_NODE} times as slow"}[one["slowed"]]
        print(f"| {one['row']} | {one['nodes']} | {link} | {one['predicted']:.2f} | {one['measured']:.2f} | "
              f"{100 * one['gap']:+.1f} % | {100 * one['wire_share']:.0f} % | {100 * one['bytes_gap']:+.1f} % |")
    print(f"\nWithin 10 %: {sum(abs(one['gap']) <= 0.1 for one in cells)} of {len(cells)}")


def main():
    options = parse_options()
    os.makedirs(options.output, exist_ok=True)
    cells = []
    middle = sorted(options.mbit)[len(options.mbit) // 2]
    for nodes in options.nodes:
        for row in options.rows:
            train(options, row, min(options.nodes), record_of(options, row, nodes))
            block = [Cell(options, row, nodes, mbit) for mbit in options.mbit]
            block += [Cell(options, row, nodes, middle, slowed) for slowed in ("link", "node")]
            for cell in block:
                cell.train()
            cells += block
    cells = [cell.result() for cell in cells]
    with open(f"{options.output}/result.json", "w") as file:
        json.dump({"options": vars(options), "cells": cells}, file, indent=1)
    print_table(cells)


if __name__ == "__main__":
    main()
