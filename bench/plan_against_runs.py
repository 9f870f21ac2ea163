#!/usr/bin/env python3
"""What prunex plan predicts against what runs take on the emulated cluster (root: bench/cluster.sh).

    bench/plan_against_runs.py --output runs/plan

For every number of nodes and every row (ddp, DiLoCo in 2 bits, H-SADMM) one run without a limit of the links is the
record: it says what steps take when so many ranks share these processors. From it `prunex plan` predicts the same run
over every link, and with node 0 behind a quarter of the link; then these runs are made. Seconds are those of local steps
and exchanges as metrics.jsonl has them; the first exchange, in which everything is touched for the first time, counts as
the second. Bytes of an exchange are predicted from the record of the fewest nodes.

OUTPUT gets every run and result.json; runs that are there are not repeated. The machine should do nothing else."""
import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = {"ddp": ["--strategy", "ddp"],
        "diloco-int2": ["--strategy", "diloco", "--payload", "int2", "--outer-lr", "1", "--outer-momentum", "0.5"],
        "hsadmm": ["--strategy", "hsadmm"]}
PARTS = ("local", "intra", "project", "inter", "dual")
BURST_KB = 32  # of the links: with the usual 256 whole messages would cross them faster than their rate
SLOWER = 4


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
    return parser.parse_args()


def finished(directory):
    return os.path.exists(f"{directory}/summary.json")


def train(options, row, nodes, mbit, first, directory):
    if finished(directory):
        return
    shaping = [] if first is None else ["--first", f"{first:g}"]
    steps = options.local_steps * options.exchanges
    command = [f"{HERE}/cluster.sh", str(nodes), "1", f"{mbit:g}", *shaping, "--burst", str(BURST_KB), "--",
               os.path.abspath(options.prunex), "train", "--nodes", str(nodes), "--model", options.model, *ROWS[row],
               "--batch-size", str(options.batch_size), "--local-steps", str(options.local_steps), "--exchanges",
               str(options.exchanges), "--samples", str(nodes * options.batch_size * steps), "--test-limit", "100",
               "--eval-every", "0", "--precision", "fp32", "--heartbeat-timeout", "60", "--checkpoint-every", "0",
               "--quiet", "--run-dir", directory]
    print(f"{row}, {nodes} nodes, {mbit:g} Mbit/s{f', node 0 {first:g}' if first else ''}", file=sys.stderr, flush=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def exchanges(directory):
    with open(f"{directory}/metrics.jsonl") as lines:
        return [json.loads(line) for line in lines]


def measured(directory):
    seconds = [sum(line["seconds"][part] for part in PARTS) for line in exchanges(directory)]
    return sum(seconds[1:]) + seconds[1]


def predicted(options, record, nodes, links, *more):
    """The plan's row of the run as it was recorded."""
    file = f"{options.output}/plan.json"
    subprocess.run([options.prunex, "plan", "--from", record, "--nodes", str(nodes), "--link", links, "--json", file, *more],
                   check=True, stdout=subprocess.DEVNULL)
    with open(file) as plan:
        return next(row for row in json.load(plan)["rows"] if row["is_recorded"])


def cell(options, row, nodes, mbit, first):
    name = f"{row}-{nodes}-{mbit:g}" + ("" if first is None else "-slowed")
    run, record = f"{options.output}/{name}", f"{options.output}/{row}-{nodes}"
    fewest = f"{options.output}/{row}-{min(options.nodes)}"
    train(options, row, nodes, 0, None, record)
    train(options, row, min(options.nodes), 0, None, fewest)
    train(options, row, nodes, mbit, first, run)
    links = f"{mbit:g}" if first is None else f"{first:g},{mbit:g}"
    plan, own = predicted(options, record, nodes, links, "--overhead"), predicted(options, run, nodes, links)
    of_fewest = predicted(options, fewest, nodes, f"{mbit:g}")
    lines = exchanges(run)
    there, bytes_there = measured(run), sum(line["inter_node_bytes"] for line in lines) / len(lines)
    return {"row": row, "nodes": nodes, "mbit": mbit, "first": first, "predicted": plan["seconds"], "measured": there,
            "gap": plan["seconds"] / there - 1, "own_gap": own["seconds"] / there - 1, "wire_share": plan["wire_share"],
            "bytes_gap": of_fewest["bytes_per_node"] / of_fewest["exchanges"] / bytes_there - 1}


def print_table(cells):
    print("| row | nodes | link, Mbit/s | predicted, s | measured, s | off by | with its own steps | waiting (predicted) | "
          "bytes off by |\n" + "|---" * 9 + "|")
    for one in cells:
        link = f"{one['mbit']:g}" + ("" if one["first"] is None else f", node 0 {one['first']:g}")
        print(f"| {one['row']} | {one['nodes']} | {link} | {one['predicted']:.2f} | {one['measured']:.2f} | "
              f"{100 * one['gap']:+.1f} % | {100 * one['own_gap']:+.1f} % | "
              f"{100 * one['wire_share']:.0f} % | {100 * one['bytes_gap']:+.1f} % |")
    within, own = (sum(abs(one[gap]) <= 0.1 for one in cells) for gap in ("gap", "own_gap"))
    print(f"\nWithin 10 %: {within} of {len(cells)}; with their own steps {own}")


def main():
    options = parse_options()
    os.makedirs(options.output, exist_ok=True)
    cells = []
    for nodes in options.nodes:
        for row in options.rows:
            for mbit in options.mbit:
                cells.append(cell(options, row, nodes, mbit, None))
            middle = sorted(options.mbit)[len(options.mbit) // 2]
            cells.append(cell(options, row, nodes, middle, middle / SLOWER))
            with open(f"{options.output}/result.json", "w") as file:
                json.dump({"options": vars(options), "cells": cells}, file, indent=1)
    print_table(cells)


if __name__ == "__main__":
    main()
