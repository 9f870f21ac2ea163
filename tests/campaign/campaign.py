"""Damages each kind of file that prunex reads, hands it to every command that reads it, and counts what happens.

    .venv/bin/python tests/campaign/campaign.py BUILD [--kinds NAME...] [--truncations N] [--flips N] [--mutations N]
        [--seconds N] [--seed N]

BUILD holds prunex and campaign_server (cmake --build BUILD --target prunex_tool campaign_server). A case is a file cut
short, with one bit changed, or with its structure changed while its frame (zip, checksums) is whole. It must end as if
nothing had happened, with a result, or with one line that names the file; every other file must stay as it was. Equal
seeds make equal cases. A finding is printed with its file, which is kept in ./campaign-found.
"""
import argparse
import collections
import hashlib
import os
import pathlib
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile

import formats

FOREIGN = re.compile(r"_M_|std::|c10::|at::|torch::|basic_string|Exception raised|frame #|bad_alloc|terminate|\[json\.|"
                     r"what\(\)|INTERNAL ASSERT|internal error|\.cpp:\d|[^\x09\x20-\x7e\x80-\U0010ffff]")
PROGRESS = re.compile(r"exchange \d|the model is |.*, run directory |prunex: warning|prunex: images are normalised as|"
                      r"exchanges? |stopped")
DIVERGED = "the training loss is"  # not a number, of numbers that are none in a file
SHOWN = {}  # of findings that look alike, three
TRAIN = ["train", "--samples", "64", "--batch-size", "16", "--local-steps", "2", "--exchanges", "2", "--precision",
         "fp32", "--run-dir", "new"]


class Server:
    """prunex in a child of a process that has loaded its libraries."""

    def __init__(self, path, seconds):
        self.seconds = seconds
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, folder, words):
        """Exit code or minus the signal, None if it did not end in time; standard output and error."""
        self.process.stdin.write("\t".join([str(folder), *words]) + "\n")
        self.process.stdin.flush()
        child = int(self.process.stdout.readline())
        hangs = not select.select([self.process.stdout], [], [], self.seconds)[0]
        if hangs:
            os.killpg(child, signal.SIGKILL)
        status = int(self.process.stdout.readline())
        texts = [(folder / name).read_text(errors="replace") for name in ("out", "err")]
        for name in ("out", "err"):
            (folder / name).unlink()
        return (None if hangs else status), *texts


class Case:
    """A format's files in a folder, one of them damaged, and what a command made of them."""

    def __init__(self, kind, base, folder, file):
        self.kind, self.base, self.folder, self.file = kind, base, folder, file
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(base, folder)

    def run(self, server, words):
        self.words = words
        self.before = snapshot(self.folder)
        self.status, self.output, self.errors = server.run(self.folder, words)
        self.after = snapshot(self.folder)
        lines = self.errors.splitlines()
        self.lines = [line for line in lines if not PROGRESS.match(line)]

    def lost(self):
        """What is gone, changed or half-written."""
        written = self.kind.writes(self.words)
        began = self.status == 0 or DIVERGED in self.errors  # a run that failed later is left to look at
        allowed = lambda path: began and any(path == w or path.startswith(w + "/") for w in written)
        changed = [path for path in self.before if self.after.get(path) != self.before[path] and not allowed(path)]
        new = [path for path in self.after if path not in self.before and not allowed(path)]
        return changed + new

    def findings(self):
        found = []
        if self.status is None:
            return ["hangs"]
        if self.status < 0:
            return [f"signal {-self.status}"]
        if self.status not in (0, 1, 2):
            found.append(f"exit code {self.status}")
        if self.status != 0 and (len(self.lines) != 1 or not self.lines[0].startswith("prunex: ")):
            found.append(f"{len(self.lines)} lines")
        if self.status != 0 and DIVERGED not in self.errors and not self.kind.names(self.file).search(self.errors):
            found.append("file not named")
        if FOREIGN.search(self.errors.replace("\n", "")):
            found.append("foreign text")
        if lost := self.lost():
            found.append("lost or left: " + " ".join(lost[:4]))
        return found


