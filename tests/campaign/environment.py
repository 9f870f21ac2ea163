"""Runs prunex where something of its environment is missing, full, slow or hostile, and counts what happens.

    tests/campaign/environment.py BUILD [--only PART_OF_A_NAME] [--verbose]       as root, for mounts and name spaces

Each case is a line of bash in a folder and a mount name space of its own, with $P the command and $T a short training.
It must end as the case says: as if nothing had happened, or with one line and an exit code of 1, 2 or
128 + a signal that was sent. Afterwards no process of it may be left, and what lay in the folder before, a finished run
in `old` and a network in net.pt2, must be as it was.
"""
import argparse
import collections
import hashlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

import formats

PROGRESS = re.compile(r"exchange \d|the model is |.*, run directory |(\[rank \d\] )?prunex: (warning|"
                      r"images are normalised|.*; waiting for |signal \d+: the run ends after)|bash: |$")
OWN = re.compile(r"(\[rank \d\] )?prunex: |Intel oneMKL FATAL ERROR: ")  # without a folder LibTorch does not load
FOREIGN = re.compile(r"_M_|std::|c10::|at::|torch::|basic_string|Exception raised|frame #|bad_alloc|terminate|\[json\.|"
                     r"what\(\)|INTERNAL ASSERT|internal error|\.cpp:\d|\[enforce")
HELPERS = r"""
export T="$P train --model resnet8 --width 0.25 --samples 64 --batch-size 4 --local-steps 1"
T+=" --precision fp32 --eval-every 0"
LONG="$T --exchanges 2000 --checkpoint-every 20 --run-dir run"
TWO="--nodes 2 --join-timeout 5"
small() { mkdir -p small; mount -t tmpfs -o "size=$1,${2:-rw}" tmpfs small; }
soon() { for ((i = 0; i < 400; ++i)); do "$@" && return; sleep 0.05; done; echo "never: $*" >&2; exit 99; }
says() { grep -qs "$1" "${2:-err}"; }
has_ranks() { [[ -n $(ranks "$1") ]]; }
ranks() { pgrep -P "$1" | head -n "${2:-9}"; }
"""
# (name, what may come, bash). What may come: exit codes; a text that standard error must hold may follow.
CASES = []


def case(name, codes, script, says=""):
    CASES.append((name, codes if isinstance(codes, tuple) else (codes,), script, says))


LINE = (1, 2)
# Disks and directories
case("full disk: train", LINE, 'small 16k; $T --exchanges 2 --run-dir small/run', "small")
case("full disk: product of train", LINE, 'small 40k; $T --exchanges 2 --run-dir small/run', "small/run")
case("full disk: checkpoints of train", (0, 1), 'small 120k; $T --exchanges 6 --checkpoint-every 1 --run-dir small/run')
case("full disk: graph --json", LINE, 'small 4k; $P graph --model resnet20 --json small/g.json >out', "small/g.json")
case("full disk: graph --save", LINE, 'small 4k; $P graph --model resnet20 --save small/g.pt2 >out', "small/g.pt2")
case("full disk: predict", LINE, 'small 4k; head -c 4096 /dev/zero >small/full; $P predict --model net.pt2 --input '
     'in.safetensors --output small/o --mean 0,0,0 --std 1,1,1', "small/o")
case("full disk: prune", LINE, 'small 16k; $P prune --model net.pt2 --ratio 0.2 --output small/o', "small/o")
case("full disk: report", LINE, 'small 8k; $P report old --output small/page.html', "small/page.html")
case("full disk: eval --json", LINE, 'small 4k; head -c 4096 /dev/zero >small/full; $P eval --model net.pt2 '
     '--samples 40 '
     '--json small/e', "small/e")
case("full disk: $TMPDIR", 0, 'small 4k; head -c 4096 /dev/zero >small/full; TMPDIR=$PWD/small $T --exchanges 2 $TWO')
case("no inodes left", LINE, 'small 1m nr_inodes=2; $T --exchanges 2 --run-dir small/run', "small/run")
case("read-only file system: train", LINE, 'small 1m ro; $T --exchanges 2 --run-dir small/run', "small/run")
case("read-only file system: predict", LINE, 'small 1m ro; $P predict --model net.pt2 --input in.safetensors --output '
     'small/o --mean 0,0,0 --std 1,1,1', "small/o")
