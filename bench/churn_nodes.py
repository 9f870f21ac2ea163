"""Processes on the nodes of an emulated cluster (bench/cluster.sh); links can be cut, and clocks jump."""

import os
import pathlib
import signal
import subprocess
import sys
import time

BENCH = pathlib.Path(__file__).resolve().parent
PORT = 29500
FAKETIME = "faketime/libfaketimeMT.so.1"


def children(pid):
    """The processes that a process has started and that live."""
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def address_of(node):
    return f"10.70.0.{node + 1}"


def rank_variables(node, nodes):
    """What a launcher tells the rank of a node that has one."""
    return {"RANK": node, "WORLD_SIZE": nodes, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": node,
            "MASTER_ADDR": address_of(0), "MASTER_PORT": PORT}


def faketime_library():
    """Where the library is that lies about the wall clock, or nothing."""
    found = [path for folder in ("/usr/lib", "/usr/local/lib") for path in pathlib.Path(folder).glob(f"*/{FAKETIME}")]
    return str(found[0]) if found else None


class Cluster:
    """Namespaces with shaped links, each kept by a process that sleeps."""

    def __init__(self, nodes, mbit, folder, library=None):
        """`library`: a faketime_library(), so that clocks can jump."""
        self.folder = pathlib.Path(folder)
        self.library = library
        self.process = subprocess.Popen(
            [str(BENCH / "cluster.sh"), str(nodes), "1", str(mbit), "--burst", "16", "--", "sleep", "infinity"],
            stdout=subprocess.DEVNULL)
        self.keepers = {}
        while len(self.keepers) < nodes:
            if self.process.poll() is not None:
                sys.exit(self.process.returncode)
            time.sleep(0.05)
            self.keepers = dict(self._keepers())
        for node in range(nodes):
            self.jump(node, 0)

    def _keepers(self):
        for pid in children(self.process.pid):
            try:
                command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has made a link, and ended
            for variable in variables if command[0] == b"sleep" else []:
                if variable.startswith(b"RANK="):
                    yield int(variable[5:]), pid

    def start(self, node, words, environment, log):
        """A process on the node; what it says goes to the end of a file."""
        lies = {}
        if self.library:
            lies = {"LD_PRELOAD": self.library, "FAKETIME_TIMESTAMP_FILE": str(self._clock(node)),
                    "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_CACHE_DURATION": "1"}
        variables = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", **lies, **environment}
        command = ["ip", "netns", "exec", f"prunex-{self.process.pid}-node{node}", "env",
                   *(f"{name}={value}" for name, value in variables.items()), *words]
        with open(log, "a") as output:
            return subprocess.Popen(command, stdout=output, stderr=output)

    def set_link(self, node, state):
        subprocess.run(["ip", "-n", f"prunex-{self.process.pid}-switch", "link", "set", f"node{node}.eth0", state],
                       check=True)

    def bytes_of(self, node):
        """(received, sent) by the node so far."""
        for line in pathlib.Path(f"/proc/{self.keepers[node]}/net/dev").read_text().splitlines():
            if line.strip().startswith("eth0:"):
                fields = line.split(":")[1].split()
                return int(fields[0]), int(fields[8])
        return 0, 0

    def _clock(self, node):
        return self.folder / f"clock-{node}"

    def jump(self, node, seconds):
        """The node's wall clock is wrong by so much from now on; monotonic clocks are not."""
        new = self.folder / "clock.new"
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._clock(node))

    def forget(self, process):
        """What a killed process leaves of the library that lies about clocks."""
        for name in (f"faketime_shm_{process.pid}", f"sem.faketime_sem_{process.pid}"):
            pathlib.Path("/dev/shm", name).unlink(missing_ok=True)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def send(process, what):
    """A signal to a process that may have ended."""
    if process is not None and process.poll() is None:
        os.kill(process.pid, what)
