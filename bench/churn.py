#!/usr/bin/env python3
"""Nodes of an elastic run die, fall silent and come back, again and again: what it costs.

Usage: bench/churn.py PRUNEX [--minutes 2] [--every 5] [--nodes 3] [--seeds 3] [-- train options…]
       bench/churn.py PRUNEX --slow 4 [--seeds 3] [-- train options…]

Starts `PRUNEX train --elastic` on loopback and, every so many seconds on average, kills a rank chosen at random or
stops it for longer than --heartbeat-timeout; the launcher starts what it lost again. Whether results are equal on all
ranks after every exchange is checked by the run itself, which ends if they are not. Prints what happened as Markdown;
beside it the accuracy of undisturbed runs with as many steps.

--slow: instead one rank of the last node runs a quarter of the time; runs that wait for it take turns with runs that do
not (--straggler-factor 1.5), of as many exchanges and of as many images, and with undisturbed ones.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

SILENT_FOR = 2.5  # seconds that a rank is stopped


def children(pid):
    """The processes that the launcher has started and that live."""
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def is_trained(run):
    return (run / "doors").exists()


def train(prunex, run, nodes, seed, options):
    words = [prunex, "train", "--elastic", "--nodes", str(nodes), "--seed", str(seed), "--run-dir", str(run), "--quiet"]
    with open(f"{run}.log", "w") as log:
        return subprocess.Popen(words + options, stdout=log, stderr=log)


def disturb(process, run, draw, every, kinds):
    """Until the run ends. Returns what was done, as (kind, time)."""
    done = []
    stopped = {}  # process: when it goes on
    next_at = None
    while process.poll() is None:
        now = time.monotonic()
        for pid in [pid for pid, due in stopped.items() if now >= due]:
            del stopped[pid]
            try:
                pathlib.Path(f"/proc/{pid}/stat").read_text()
                subprocess.run(["kill", "-CONT", str(pid)], check=False, stderr=subprocess.DEVNULL)
            except FileNotFoundError:
                pass
        if next_at is None and is_trained(run):
            next_at = now + every
        ranks = [pid for pid in children(process.pid) if pid not in stopped]
        if next_at is not None and now >= next_at and len(ranks) > 1 and not stopped:
            kind = draw.choice(kinds)
            pid = draw.choice(ranks)
            subprocess.run(["kill", "-KILL" if kind == "kill" else "-STOP", str(pid)], check=False)
            if kind == "stop":
                stopped[pid] = now + SILENT_FOR
            done.append((kind, now))
            next_at = now + draw.expovariate(1 / every)
        time.sleep(0.05)
    return done


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def slow_down(process, times):
    """The last rank runs its share of every tenth of a second, until the run ends."""
    while process.poll() is None and not (ranks := children(process.pid)):
        time.sleep(0.01)
    while process.poll() is None:
        subprocess.run(["kill", "-STOP", str(ranks[-1])], check=False, stderr=subprocess.DEVNULL)
        time.sleep(0.1 * (1 - 1 / times))
        subprocess.run(["kill", "-CONT", str(ranks[-1])], check=False, stderr=subprocess.DEVNULL)
        time.sleep(0.1 / times)


def compare_slow(arguments, options):
    """Seconds between the first exchange and the last, of runs that take turns."""
    deadline = ["--straggler-factor", "1.5"]
    ways = {"undisturbed": [], "one rank slowed": [], "the same, --straggler-factor 1.5": deadline,
            "the same, as many images": deadline}
    results = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.seeds):
            for way, more in ways.items():
                run = pathlib.Path(folder) / f"{len(results[way])}-{list(ways).index(way)}"
                if way == "the same, as many images":
                    whole, short = (results[other][-1][1] for other in list(ways)[:3:2])
                    exchanges = round(whole["exchanges"] * whole["samples"] / short["samples"])
                    more = [*more, "--exchanges", str(exchanges)]
                process = train(arguments.prunex, run, arguments.nodes, seed, options + more)
                if way != "undisturbed":
                    slow_down(process, arguments.slow)
                if process.wait() != 0:
                    sys.exit(pathlib.Path(f"{run}.log").read_text())
                seconds = sum(line["seconds"]["total"] for line in lines_of(run / "metrics.jsonl")[1:])
                results[way].append((seconds, json.loads((run / "summary.json").read_text())))
    print(f"{arguments.nodes} nodes, the last {arguments.slow} times as slow, {arguments.seeds} seeds, medians:\n")
    print("| | seconds | images per second | images passed by | accuracy |\n|---|---|---|---|---|")
    for way, runs in results.items():
        rate = statistics.median(summary["samples"] / seconds for seconds, summary in runs)
        print(f"| {way} | {statistics.median(seconds for seconds, _ in runs):.1f} | {rate:.0f} | "
              f"{statistics.median(summary['images_lost'] for _, summary in runs)} | "
              f"{100 * statistics.mean(summary['accuracy'] for _, summary in runs):.2f} % |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prunex")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--every", type=float, default=5, help="seconds between two disturbances, on average")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3, help="undisturbed runs to compare with")
    parser.add_argument("--kinds", default="kill,kill,kill,stop", help="what is drawn from")
    parser.add_argument("--slow", type=float, help="one rank takes so many times as long, and nobody is lost")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:end])
    draw = random.Random(0)
    options = words[end + 1 :] or ["--model", "resnet8", "--samples", "2000", "--batch-size", "16", "--local-steps", "4"]
    if arguments.slow:
        return compare_slow(arguments, options)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        # As many exchanges as make the minutes: from a short run's speed.
        trial = train(arguments.prunex, folder / "trial", arguments.nodes, 0, options + ["--exchanges", "30"])
        if trial.wait() != 0:
            sys.exit(pathlib.Path(f"{folder}/trial.log").read_text())
        lines = lines_of(folder / "trial" / "metrics.jsonl")
        seconds = statistics.median(line["seconds"]["total"] for line in lines)
        exchanges = max(30, int(60 * arguments.minutes / seconds))
        length = ["--exchanges", str(exchanges), "--eval-every", "0"]

        run = folder / "churn"
        process = train(arguments.prunex, run, arguments.nodes, 0, options + length)
        began = time.monotonic()
        done = disturb(process, run, draw, arguments.every, arguments.kinds.split(","))
        took = time.monotonic() - began
        if process.returncode != 0:
            print(pathlib.Path(f"{run}.log").read_text(), file=sys.stderr)
            sys.exit(f"the run ended with {process.returncode} after {len(done)} disturbances")
        summary = json.loads((run / "summary.json").read_text())
        changes = lines_of(run / "membership.jsonl")
        calm = []
        for seed in range(arguments.seeds):
            other = folder / f"calm-{seed}"
            if train(arguments.prunex, other, arguments.nodes, seed, options + length).wait() != 0:
                sys.exit(pathlib.Path(f"{other}.log").read_text())
            calm.append(json.loads((other / "summary.json").read_text())["accuracy"])

    lost = [change["seconds"] for change in changes if change["lost"]]
    joined = [change["seconds"] for change in changes if change["joined"]]
    kinds = {kind: sum(1 for one, _ in done if one == kind) for kind in sorted(set(arguments.kinds.split(",")))}
    counts = ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
    print(f"{arguments.nodes} nodes, {exchanges} exchanges, {took:.0f} s: {counts}\n")
    print("| | |\n|---|---|")
    print(f"| nodes lost, joined | {summary['nodes_lost']}, {summary['nodes_joined']} |")
    print(f"| images trained, lost | {summary['samples']}, {summary['images_lost']} |")
    print(f"| seconds per loss: median, 90 %, most | {quantile(lost, 0.5):.2f}, {quantile(lost, 0.9):.2f}, "
          f"{quantile(lost, 1):.2f} |")
    print(f"| seconds per join: median, 90 %, most | {quantile(joined, 0.5):.2f}, {quantile(joined, 0.9):.2f}, "
          f"{quantile(joined, 1):.2f} |")
    print(f"| accuracy | {100 * summary['accuracy']:.2f} % |")
    if calm:
        spread = statistics.stdev(calm) if len(calm) > 1 else float("nan")
        print(f"| accuracy of {len(calm)} undisturbed runs | {100 * statistics.mean(calm):.2f} % "
              f"(standard deviation {100 * spread:.2f}) |")


if __name__ == "__main__":
    main()
