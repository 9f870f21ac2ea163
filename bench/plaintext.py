#!/usr/bin/env python3
"""plaintext.py: trains two ranks on the emulated cluster (bench/cluster.sh, as root) from known weights, records what
crosses node 0's link, and looks for those weights in it: without a secret, and with --encrypt.

    bench/plaintext.py [PRUNEX]         default: build/release/prunex
"""
import ctypes
import json
import secrets
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRUNEX = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/release/prunex")
TRAIN = [PRUNEX, "train", "--model", "resnet20", "--samples", "400", "--batch-size", "16", "--strategy", "local_sgd",
         "--exchanges", "4", "--local-steps", "2", "--eval-every", "0", "--quiet"]
ALL_PROTOCOLS = 3
CLONE_NEWNET = 0x40000000


def weights(path):
    """The bytes of the tensors as they lie in memory, which is channels last for filters."""
    data = Path(path).read_bytes()
    header = 8 + struct.unpack("<Q", data[:8])[0]
    for name, entry in json.loads(data[8:header]).items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = entry["data_offsets"]
        numbers = [data[header + i:header + i + 4] for i in range(begin, end, 4)]
        if len(entry["shape"]) == 4:
            n, c, h, w = entry["shape"]
            numbers = [numbers[((i * c + k) * h + y) * w + x]
                       for i in range(n) for y in range(h) for x in range(w) for k in range(c)]
        yield b"".join(numbers)


def windows(path):
    found = [text[i:i + 32] for text in weights(path) for i in range(0, len(text) - 32, 4096)]
    return [window for window in found if len(set(window)) > 8]  # no runs of zeros and ones


def record(namespace, packets, stop):
    with open(f"/run/netns/{namespace}") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) != 0:  # of this thread
            raise OSError(ctypes.get_errno(), "setns")
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)) as link:
        link.bind(("node0.eth0", 0))
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        link.settimeout(0.2)
        while not stop.is_set():
            try:
                packets.append(link.recv(1 << 17))
            except TimeoutError:
                pass
            except OSError:  # the cluster has ended
                return


def train(folder, *options):
    command = [str(ROOT / "bench/cluster.sh"), "2", "1", "400", "--", *TRAIN, "--nodes", "2", "--weights",
               f"{folder}/start/model.safetensors", "--run-dir", f"{folder}/run{len(options)}", *options]
    cluster = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    switch = f"prunex-{cluster.pid}-switch"
    while subprocess.run(["ip", "-n", switch, "link", "show", "node0.eth0"], capture_output=True).returncode != 0:
        if cluster.poll() is not None:
            sys.exit(f"plaintext.py: the cluster ended with status {cluster.returncode}")
        time.sleep(0.02)
    packets, stop = [], threading.Event()
    recorder = threading.Thread(target=record, args=(switch, packets, stop))
    recorder.start()
    if cluster.wait() != 0:
        sys.exit("plaintext.py: the run failed")
    stop.set()
    recorder.join()
    if not packets:
        sys.exit("plaintext.py: nothing was recorded")
    return b"\n".join(packets)


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*TRAIN, "--run-dir", f"{folder}/start"], check=True, stdout=subprocess.DEVNULL)
        secret = Path(folder, "secret")
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_hex(32))
        known = windows(f"{folder}/start/model.safetensors")
        for name, options in ("plain", ()), ("encrypted", ("--secret-file", str(secret), "--encrypt")):
            seen = train(folder, *options)
            print(f"{name}: {len(seen)} bytes crossed the link, {sum(window in seen for window in known)} of "
                  f"{len(known)} pieces of the weights, of 32 bytes each, in plaintext")


main()