case("read-only file system: --resume", LINE, 'small 1m; $LONG --run-dir small/run 2>err1 & soon says "exchange 30/" '
     'err1; kill $!; '
     'wait $!; mount -o remount,ro small; $P train --resume small/run', "small/run")
case("read-only file system: current folder", LINE, 'small 1m ro; cd small; $T --exchanges 2', "runs")
case("no /dev/shm, 2 ranks", 0, 'umount -l /dev/shm; $T --exchanges 2 --ranks-per-node 2')
case("read-only /dev/shm, 2 ranks", 0, 'mount -t tmpfs -o ro tmpfs /dev/shm; $T --exchanges 2 --ranks-per-node 2')
case("no /proc, 2 ranks", (0, 1, 2), 'umount -l /proc; $T --exchanges 2 --ranks-per-node 2')
case("no /tmp", 0, 'small 4k ro; mount --bind small /tmp; $T --exchanges 2 $TWO')
case("no /dev/null", (0, 1, 2), 'mount -t tmpfs tmpfs /dev; $T --exchanges 2 $TWO')
case("current folder removed", LINE, 'mkdir gone; cd gone; rmdir ../gone; $T --exchanges 2')
case("current folder removed, full paths", LINE, 'D=$PWD; mkdir gone; cd gone; rmdir ../gone; $T --exchanges 2 '
     '--run-dir $D/run')
# Standard streams
case("standard input closed", 0, '$T --exchanges 2 <&-')
case("standard output closed: graph", 1, '$P graph --model resnet8 >&-', "standard output")
case("standard output closed: train", (0, 1), '$T --exchanges 2 >&-')
case("standard error closed: train", 0, '$T --exchanges 2 $TWO 2>&-')
case("all three closed: train", (0, 1), '$T --exchanges 2 $TWO <&- >&- 2>&-')
case("standard output full: graph", 1, '$P graph --model resnet8 >/dev/full', "standard output")
case("standard output full: eval", 1, '$P eval --model net.pt2 --samples 40 >/dev/full', "standard output")
case("standard output full: report", 1, '$P report old --output page.html >/dev/full', "standard output")
case("standard output full: --help-all", 1, '$P train --help-all >/dev/full', "standard output")
case("standard error full: train", 0, '$T --exchanges 2 $TWO 2>/dev/full')
case("standard error not read: train", 0, '$T --exchanges 60 2> >(head -n 1 >/dev/null)')
case("standard output not read: graph", (0, 1), 'set -o pipefail; $P graph --model resnet56 | true')
# Variables
case("no environment", 0, 'env -i PRUNEX_CASE=$PRUNEX_CASE ${T} --exchanges 2 $TWO')
case("HOME, TMPDIR, PATH unset", 0, 'M=$T; unset HOME TMPDIR PATH; $M --exchanges 2 $TWO')
case("TMPDIR that is not there", 0, 'TMPDIR=/nowhere HOME=/nowhere $T --exchanges 2 $TWO')
case("LD_LIBRARY_PATH to nowhere", 0, 'LD_LIBRARY_PATH=/nowhere $T --exchanges 2 $TWO')
case("a locale that is not there", 0, 'LC_ALL=xx_YY.KOI8 LANG=$(head -c 3000 /dev/zero | tr "\\0" x) $T --exchanges 2')
case("a locale with decimal commas", 0, 'LC_ALL=de_DE.UTF-8 $T --exchanges 2 --lr 0.05')
case("a huge environment", 0, 'for i in {1..15}; do export V$i=$(head -c 100000 /dev/zero | tr "\\0" x); done; '
     '$T --exchanges 2 $TWO')
for value in ("0", "-3", "x", "100000", "4,2", "99999999999999999999"):
    case(f"OMP_NUM_THREADS={value}", 0, f'OMP_NUM_THREADS={value} $T --exchanges 2')
for variables in ("RANK=x WORLD_SIZE=2", "RANK=0 WORLD_SIZE=-1", "RANK=5 WORLD_SIZE=2", "RANK=0", "SLURM_PROCID=x",
                  "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=9", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=1",
                  "PMI_RANK=0 PMI_SIZE=", "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=99999"):
    case(f"launcher's {variables}", (0, 1, 2), f'env {variables} $T --exchanges 2 --join-timeout 3')
