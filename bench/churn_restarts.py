"""The same kills for an elastic run, for a plain one whose ranks torchrun starts again, and for torchft."""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from churn_nodes import BENCH, Cluster, address_of, children, rank_variables, send

FOREVER = ["--exchanges", "1000000"]
FIRST = 12  # exchanges before the clock runs, and the kills: a checkpoint is among them
WITHIN = 300  # seconds in which they are made
# A rank that is started again goes on from the checkpoint.
GO_ON = 'run=$1; shift; [ -e "$run/checkpoint" ] && exec "$@" --resume "$run"; exec "$@" --run-dir "$run"'


class Elastic:
    """Whatever ends is started again."""

    name = "--elastic, a lost node is started again"

    def __init__(self, cluster, arguments, run, options):
        self.cluster, self.run, self.nodes = cluster, run, arguments.nodes
        training = ["train", "--elastic", "--nodes", str(arguments.nodes), *options]
        self.words = [arguments.prunex, *training, "--run-dir", str(run)]
        self.processes = [None] * self.nodes
        self.tick()

    def tick(self):
        for node, process in enumerate(self.processes):
            if process is None or process.poll() is not None:
                self.processes[node] = self.start(node)

    def start(self, node):
        return self.cluster.start(node, self.words, rank_variables(node, self.nodes), f"{self.run}-{node}.log")

    def images(self):
        """(exchanges, images) that the run has come to."""
        file = self.run / "metrics.jsonl"
        whole = [line for line in (file.read_text().splitlines(True) if file.exists() else []) if line.endswith("\n")]
        last = json.loads(whole[-1]) if whole else {"exchange": 0, "samples": 0}
        return last["exchange"], last["samples"]

    def kill(self, node):
        send(self.processes[node], signal.SIGKILL)

    def end(self):
        for process in self.processes:
            send(process, signal.SIGKILL)
            process.wait()


class Restarted(Elastic):
    """All ranks are started again when one has ended, by an agent on each node."""

    name = "torchrun --max-restarts, from the last checkpoint"

    def __init__(self, cluster, arguments, run, options):
        self.cluster, self.run = cluster, run
        training = [arguments.prunex, "train", "--heartbeat-timeout", "1.5", "--nodes", str(arguments.nodes),
                    *options]
        self.processes = []
        for node in range(arguments.nodes):
            agent = [arguments.torchrun, "--nnodes", str(arguments.nodes), "--nproc-per-node", "1", "--rdzv-backend",
                     "c10d", "--rdzv-endpoint", f"{address_of(0)}:29400", "--rdzv-id", "churn", "--rdzv-conf",
                     f"is_host={int(node == 0)}", "--local-addr", address_of(node), "--max-restarts", "1000000",
                     "--no-python", "sh", "-c", GO_ON, "sh", str(run), *training]
            self.processes.append(cluster.start(node, agent, {}, f"{run}-{node}.log"))

    def tick(self):
        for agent in self.processes:
            if agent.poll() is not None:
                sys.exit(f"{self.run}: torchrun ended with {agent.returncode}")

    def kill(self, node):
        for rank in children(self.processes[node].pid):
            os.kill(rank, signal.SIGKILL)

    def end(self):
        for agent in self.processes:
            ranks = children(agent.pid) if agent.poll() is None else []
            send(agent, signal.SIGKILL)
            agent.wait()
            for rank in ranks:
                os.kill(rank, signal.SIGKILL)


class Torchft(Elastic):
    """Replicas that a lighthouse on the first node brings together; it is spared."""

    name = "torchft, a lost replica is started again"

    def __init__(self, cluster, arguments, run, options):
        self.cluster, self.run, self.python = cluster, run, arguments.torchft
        run.mkdir()
        self.lengths = []
        for name in ("--local-steps", "--batch-size"):
            self.lengths += [name, word_after(options, name)]
        lighthouse = [str(Path(self.python).parent / "torchft_lighthouse"), "--min_replicas", "1",
                      "--heartbeat_timeout_ms", "1500"]  # as --heartbeat-timeout
        self.lighthouse = cluster.start(0, lighthouse, {}, f"{run}-lighthouse.log")
        self.processes = [None] * arguments.nodes
        self.tick()

    def start(self, node):
        words = [self.python, str(BENCH / "torchft_node.py"), address_of(node), f"http://{address_of(0)}:29510",
                 str(self.run / f"state-{node}"), *self.lengths]
        return self.cluster.start(node, words, {}, f"{self.run}-{node}.log")

    def images(self):
        states = [state.read_text().split() for state in self.run.glob("state-?")]
        return max(((int(exchange), int(images)) for exchange, images in states), default=(0, 0))

    def end(self):
        super().end()
        send(self.lighthouse, signal.SIGKILL)
        self.lighthouse.wait()


def word_after(options, name):
    return options[len(options) - options[::-1].index(name)]


def trained(way, kills, minutes):
    """Images in so many minutes, with kills of (second, node)."""
    begin = time.monotonic()
    while way.images()[0] < FIRST:
        way.tick()
        time.sleep(0.05)
        if time.monotonic() - begin > WITHIN:
            sys.exit(f"{way.run}: no {FIRST} exchanges in {WITHIN} s")
    before, begin, left = way.images()[1], time.monotonic(), list(kills)
    while time.monotonic() - begin < 60 * minutes:
        way.tick()
        if left and time.monotonic() - begin >= left[0][0]:
            way.kill(left.pop(0)[1])
        time.sleep(0.02)
    return way.images()[1] - before, time.monotonic() - begin


def compare_restarts(arguments, folder, options):
    draw, kills, at = random.Random(arguments.draw), [], 0.0
    while (at := at + draw.expovariate(1 / arguments.every)) < 60 * arguments.minutes:
        kills.append((at, draw.randrange(arguments.nodes)))
    cluster = Cluster(arguments.nodes, arguments.mbit, folder)
    print(f"{arguments.nodes} nodes, {arguments.mbit} Mbit/s, {len(kills)} kills in {arguments.minutes:g} minutes\n")
    print("| | images trained per hour | of what it is undisturbed |\n|---|---|---|")
    try:
        for kind in [Elastic, *([Restarted] if arguments.torchrun else []), *([Torchft] if arguments.torchft else [])]:
            rates = []
            for number, schedule in enumerate(([], kills)):
                way = kind(cluster, arguments, folder / f"{kind.__name__.lower()}-{number}", [*options, *FOREVER])
                images, seconds = trained(way, schedule, arguments.minutes if schedule else arguments.minutes / 4)
                way.end()
                rates.append(3600 * images / seconds)
            print(f"| {kind.name} | {rates[1]:.0f} | {100 * rates[1] / rates[0]:.0f} % |", flush=True)
    finally:
        cluster.end()
