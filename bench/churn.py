#!/usr/bin/env python3
"""Nodes of an elastic run die, fall silent, are cut off, come back and join, again and again: what it costs.

Usage: bench/churn.py PRUNEX [--minutes 5] [--every 12] [--nodes 4] [--seeds 3] [--folder DIR] [-- train options…]
       bench/churn.py PRUNEX [--torchrun TORCHRUN] [--torchft PYTHON] [--minutes 5] [--every 12] [-- train options…]
       bench/churn.py PRUNEX --slow 4 [--seeds 3] [-- train options…]

Trains on an emulated cluster (bench/cluster.sh: wants root), run after run, and disturbs them by kinds drawn evenly,
the next one so many seconds after the last on average. Whatever ends there is started again with the words of the first
time. A spare node comes in by --join, and goes. Wall clocks jump if libfaketime is there. Prints a page of Markdown.
Seconds lost are those of the exchange in which something happened and of the next one, less the usual ones. Runs check
themselves that results are equal on all ranks after every exchange, and end if they are not; that nothing which counted
is made again with another result is checked here. A run that hangs or ends wrongly ends this script with its logs.

--torchrun: kills alone, at the same moments: an elastic run; a plain one whose ranks torchrun starts again, to go on
from its last checkpoint; and torchft's local SGD (bench/torchft_node.py), whose lighthouse is spared.
--slow: on loopback one rank of the last node runs a quarter of the time; runs that wait for it take turns with runs
that do not (--straggler-factor 1.5), of as many exchanges and of as many images, and with undisturbed ones.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from churn_nodes import Cluster, children, faketime_library
from churn_restarts import compare_restarts, word_after
from churn_run import Churn, Failed

OPTIONS = ("--model resnet8 --samples 4000 --batch-size 16 --local-steps 4 --threads 1 --exchanges 200 --eval-every 0 "
           "--checkpoint-every 8").split()
SLOW_OPTIONS = "--model resnet8 --samples 2000 --batch-size 16 --local-steps 4".split()


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def complaint(churn, why):
    logs = "".join(f"--- {place.log.name}\n" + "".join(place.log.read_text(errors="replace").splitlines(True)[-25:])
                   for place in churn.places if place.log.exists())
    return f"{logs}--- what was done\n{churn.record()}\n{churn.run}: {why}"


class CalmRuns(threading.Thread):
    """Runs without disturbances, on loopback, whenever the others leave a processor idle."""

    def __init__(self, arguments, folder, options):
        super().__init__(daemon=True)
        self.process, self.is_over = None, False
        self.runs = [folder / f"calm-{seed}" for seed in range(arguments.seeds)]
        self.arguments, self.options = arguments, options
        self.start()

    def run(self):
        for seed, run in enumerate(self.runs):
            if self.is_over:
                return
            self.process = train(self.arguments.prunex, run, self.arguments.nodes, seed, self.options)
            os.setpriority(os.PRIO_PROCESS, self.process.pid, 10)
            if self.process.wait() != 0 and not self.is_over:
                print(pathlib.Path(f"{run}.log").read_text(), file=sys.stderr)

    def accuracies(self):
        """Of those that ended well."""
        self.join()
        files = [run / "summary.json" for run in self.runs]
        return [json.loads(file.read_text())["accuracy"] for file in files if file.exists()]

    def end(self):
        self.is_over = True
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
        self.join()


def disturbed_runs(arguments, folder, options):
    """Until the time is over, or one fails: (runs, seconds, why one failed)."""
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text("of this churn alone\n")
    cluster = Cluster(arguments.nodes + 1, arguments.mbit, folder, faketime_library())
    if not cluster.library:
        print("no jumps of clocks: libfaketime is not here (Debian: faketime)", file=sys.stderr)
    draw, bag, runs = random.Random(arguments.draw), [], []
    begin, took = time.monotonic(), 0.0
    try:
        while not runs or time.monotonic() - begin + took / 2 < 60 * arguments.minutes:
            run = folder / f"churn-{len(runs)}"
            words = [arguments.prunex, "train", "--elastic", "--heartbeat-timeout", "1.5",
                     "--nodes", str(arguments.nodes), "--seed", str(len(runs)),
                     "--run-dir", str(run), *options, "--secret-file", str(secret)]
            churn = Churn(cluster, words, run, arguments.nodes, draw)
            started = time.monotonic()
            try:
                churn.go(int(word_after(options, "--exchanges")), arguments.every, bag)
            except Failed as failure:
                return runs, time.monotonic() - begin, complaint(churn, failure)
            finally:
                churn.end()
            took = time.monotonic() - started
            runs.append((churn, json.loads((run / "summary.json").read_text()), lines_of(run / "membership.jsonl")))
            (folder / f"{run.name}.done").write_text(churn.record() + "\n")
            print(f"{run.name}: {took:.0f} s, {len(churn.events)} things done", file=sys.stderr)
    finally:
        cluster.end()
    return runs, time.monotonic() - begin, None


def with_spread(values):
    spread = f", standard deviation {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.2f} %{spread}, of {len(values)} runs"


def three(values, unit="s"):
    return " / ".join(f"{quantile(values, share):.2f}" for share in (0.5, 0.9, 1)) + f" {unit}"


def print_costs(runs):
    """Seconds by kind: of all, and of those that nothing else fell together with."""
    counts = collections.Counter(kind for churn, _, _ in runs for kind, _ in churn.events)
    costs = [cost for churn, _, _ in runs for cost in churn.costs()]
    exchange = statistics.median(churn.usual() for churn, _, _ in runs)

    def row(name, times, belongs):
        all_of_it = [seconds for kind, _, seconds, _ in costs if belongs(kind)]
        alone = [seconds for kind, _, seconds, single in costs if belongs(kind) and single]
        print(f"| {name} | {times} | {three(all_of_it)} | {len(alone)}: {three(alone)} |")
        return all_of_it, alone

    print("| done | times | seconds lost: median / 90 % / most | nothing else within two exchanges |")
    print("|---|---|---|---|")
    for one in sorted(counts):
        row(one, counts[one], lambda kind, one=one: kind == one)
    total = sum(count for kind, count in counts.items() if kind.startswith("kill"))
    kills = row("all kills", total, lambda kind: kind.startswith("kill"))
    silences = counts["stop"] + counts["cut of a link"]
    silent = row("stops and cuts", silences, lambda kind: kind in ("stop", "cut of a link"))
    shares = [f"{100 * sum(one < most for one in which) / max(1, len(which)):.0f} %"
              for both, most in ((kills, 1 + exchange), (silent, 3)) for which in both]
    print(f"\nBelow 1 s and an exchange, which is {exchange:.2f} s: {shares[0]} of the kills, {shares[1]} of those "
          f"alone. Below 3 s: {shares[2]} of the stops and cuts, {shares[3]} of those alone.\n")


def print_page(arguments, runs, seconds, calm):
    total = {name: sum(summary[name] for _, summary, _ in runs)
             for name in ("exchanges", "samples", "images_lost", "nodes_lost", "nodes_joined")}
    changes = [change for _, _, changes in runs for change in changes]
    joins = [join for churn, _, _ in runs for join in churn.joins]
    print(f"{len(runs)} runs of {arguments.nodes} nodes and a spare one, {arguments.mbit:g} Mbit/s, in {seconds:.0f} s")
    print()
    print_costs(runs)
    print("| | |\n|---|---|")
    print(f"| disturbances | {sum(len(churn.events) for churn, _, _ in runs)} |")
    print(f"| nodes lost, joined | {total['nodes_lost']}, {total['nodes_joined']} |")
    print(f"| ends of all nodes, and on from a checkpoint | {sum(churn.begins - 1 for churn, _, _ in runs)} |")
    print(f"| images trained, lost | {total['samples']}, {total['images_lost']} "
          f"({100 * total['images_lost'] / total['samples']:.2f} %) |")
    print(f"| exchanges; with equal hashes of z; that had two results | {total['exchanges']}; "
          f"{sum(len(churn.hashes) for churn, _, _ in runs)}; {sum(churn.two_results for churn, _, _ in runs)} |")
    print(f"| who is left connects in: median / 90 % / most | {three([c['seconds'] for c in changes if c['lost']])} |")
    print(f"| the others wait for a join | {three([c['seconds'] for c in changes if c['joined']])} |")
    print(f"| from a newcomer's start until it is in | {three([one for one, _ in joins])} |")
    print(f"| what it fetches | {three([megabytes for _, megabytes in joins], 'MB')} |")
    print(f"| accuracy | {with_spread([summary['accuracy'] for _, summary, _ in runs])} |")
    if calm:
        print(f"| accuracy undisturbed, on loopback | {with_spread(calm)} |")


def compare_churn(arguments, folder, options):
    calm = CalmRuns(arguments, folder, options)
    try:
        runs, seconds, failure = disturbed_runs(arguments, folder, options)
        if runs:
            print_page(arguments, runs, seconds, calm.accuracies() if not failure else [])
    finally:
        calm.end()
    sys.exit(failure)


def train(prunex, run, nodes, seed, options):
    words = [prunex, "train", "--elastic", "--heartbeat-timeout", "1.5", "--nodes", str(nodes), "--seed", str(seed),
             "--run-dir", str(run), "--quiet"]
    with open(f"{run}.log", "w") as log:
        return subprocess.Popen(words + options, stdout=log, stderr=log)


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
                first, *others = lines_of(run / "metrics.jsonl")  # the first one also warms up
                seconds = sum(line["seconds"]["total"] for line in others)
                summary = json.loads((run / "summary.json").read_text())
                results[way].append((seconds, summary | {"timed": summary["samples"] - first["samples"]}))
    print(f"{arguments.nodes} nodes, the last {arguments.slow} times as slow, {arguments.seeds} seeds, medians:\n")
    print("| | seconds | images per second | images passed by | accuracy |\n|---|---|---|---|---|")
    for way, runs in results.items():
        rate = statistics.median(summary["timed"] / seconds for seconds, summary in runs)
        print(f"| {way} | {statistics.median(seconds for seconds, _ in runs):.1f} | {rate:.0f} | "
              f"{statistics.median(summary['images_lost'] for _, summary in runs)} | "
              f"{100 * statistics.mean(summary['accuracy'] for _, summary in runs):.2f} % |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prunex")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--every", type=float, default=12, help="seconds between two disturbances, on average")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--mbit", type=float, default=10, help="rate of every link of the cluster")
    parser.add_argument("--seeds", type=int, default=3, help="undisturbed runs to compare with")
    parser.add_argument("--draw", type=int, default=0, help="what chance draws from")
    parser.add_argument("--folder", help="where runs and their logs stay")
    parser.add_argument("--torchrun", help="where it is: compare with ranks that it starts again")
    parser.add_argument("--torchft", metavar="PYTHON", help="that has torchft: compare with it, too")
    parser.add_argument("--slow", type=float, help="one rank takes so many times as long, and nobody is lost")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:end])
    options = words[end + 1 :]
    compare = compare_restarts if arguments.torchrun or arguments.torchft else compare_churn
    arguments.prunex = str(pathlib.Path(arguments.prunex).resolve())
    if arguments.slow:
        return compare_slow(arguments, options or SLOW_OPTIONS)
    options = OPTIONS + options
    if arguments.folder:
        pathlib.Path(arguments.folder).mkdir(parents=True)
        return compare(arguments, pathlib.Path(arguments.folder).resolve(), options)
    with tempfile.TemporaryDirectory() as folder:
        return compare(arguments, pathlib.Path(folder), options)


if __name__ == "__main__":
    main()