case("report beside a folder of somebody else's", 0, 'mkdir -m 755 runs; cp -r old runs/a; mkdir -m 700 runs/b; mkdir '
     '-m 777 pages; chmod 755 .; setpriv --reuid 65000 --regid 65000 --clear-groups $P report runs '
     '--output pages/page.html')
# Limits
case("ulimit -v 12 GB", (0, 1), 'ulimit -v 12000000; $T --exchanges 2')
for mega in (700, 1000, 1500):
    case(f"ulimit -v {mega} MB", (0, 1, 127), f'ulimit -v {mega}000; $T --samples 40000 --exchanges 2')
case("ulimit -n 30, 4 ranks", (0, 1), 'ulimit -n 30; $T --exchanges 2 --ranks-per-node 4 --join-timeout 5', )
case("ulimit -n 8", (0, 1, 127), 'ulimit -n 8; $T --exchanges 2')
case("ulimit -f 16 kB: train", 1, 'ulimit -f 16; $T --exchanges 2 --run-dir run', "run")
case("ulimit -f 1 kB: prune", 1, 'ulimit -f 1; $P prune --model net.pt2 --ratio 0.2 --output o', "o")
case("ulimit -f 0: report", 1, 'exec 2> >(cat >>err); ulimit -f 0; $P report old --output '
     'page.html; S=$?; sleep 0.2; exit $S', "page.html")
case("ulimit -u 8 as nobody, 4 ranks", (0, 1), 'chmod 777 .; exec setpriv --reuid 65000 --regid 65000 --clear-groups '
     'bash -c '
     '"ulimit -u 8; $T --exchanges 2 --ranks-per-node 4 --join-timeout 5"')
case("ulimit -s 256 kB", 0, 'ulimit -s 256; $T --exchanges 2')
case("ulimit -l 0", 0, 'ulimit -l 0; $T --exchanges 2 --ranks-per-node 2')
case("one core, 2 ranks of 2 threads", 0, 'taskset -c 0 $T --exchanges 2 --ranks-per-node 2 --threads 2')
case("nice 19", 0, 'nice -n 19 $T --exchanges 2 $TWO')
# Network
case("no loopback, 1 rank", 0, 'unshare -n $T --exchanges 2')
case("no loopback, 2 ranks", (0, 1), 'unshare -n $T --exchanges 2 $TWO')
JOIN = ('env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=0 MASTER_PORT=$PORT MASTER_ADDR=${ADDRESS:-'
        '127.0.0.1} $T --exchanges 2 --nodes 2 --join-timeout 4')
SECOND = JOIN.replace("RANK=0 WORLD", "RANK=1 WORLD").replace("GROUP_RANK=0", "GROUP_RANK=1")
STRANGER = ('python3 -c "import socket,time,os\ns=socket.socket(); s.setsockopt(1,2,1); s.bind((\'127.0.0.1\',$PORT)); '
            's.listen()\nwhile True:\n c=s.accept()[0]\n ANSWER\n" 2>/dev/null & sleep 0.3; ')
case("port taken", 1, STRANGER.replace('ANSWER', "time.sleep(99)") + JOIN + "; S=$?; kill %1; exit $S")
case("a stranger instead of the store: silent", 1, STRANGER.replace('ANSWER', "time.sleep(99)") + SECOND + "; S=$?; "
     "kill %1; exit $S")
case("a stranger instead of the store: garbage", 1, STRANGER.replace('ANSWER', "c.sendall(os.urandom(9999))") + SECOND +
     "; S=$?; kill %1; exit $S")
case("a stranger instead of the store: hangs up", 1, STRANGER.replace('ANSWER', "c.close()") + SECOND + "; S=$?; "
     "kill %1; exit $S")
case("a stranger instead of the store: slow", 1, STRANGER.replace('ANSWER', "[(c.send(b'x'), time.sleep(0.3)) for _ "
     "in range(99)]") +
     SECOND + "; S=$?; kill %1; exit $S")
CALLER = ('(for i in {1..100}; do CALL; sleep 0.02; done) & ' + JOIN + ' & F=$!; ' +
          SECOND + ' 2>>err2; S=$?; wait $F || S=$?; '
          'exit $S')
