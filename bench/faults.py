#!/usr/bin/env python3
"""How soon the survivors of a fault know of it, on an emulated cluster of 2 nodes x 2 ranks (bench/cluster.sh).

    bench/faults.py [--events 50] [--mbit 0] [--prunex build/release/prunex] kill stop cut

kill: rank 3 gets SIGKILL; stop: SIGSTOP; cut: the link of node 1 goes down. Times run until a rank's line on standard
error; every line must name a rank on the other side of the fault. Needs root.
"""
import argparse
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BENCH = pathlib.Path(__file__).resolve().parent
TRAINING = ("train --heartbeat-timeout 1.5 --nodes 2 --ranks-per-node 2 --samples 400 --model resnet8 "
            "--precision fp32 --batch-size 8 --local-steps 2 --exchanges 1000000 --eval-every 0").split()
VICTIM = 3
MOST_SECONDS = 60
SLOW = 3


class Run:
    """A training run on the cluster, and the lines on its standard error with their times."""

    def __init__(self, arguments, folder):
        command = [str(BENCH / "cluster.sh"), "2", "2", str(arguments.mbit), "--", arguments.prunex, *TRAINING,
                   "--run-dir", folder + "/run"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stderr:
            with self.changed:
                self.lines.append((time.monotonic(), line.rstrip()))
                self.changed.notify_all()

    def wait_for(self, found):
        """found(lines) within the time allowed, or nothing."""
        with self.changed:
            return self.changed.wait_for(lambda: found(self.lines), MOST_SECONDS)

    def pid_of(self, rank):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in children:
            if f"\0RANK={rank}\0".encode() in b"\0" + pathlib.Path(f"/proc/{pid}/environ").read_bytes():
                return int(pid)
        raise RuntimeError(f"no process of rank {rank}")

    def cut(self):
        subprocess.run(["ip", "-n", f"prunex-{self.process.pid}-switch", "link", "set", "node1.eth0", "down"],
                       check=True)

    def end(self):
        self.process.terminate()
        self.process.wait()


def notices(lines):
    """rank -> (time, rank it names, node it names), from its first line about a loss."""
    found = {}
    for moment, line in lines:
        match = re.match(r"(?:\[rank (\d+)\] )?prunex: .*lost rank (\d+) \(node (\d+)\)", line)
        if match:
            found.setdefault(int(match[1] or 0), (moment, int(match[2]), int(match[3])))
    return found


def is_right(rank, named_rank, named_node, fault):
    if fault == "cut":
        return named_node != rank // 2
    return (named_rank, named_node) == (VICTIM, VICTIM // 2)


def measure(fault, arguments):
    """Seconds until each survivor's line."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(arguments, folder)
        try:
            if not run.wait_for(lambda lines: any("exchange 3/" in line for _, line in lines)):
                raise RuntimeError(f"no training: {run.lines}")
            pid = run.pid_of(VICTIM)
            time.sleep(random.random())
            begin = time.monotonic()
            if fault == "cut":
                run.cut()
            else:
                os.kill(pid, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
            survivors = 4 if fault == "cut" else 3
            run.wait_for(lambda lines: len(notices(lines)) >= survivors)
            found = notices(run.lines)
            wrong = [rank for rank, (_, *named) in found.items() if not is_right(rank, *named, fault)]
            if len(found) < survivors or wrong:
                raise RuntimeError(f"{fault}: {len(found)} of {survivors} noticed, wrong: {wrong}: {run.lines}")
            seconds = [moment - begin for moment, *_ in found.values()]
            if max(seconds) > SLOW:
                said = [f"{moment - begin:8.3f}  {line}" for moment, line in run.lines if moment > begin]
                print(f"slow notice of {fault}:", *said, sep="\n", file=sys.stderr)
            return seconds
        finally:
            run.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="+", choices=["kill", "stop", "cut"])
    parser.add_argument("--events", type=int, default=50)
    parser.add_argument("--mbit", default="0", help="rate of every link; 0 = unshaped")
    parser.add_argument("--prunex", default=str(BENCH.parent / "build/release/prunex"))
    arguments = parser.parse_args()
    print("fault  events  notices   min    median   p90    max   (seconds)")
    for fault in arguments.faults:
        seconds = []
        for _ in range(arguments.events):
            seconds += measure(fault, arguments)
        seconds.sort()
        print(f"{fault:5}  {arguments.events:6}  {len(seconds):7}  {seconds[0]:6.3f}  {statistics.median(seconds):6.3f}  "
              f"{seconds[len(seconds) * 9 // 10]:6.3f}  {seconds[-1]:6.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
