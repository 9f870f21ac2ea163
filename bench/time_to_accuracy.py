#!/usr/bin/env python3
"""Seconds to a test accuracy, measured on an emulated cluster: ddp, PowerSGD, DiLoCo in 2 bits and H-SADMM.

    bench/time_to_accuracy.py --target 85 --data-dir data --output runs/time-to-85        (root: bench/cluster.sh)

Every run is a whole one over links of that rate and delay, one after the other. The machine should do nothing else, or
--cores give every rank its share, as bench/cluster.sh does. Seconds are those of local steps and exchanges as
metrics.jsonl has them, up to the first evaluation that is not below the target; evaluations are not in them, and come
every --eval-every exchanges. The learning rate of each row is its own, --lr.

OUTPUT gets LINK/ROW (the runs), result.json (what the table says, and every curve), report.html (prunex report on
all runs) and accuracy.svg (its figure of accuracy against time). Runs that are there are not repeated, so the same
command goes on after an interruption."""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys

from figure import write_figure

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = {"ddp": ["--strategy", "ddp", "--local-steps", "40"],
        "powersgd": ["--strategy", "powersgd", "--powersgd-rank", "2", "--local-steps", "40"],
        "diloco-int2": ["--strategy", "diloco", "--payload", "int2", "--outer-lr", "1", "--outer-momentum", "0.5",
                        "--local-steps", "40"],
        "hsadmm": ["--strategy", "hsadmm", "--local-steps", "48"]}
PARTS = ("local", "intra", "project", "inter", "dual")  # of an exchange's seconds: all but evaluation


def refuse(what):
    print(f"time_to_accuracy.py: {what}", file=sys.stderr)
    sys.exit(2)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=float, required=True, help="test accuracy in percent")
    parser.add_argument("--output", required=True, help="folder of the results")
    parser.add_argument("--prunex", default="build/release/prunex", help="the command (build/release/prunex)")
    parser.add_argument("--data-dir", help="folder of CIFAR-10; default: prunex's synthetic images")
    parser.add_argument("--samples", type=int, default=0, help="training images; 0 = all (0)")
    parser.add_argument("--test-limit", type=int, default=0, help="test images; 0 = all (0)")
    parser.add_argument("--model", default="resnet20", help="(resnet20)")
    parser.add_argument("--epochs", type=float, default=30, help="(30)")
    parser.add_argument("--warmup-epochs", type=float, default=1, help="(1)")
    parser.add_argument("--batch-size", type=int, default=64, help="images per rank and step (64)")
    parser.add_argument("--eval-every", type=int, default=5, help="exchanges between evaluations (5)")
    parser.add_argument("--nodes", type=int, default=2, help="of one rank each (2)")
    parser.add_argument("--seed", type=int, default=0, help="(0)")
    parser.add_argument("--links", nargs="+", default=["25", "100"], metavar="MBIT[:MS]",
                        help="rate, and delay from node to node, one way (25 100)")
    parser.add_argument("--cores", default="", help="share of a processor that every rank has to itself (no limit)")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS, help="(all)")
    parser.add_argument("--lr", nargs="+", default=[], metavar="ROW=RATE", help="learning rates (0.2 each)")
    options = parser.parse_args()
    for link in options.links:
        if not re.fullmatch(r"\d+(\.\d+)?(:\d+(\.\d+)?)?", link):
            refuse(f"--links: got '{link}', wanted MBIT or MBIT:MS")
    options.lr = {row: 0.2 for row in ROWS} | dict(rate_of(word) for word in options.lr)
    return options


def rate_of(word):
    row, _, rate = word.partition("=")
    try:
        return {name: name for name in ROWS}[row], float(rate)
    except (KeyError, ValueError):
        refuse(f"--lr: got '{word}', wanted ROW=RATE with a row of {', '.join(ROWS)}")


def rate_and_delay(link):
    mbit, _, delay = link.partition(":")
    return mbit, delay or "0"


def name_of(row, link):
    mbit, delay = rate_and_delay(link)
    return f"{row} at {mbit} Mbit" + (f", {delay} ms" if float(delay) else "")


def folder_of(row, link):
    """Below OUTPUT."""
    return f"{link.replace(':', '-')}/{row}"