case("strangers call the store: garbage", 0, CALLER.replace('CALL', 'head -c 2000 /dev/urandom '
     '>/dev/tcp/127.0.0.1/$PORT 2>/dev/null'))
case("strangers call the store: silent", 0, CALLER.replace('CALL', '{ exec {d}<>/dev/tcp/127.0.0.1/$PORT; } '
     '2>/dev/null'))
case("nobody at MASTER_ADDR", 1, SECOND, "127.0.0.1")
case("MASTER_ADDR that is no name", 1, 'ADDRESS=no.such.host.invalid; ' + SECOND, "no.such.host.invalid")
case("MASTER_ADDR without a route", 1, 'ADDRESS=10.255.255.1; ip link set lo up; unshare -n ' + SECOND, "10.255.255.1")
case("--interface that is not there", LINE, '$T --exchanges 2 $TWO --interface nope9', "nope9")
case("a rank that never comes", 1, JOIN, "rank 1")
# Ranks and signals
KILL = 'LONGTWO="$LONG $TWO"; $LONGTWO & L=$!; soon says "{}"; {}; wait $L; exit $?'
case("SIGKILL of a rank in its first moments", 1, '$LONG $TWO & L=$!; soon has_ranks $L; kill -9 $(ranks $L 1); wait '
     '$L', "rank")
for at in (1, 20, 41):
    case(f"SIGKILL of a rank after exchange {at}", 1, KILL.format(f"exchange {at}/", "kill -9 $(ranks $L | tail -n "
         "1)"), "rank")
case("SIGSTOP of a rank", 1, KILL.format("exchange 20/", "kill -STOP $(ranks $L | tail -n 1)"), "rank")
case("SIGTERM to a container's first process", 143, "unshare -pf " + JOIN.replace("timeout 4", "timeout 60") +
     ' & U=$!; soon has_ranks $U; sleep 1; kill $(ranks $U); wait $U; exit $?')
case("SIGKILL of the launcher", 137, KILL.format("exchange 20/", "kill -9 $L"))
case("SIGSTOP of the launcher for a second", 0, '$T --exchanges 40 $TWO & L=$!; soon says "exchange 2/"; kill -STOP '
     '$L; '
     'sleep 1; kill -CONT $L; wait $L')
for name, code in (("INT", 130), ("TERM", 143), ("HUP", 129)):
    case(f"SIG{name} to a rank's launcher", code, KILL.format("exchange 20/", f"kill -{name} $L"), "--resume run "
         "goes on")
    case(f"SIG{name} to a run of one rank", code, f'env --default-signal=INT $LONG & L=$!; soon says "exchange 20/"; '
         f'kill -{name} $L; wait $L',
         "--resume run goes on")
for delay in (0.05, 0.3, 0.6):
    case(f"SIGTERM after {delay} s", 143, f'$LONG $TWO & L=$!; sleep {delay}; kill $L; wait $L')
case("SIGTERM to all processes at once", 143, KILL.format("exchange 20/", "kill $L $(ranks $L)"), "--resume run goes "
     "on")
case("SIGINT twice", 130, KILL.format("exchange 20/", "kill -INT $L; sleep 2.5; kill -INT $L"))
case("SIGUSR1 in the first moments", (0, 138), '$T --exchanges 20 $TWO & L=$!; sleep 0.2; kill -USR1 $L; wait $L')
case("SIGUSR1 to a run", 0, '$T --exchanges 300 $TWO & L=$!; soon says "exchange 9/"; kill -USR1 $L; wait $L')
case("SIGTERM to prune", 143, '$P prune --model resnet56 --ratio 0.5 --steps 200 --output o & L=$!; sleep 0.6; kill '
     '$L; wait $L')
case("SIGTERM to compare", 143, 'printf '
     '"seeds=[0]\\n[common]\\nmodel=\\"resnet8\\"\\nsamples=640\\n[[run]]\\nname=\\"a\\"\\n" '
     '>c.toml; $P compare c.toml --output c & L=$!; soon test -e c/a; sleep 1; kill $L; wait $L')
# Files that go while they are used
case("run directory removed in a run", (0, 1), '$T --exchanges 300 --run-dir run & soon says "exchange 20/"; rm -r '
     'run; wait $!',
     "run")