def snapshot(folder):
    """Digests of the files and names of the folders."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in files:
            path = pathlib.Path(root, name)
            found[str(path.relative_to(folder))] = hashlib.md5(path.read_bytes()).hexdigest()
        found.update({str(pathlib.Path(root, name).relative_to(folder)): "folder" for name in folders})
    return found


def result_of(case):
    """What of a result must be equal for equal inputs; of a report, which has the hour, nothing."""
    if case.words[0] == "report":
        return b""
    for product in case.kind.products(case.words):
        if (case.folder / product).exists():
            return (case.folder / product).read_bytes()
    return re.sub(r"[0-9.]+ ms.*", "", case.output).encode()


def damaged(way, file, count, seed):
    """(what was done, bytes): `count` times."""
    whole = file.read_bytes()
    draw = random.Random(f"{seed} {way} {file.name}")
    for i in range(count):
        if way == "truncation":
            yield f"first {len(whole) * i // count} bytes", whole[: len(whole) * i // count]
        elif way == "flip":
            place, bit = draw.randrange(len(whole)), draw.randrange(8)
            yield f"bit {bit} of byte {place}", whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :]
        else:
            yield formats.mutate(file, whole, draw)


def attack(kind, base, server, options, counts):
    folder = pathlib.Path(options.scratch, "case")
    undamaged = {}
    for words in kind.commands:
        case = Case(kind, base, folder, kind.files[0])
        case.run(server, words)
        if case.status != 0:
            sys.exit(f"{kind.name}: {' '.join(words)}: {case.errors}")
        undamaged[tuple(words)] = result_of(case)
    for way, total in (("truncation", options.truncations), ("flip", options.flips), ("mutation", options.mutations)):
        row = counts[kind.name, way]
        for n, file in enumerate(kind.files):
            count = total // len(kind.files) + (n < total % len(kind.files))
            for what, content in damaged(way, base / file, count, options.seed):
                words = kind.commands[row["cases"] % len(kind.commands)]
                row["cases"] += 1
                case = Case(kind, base, folder, file)
                (folder / file).write_bytes(content)
                case.run(server, words)
                count_case(case, row, undamaged[tuple(words)], what, content)


def count_case(case, row, whole, what, content):
    found = case.findings()
    if case.status == 0:
        same = result_of(case) == whole
        row["same" if same else "other"] += 1
        if not same and case.kind.checked and what.startswith(("bit", "first")):
            found.append("damage unnoticed")
    elif case.status in (1, 2):
        row["refused"] += 1
    for finding in found:
        row[finding.split(":")[0] if finding.startswith("lost") else finding.split(" ")[0]] += 1
    if found:
        row["found"] += 1
        pattern = re.sub(r"'[^']*'|[0-9]+", "", case.errors)[:200] + str(found)
        if (shown := SHOWN.setdefault(pattern, [])) and len(shown) > 2:
            return
        shown.append(what)
        kept = pathlib.Path("campaign-found", f"{case.kind.name}-{row['found']}-{pathlib.Path(case.file).name}")
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(content)
        print(f"{kept}: {what}: prunex {' '.join(case.words)}: {', '.join(found)}\n    " +
              case.errors[:600].replace("\n", "\n    "), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--kinds", nargs="+")
    for name, count in (("truncations", 50), ("flips", 500), ("mutations", 500), ("seed", 1), ("seconds", 20)):
        parser.add_argument(f"--{name}", type=int, default=count)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    counts = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as options.scratch:
        server = Server(options.build.resolve() / "campaign_server", options.seconds)
        for kind in formats.kinds(TRAIN):
            if options.kinds and kind.name not in options.kinds:
                continue
            base = pathlib.Path(options.scratch, kind.name)
            kind.make(base, options.build.resolve() / "prunex")
            attack(kind, base, server, options, counts)
            for (name, way), row in counts.items():
                if name == kind.name:
                    print(name, way, dict(row), flush=True)
    sys.exit(any(row["found"] for row in counts.values()))


main()
