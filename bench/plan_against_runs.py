#!/usr/bin/env python3
"""What prunex plan predicts against what runs take on the emulated cluster (root: bench/cluster.sh).

    bench/plan_against_runs.py --output runs/plan

Of every row (ddp, DiLoCo in 2 bits, H-SADMM) three runs on two nodes without a limit of the links are the record. From
them alone `prunex plan` predicts runs on every number of nodes over every link, with node 0 behind a quarter of the middle
link, and with node 0 half as fast; then these runs are made. Every rank has a share of a processor to itself, --cores,
so that eight of them compute on two processors as fast as two. Seconds are of an interval with its exchange: predicted
for the recorded ones, and the median of a run's as metrics.jsonl has them, without the first, in which everything is
touched for the first time.

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
RECORDS = 3


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
    parser.add_argument("--exchanges", type=int, default=10, help="(10)")
    parser.add_argument("--cores", type=float, default=0.2, help="share of a processor that every rank has (0.2)")
    return parser.parse_args()


def finished(directory):
    return os.path.exists(f"{directory}/summary.json")


def train(options, row, nodes, directory, links="0", cores=None, seed=0):
    if finished(directory):
        return
    steps = options.local_steps * options.exchanges
    command = [f"{HERE}/cluster.sh", str(nodes), "1", links, "--cores", cores or f"{options.cores:g}", "--burst",
               str(BURST_KB), "--", os.path.abspath(options.prunex), "train", "--nodes", str(nodes), "--model",
               options.model, *ROWS[row], "--batch-size", str(options.batch_size), "--local-steps",
               str(options.local_steps), "--exchanges", str(options.exchanges), "--samples",
               str(nodes * options.batch_size * steps), "--test-limit", "100", "--eval-every", "0", "--precision", "fp32",
               "--seed", str(seed), "--heartbeat-timeout", "60", "--checkpoint-every", "0", "--quiet", "--run-dir", directory]
    print(f"{row}, {nodes} nodes, {links} Mbit/s, cores {cores or options.cores}", file=sys.stderr, flush=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def exchanges(directory):
    with open(f"{directory}/metrics.jsonl") as lines:
        return [json.loads(line) for line in lines]


def measured(lines):
    return statistics.median(sum(line["seconds"][part] for part in PARTS) for line in lines[1:])


def predicted(options, records, nodes, links, *more):
    """The plan's row of the run as it was recorded."""
    file = f"{options.output}/plan.json"
    subprocess.run([options.prunex, "plan", "--from", *records, "--nodes", str(nodes), "--link", links, "--json", file, *more],
                   check=True, stdout=subprocess.DEVNULL)
    with open(file) as plan:
        return next(row for row in json.load(plan)["rows"] if row["is_recorded"])


def cell(options, row, nodes, mbit, slowed=None):
    """`slowed`: "link" or "node", which is node 0's."""
    run = f"{options.output}/{row}-{nodes}-{mbit:g}" + (f"-{slowed}" if slowed else "")
    links = f"{mbit / SLOWER_LINK:g},{mbit:g}" if slowed == "link" else f"{mbit:g}"
    cores, straggler = None, []
    if slowed == "node":
        cores, straggler = f"{options.cores / SLOWER_NODE:g},{options.cores:g}", ["--straggler", str(SLOWER_NODE)]
    records = [f"{options.output}/{row}-seed{seed}" for seed in range(RECORDS)]
    for seed, record in enumerate(records):
        train(options, row, min(options.nodes), record, seed=seed)
    train(options, row, nodes, run, links, cores)
    plan = predicted(options, records, nodes, links, "--overhead", *straggler)
    lines, seconds = exchanges(run), plan["seconds"] / plan["exchanges"]
    there, bytes_there = measured(lines), sum(line["inter_node_bytes"] for line in lines) / len(lines)
    return {"row": row, "nodes": nodes, "mbit": mbit, "slowed": slowed, "predicted": seconds, "measured": there,
            "gap": seconds / there - 1, "wire_share": plan["wire_share"],
            "bytes_gap": plan["bytes_per_node"] / plan["exchanges"] / bytes_there - 1}


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
    for nodes in options.nodes:
        for row in options.rows:
            for mbit in options.mbit:
                cells.append(cell(options, row, nodes, mbit))
            middle = sorted(options.mbit)[len(options.mbit) // 2]
            cells += [cell(options, row, nodes, middle, slowed) for slowed in ("link", "node")]
            with open(f"{options.output}/result.json", "w") as file:
                json.dump({"options": vars(options), "cells": cells}, file, indent=1)
    print_table(cells)


if __name__ == "__main__":
    main()