case("checkpoints removed in a run", 0, '$T --exchanges 300 --checkpoint-every 5 --run-dir run & soon says "exchange '
     '20/"; '
     'rm -r run/checkpoint; wait $!')
case("metrics.jsonl removed in a run", (0, 1), '$T --exchanges 300 --run-dir run & soon says "exchange 20/"; '
     'rm run/metrics.jsonl; wait $!')
case("run directory made read-only in a run", (0, 1), 'small 1m; $T --exchanges 300 --run-dir small/run & soon says '
     '"exchange 20/"; mount -o remount,ro small; wait $!', "small/run")
case("a checkpoint's file removed", LINE, '$LONG 2>err1 & soon says "exchange 30/" err1; kill $!; wait $!; rm '
     'run/checkpoint/*/z.safetensors; '
     '$P train --resume run', "run")
case("two runs in one directory", LINE, '$LONG 2>err1 & L=$!; soon says "exchange 5/" err1; $T --exchanges 2 '
     '--run-dir run; S=$?; kill $L; '
     'wait $L; exit $S', "run")
case("two resumed runs in one directory", LINE, '$LONG 2>err1 & L=$!; soon says "exchange 30/" err1; kill $L; wait '
     '$L; $P train --resume run '
     '2>err2 & L=$!; soon says "exchange 4" err2; $P train --resume run; S=$?; kill $L; wait $L; exit $S', "run")
case("a run into finished results", LINE, '$T --exchanges 2 --run-dir old', "old")
case("data removed in a run", 0, '$T --dataset d.safetensors --test d.safetensors --exchanges 300 & soon says '
     '"exchange 20/"; '
     'rm -f copy d.safetensors; wait $!')
case("data cut short in a run", 0, '$T --dataset d.safetensors --test d.safetensors --exchanges 300 & soon says '
     '"exchange 20/"; '
     ': >d.safetensors; wait $!')
case("network cut short in a run", 0, 'cp net.pt2 n.pt2; $T --model n.pt2 --exchanges 300 & soon says "exchange '
     '20/"; : >n.pt2; '
     'wait $!')
# Paths
for name, path in (("blanks and quotes", "a \"b' c"), ("#", "a#b"), ("a line break", "a\nb"), ("no UTF-8", b"a\xffb"),
                   ("escape codes", "a\x1b[31mb"), ("a leading -", "./-a"), ("200 letters", "ä" * 100)):
    quoted = "$'" + "".join(f"\\x{byte:02x}" for byte in (path if isinstance(path, bytes) else path.encode())) + "'"
    case(f"path with {name}", (0, 2) if name == "no UTF-8" else 0,
         f'D={quoted}; $T --exchanges 40 --checkpoint-every 10 --run-dir "$D" & soon says "exchange 15/"; kill $!; '
         f'wait $!; '
         '[[ $? == 143 ]] || exit 2; $P train --resume "$D" && $P report "$D" --output page.html')
case("a path of 5000 letters", LINE, 'D=$(head -c 5000 /dev/zero | tr "\\0" x); $T --exchanges 2 --run-dir "$D"')
case("a symbolic link to itself: model", LINE, 'ln -s loop.pt2 loop.pt2; $P graph --model loop.pt2', "loop.pt2")
case("a symbolic link to itself: run", LINE, 'ln -s loop loop; $T --exchanges 2 --run-dir loop', "loop")
case("a ring of folders: report", 0, 'mkdir ring; ln -s .. ring/up; cp -r old ring/run; $P report ring --output '
     'page.html')
for option in ("graph --model", "eval --model", "predict --output o --input in.safetensors --model", "train --config",
               "train --weights", "train --test in.safetensors --dataset", "train --resume", "compare", "report"):
    name = {"graph": "n.pt2", "eval": "n.pt2", "predict": "n.pt2"}.get(option.split()[0], "n")
    case(f"a FIFO that nobody writes: {option}", LINE, f"mkfifo {name}; $P {option} {name}", name)