def arguments_of(options, row):
    if options.data_dir:
        data = ["--dataset", "cifar10", "--data-dir", options.data_dir, "--train-limit", str(options.samples)]
    else:
        data = ["--samples", str(options.samples)] if options.samples else []
    return [*data, "--test-limit", str(options.test_limit), "--model", options.model, "--nodes", str(options.nodes),
            "--epochs", str(options.epochs), "--warmup-epochs", str(options.warmup_epochs), "--batch-size",
            str(options.batch_size), "--eval-every", str(options.eval_every), "--seed", str(options.seed), "--lr",
            str(options.lr[row]), *ROWS[row]]


def train(options, row, link):
    """The folder of the run, which is trained unless it is there."""
    folder = os.path.join(options.output, folder_of(row, link))
    asked, note = arguments_of(options, row), folder + ".json"
    mbit, delay = rate_and_delay(link)
    cluster = [str(options.nodes), "1", mbit, "--delay", delay, *(["--cores", options.cores] if options.cores else [])]
    if os.path.isdir(folder) and os.path.exists(note) and json.load(open(note)) != cluster + asked:
        refuse(f"--output: {folder} was made with other options")
    if os.path.exists(f"{folder}/summary.json"):
        return folder
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(note, "w") as file:
        json.dump(cluster + asked, file)
    checkpoints = f"{folder}/checkpoint"
    if os.path.isdir(checkpoints) and os.listdir(checkpoints):
        words = ["--resume", folder]
    else:
        shutil.rmtree(folder, ignore_errors=True)
        words = [*asked, "--run-dir", folder]
    print(name_of(row, link), file=sys.stderr, flush=True)
    command = [f"{HERE}/cluster.sh", *cluster, "--", options.prunex, "train", "--quiet", *words]
    status = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
    if status != 0:
        sys.exit(status)
    return folder


def measured(options, row, link, folder):
    with open(f"{folder}/summary.json") as summary, open(f"{folder}/metrics.jsonl") as metrics:
        accuracy = json.load(summary)["accuracy"]
        mbit, delay = map(float, rate_and_delay(link))
        result = {"row": row, "mbit": mbit, "delay_ms": delay, "seconds": None, "accuracy": accuracy, "curve": []}
        seconds, sent = 0, 0
        for line in map(json.loads, metrics):
            seconds += sum(line["seconds"][part] for part in PARTS)
            sent += line["inter_node_bytes"]
            if "accuracy" not in line:
                continue
            result["curve"].append([seconds, line["accuracy"]])
            if result["seconds"] is None and line["accuracy"] >= options.target / 100:
                result |= {"seconds": seconds, "steps": line["step"], "bytes": sent}
        return result | {"run_seconds": seconds}


def link_of(row):
    return row["mbit"], row["delay_ms"]


def print_table(options, rows):
    print(f"| Mbit/s | ms | row | s to {options.target:g} % | times as fast as ddp | steps | MB sent by then | "
          "accuracy at the end | s of the run |\n" + "|---" * 9 + "|")
    for row in rows:
        of_ddp = [other["seconds"] for other in rows if other["row"] == "ddp" and link_of(other) == link_of(row)]
        there = row["seconds"] is not None
        faster = f"{of_ddp[0] / row['seconds']:.2f}" if there and of_ddp and of_ddp[0] else "–"
        reached = f"{row['seconds']:.1f} | {faster} | {row['steps']} | {row['bytes'] / 1e6:.2f}" if there else \
            "not reached | – | – | –"
        print(f"| {row['mbit']:g} | {row['delay_ms']:g} | {row['row']} | {reached} | {100 * row['accuracy']:.2f} % | "
              f"{row['run_seconds']:.1f} |")


def draw(options, folders):
    """prunex report on all runs, by names that tell their links."""
    record = {"command": " ".join(sys.argv), "pilots": [], "runs": [
        {"name": name_of(row, link), "directory": folder_of(row, link)} for row, link in folders]}
    with open(f"{options.output}/compare.json", "w") as file:
        json.dump(record, file, indent=1)
    page = f"{options.output}/report.html"
    subprocess.run([options.prunex, "report", options.output, "--output", page], check=True, stdout=subprocess.DEVNULL)
    write_figure(page, "accuracy-time-0", f"{options.output}/accuracy.svg")


def main():
    options = parse_options()
    folders = [(row, link) for link in options.links for row in options.rows]
    rows = [measured(options, row, link, train(options, row, link)) for row, link in folders]
    version = subprocess.run([options.prunex, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    with open(f"{options.output}/result.json", "w") as file:
        json.dump({"version": version, "options": vars(options), "rows": rows}, file, indent=1)
    print_table(options, rows)
    draw(options, folders)


if __name__ == "__main__":
    main()