case("a folder as a network", LINE, 'mkdir n.pt2; $P graph --model n.pt2', "n.pt2")
case("/dev/zero as a network", LINE, 'ln -s /dev/zero n.pt2; $P graph --model n.pt2', "n.pt2")
case("/dev/zero as a configuration", LINE, '$P train --config /dev/zero', "/dev/zero")
case("/dev/zero as weights", LINE, '$P train --weights /dev/zero', "/dev/zero")
# Clocks
FAKE = "$(ls /usr/lib/*/faketime/libfaketime.so.1)"
case("clock set back a year in a run", 0, f'echo +0d >clock; export LD_PRELOAD={FAKE} '
     f'FAKETIME_TIMESTAMP_FILE=$PWD/clock '
     'FAKETIME_NO_CACHE=1 DONT_FAKE_MONOTONIC=1; $T --exchanges 200 $TWO & soon says "exchange 20/"; echo -365d '
     '>clock; wait $!')
case("clock in the year 2200", 0, f'LD_PRELOAD={FAKE} FAKETIME="2200-01-01 00:00:00" DONT_FAKE_MONOTONIC=1 $T '
     f'--exchanges 2 $TWO')


def snapshot(folder):
    return {str(path.relative_to(folder)): hashlib.md5(path.read_bytes()).hexdigest()
            for name in ("old", "net.pt2", "in.safetensors") for path in [folder / name, *(folder / name).rglob("*")]
            if path.is_file()}


def left_over(mark):
    """Processes that carry the mark in their environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def run_case(folder, number, script, prunex, seconds):
    mark = f"PRUNEX_CASE={os.getpid()}-{number}"
    port = 21000 + (os.getpid() * 7 + number) % 9000
    variables = os.environ | {"P": prunex, "PORT": str(port), "OMP_NUM_THREADS": "1",
                              "PRUNEX_CASE": mark.split("=")[1]}
    with open(folder / "err", "a") as errors, open(folder / "out", "a") as output:
        process = subprocess.Popen(["unshare", "-m", "bash", "-c", HELPERS + script], cwd=folder, env=variables,
     stdout=output,
                                   stderr=errors, stdin=subprocess.DEVNULL)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
    deadline = time.time() + 4
    while (left := left_over(mark.encode())) and time.time() < deadline:
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    return status, [] if status is None else left


def judge(status, codes, says, errors, left, kept):
    lines = [line for line in errors.splitlines() if not PROGRESS.match(line)]
    found = []
    if status is None:
        return ["hangs"]
    if status not in codes:
        found.append(f"exit code {status}" if status < 128 else f"signal {status - 128}")
    if status in LINE and (not lines or not OWN.match(lines[-1])):
        found.append("no line")
    if status in LINE and len(lines) > 1:
        found.append(f"{len(lines)} lines")
    if FOREIGN.search(errors):
        found.append("foreign text")
    if says and says not in errors and status != 0:
        found.append(f"says nothing of {says}")
    if left:
        found.append("orphans")
    if not kept:
        found.append("lost")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--seconds", type=int, default=60, help="after which a case hangs")
    options = parser.parse_args()
    prunex = str(options.build.resolve() / "prunex")
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        base = pathlib.Path(scratch, "base")
        base.mkdir()
        formats.write_input(base)
        formats.write_images(base)
        (base / "train.safetensors").rename(base / "d.safetensors")
        (base / "input.safetensors").rename(base / "in.safetensors")
        small = ["--model", "resnet8", "--width", "0.25"]
        for words in (["train", *small, "--samples", "64", "--exchanges", "4", "--local-steps", "1", "--batch-size",
     "8",
                       "--run-dir", "old"], ["graph", *small, "--save", "net.pt2"]):
            subprocess.run([prunex, *words], cwd=base, check=True, capture_output=True)
        for number, (name, codes, script, says) in enumerate(CASES):
            if options.only not in name:
                continue
            folder = pathlib.Path(scratch, str(number))
            subprocess.run(["cp", "-r", str(base), str(folder)], check=True)
            before = snapshot(folder)
            status, left = run_case(folder, number, script, prunex, options.seconds)
            errors = (folder / "err").read_text(errors="replace")
            found = judge(status, codes, says, errors, left, snapshot(folder) == before)
            counts.update(["cases", "unaffected" if status == 0 else "clear line" if not found else "other", *found])
            if found or options.verbose:
                tail = "\n    ".join(line for line in errors.splitlines()[-6:])
                print(f"{'FOUND' if found else 'ok'}: {name}: {status}: {', '.join(found)}\n    {tail[:1500]}",
         flush=True)
    print(dict(counts))


main()
