#!/usr/bin/env python3
"""Everything that a GPU can show of prunex, most valuable first, in so many minutes.

    gpu-kit/run MINUTES [--output FOLDER] [--only PART...] [--data-dir FOLDER]

Python's torch must be the version that prunex was built with. Each part has a time of its own and writes its result to
FOLDER (gpu-kit/results), texts and the matrix' record alone: a part that fails, or takes too long, costs the later
ones nothing. Without a GPU it says so and runs what the CPU can."""
import argparse
import array
import collections
import concurrent.futures
import csv
import glob
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

KIT = pathlib.Path(__file__).resolve().parent
PRUNEX = str(KIT / "bin/prunex")
TINY = ["--samples", "640", "--model", "resnet8", "--batch-size", "32", "--local-steps", "4", "--exchanges", "6",
        "--precision", "fp32", "--quiet"]
STRATEGIES = {  # what is compared with the CPU's run
    "local_sgd": ["--strategy", "local_sgd"],
    "diloco": ["--strategy", "diloco"],
    "diloco int2": ["--strategy", "diloco", "--payload", "int2"],
    "masks": ["--strategy", "diloco", "--groups", "coupled-inner"],
    "hsadmm": ["--strategy", "hsadmm"],
    "ddp": ["--strategy", "ddp"],
    "top_k": ["--strategy", "top_k"],
    "powersgd": ["--strategy", "powersgd"],
    "scaffold": ["--strategy", "scaffold"],
    "overlap": ["--strategy", "diloco", "--overlap", "2"],
    "cut": ["--strategy", "diloco", "--prune-to", "macs=0.5", "--finetune-epochs", "1"],
}
THROUGH_NCCL = ["local_sgd", "masks", "hsadmm", "ddp", "top_k", "powersgd", "overlap"]
AT_ONCE = max(1, (os.cpu_count() or 1) // 4)  # what has four processors each
LARGEST_GAP = 0.05  # of the loss: the order of sums differs, and grows with the steps
LARGEST_GAP_OF_PRODUCT = 1e-3  # of the loss of one forward pass in fp32
SPEEDS = [  # network, side of its images, images per step, precision, steps of a timing
    ("resnet18", 32, 128, "tf32", 50),
    ("resnet50", 224, 64, "bf16", 20),
    ("resnet18", 32, 128, "bf16", 50),
    ("resnet20", 32, 128, "tf32", 50),
]


class Part:
    """What a part of the kit may use: the rest of its time, its file, a folder for what is not worth keeping, that of
    CIFAR-10 if there is one, and processes that end with it."""

    def __init__(self, output, scratch, deadline, data_dir):
        self.file, self.scratch, self.deadline, self.data_dir = output, scratch, deadline, data_dir

    def left(self):
        return max(1, self.deadline - time.monotonic())

    def say(self, line):
        print(line, flush=True)
        with open(self.file, "a") as file:
            file.write(line + "\n")

    def run(self, words, limit=None):
        """The process with its children; TimeoutExpired, when they have ended, at the end of the part's time."""
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              start_new_session=True) as process:
            try:
                output, errors = process.communicate(timeout=limit or self.left())
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(words, process.returncode, output, errors)


def library_path():
    import torch
    site = pathlib.Path(torch.__file__).parent.parent
    folders = [KIT / "lib", site / "torch/lib", *map(pathlib.Path, sorted(glob.glob(str(site / "nvidia/*/lib"))))]
    own = os.environ.get("LD_LIBRARY_PATH")  # some machines have CUDA's driver by it alone
    return ":".join([*map(str, folders), *([own] if own else [])])


def machine(part, gpus):
    import torch
    part.say(f"torch {torch.__version__}, CUDA {torch.version.cuda}, {gpus} GPUs")
    part.say(part.run([PRUNEX, "--version"]).stdout.strip())
    if shutil.which("nvidia-smi"):
        part.say(part.run(["nvidia-smi"]).stdout)


def at_once(work, cases):
    """work of each case, AT_ONCE at a time; the cases that failed."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return [case for case, failed in zip(cases, pool.map(work, cases)) if failed]


def tests(part, gpus):
    left_out = []

    def fails(case):
        program, shard, shards = case
        file = part.file.with_name(f"{part.file.stem}-{program}-{shard}.txt")
        environment = os.environ | {"GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(shard)}
        try:
            with open(file, "w") as said:  # what it says is kept if it hangs
                code = subprocess.run([str(KIT / "bin" / program), "--gtest_brief=1"], stdout=said,
                                      stderr=subprocess.STDOUT, timeout=part.left(), env=environment).returncode
        except subprocess.TimeoutExpired:
            code = "none in time"
        text = file.read_text()
        part.say(f"{program} {shard}: exit code {code}\n{text[-3000:]}")
        left_out.append("[  PASSED  ] 0 tests" in text)
        return code != 0

    failed = at_once(fails, [("test_gpu", shard, 6) for shard in range(6)] + [("test_nccl", 0, 1)])
    if failed:
        raise RuntimeError(f"failed: {failed}")
    if gpus > 0 and all(left_out):
        raise RuntimeError("failed: no test ran, although PyTorch sees a GPU")


def losses(folder):
    with open(folder / "metrics.jsonl") as lines:
        return [json.loads(line)["loss"] for line in lines]


def train(part, folder, *words):
    shutil.rmtree(folder, ignore_errors=True)
    result = part.run([PRUNEX, "train", *TINY, *words, "--run-dir", str(folder)])
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-500:])
    return losses(folder)


def train_through_nccl(part, folder, *words):
    """Two processes that NCCL takes for two machines: so they may share a GPU."""
    shutil.rmtree(folder, ignore_errors=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ranks = [subprocess.Popen([PRUNEX, "train", *TINY, *words, "--nodes", "2", "--run-dir", str(folder)], text=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              env=os.environ | {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": "0",
                                                "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                                                "MASTER_PORT": port, "NCCL_HOSTID": rank, "NCCL_SOCKET_IFNAME": "lo"})
             for rank in ("0", "1")]
    try:
        said = [rank.communicate(timeout=part.left())[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if any(rank.returncode for rank in ranks):
        raise RuntimeError(" | ".join(text.strip()[-300:] for text in said))
    return losses(folder)


def loss_of_product(part, folder, device):
    """As prunex eval has it, on images that the network was not trained on."""
    result = part.run([PRUNEX, "eval", "--model", str(folder / "model.pt2"), "--dataset", "synthetic", "--samples",
                       "640", "--device", device, "--quiet", "--json", str(folder / "eval.json")])
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-500:])
    with open(folder / "eval.json") as file:
        return json.load(file)["loss"]


def equality(part, gpus):
    """The same run on the CPU, on the GPU and through NCCL, exchange by exchange, and what both devices say of its
    product."""
    def fails(name):
        words, folder = STRATEGIES[name], part.scratch / f"equality-{name}"

        def largest_gap(there):
            return max(abs(a - b) / abs(a) for a, b in zip(on_cpu, there, strict=True))

        try:
            on_cpu = train(part, folder, *words, "--nodes", "2")
            product = loss_of_product(part, folder, "cpu")
            if gpus == 0:
                part.say(f"{name}: CPU {on_cpu[-1]:.4f}, its product {product:.4f}; no GPU")
                return False
            moved = abs(loss_of_product(part, folder, "cuda") / product - 1)
            there = train(part, folder, *words, "--nodes", "2", "--device", "cuda")
            gap = largest_gap(there)
            line = (f"{name}: CPU {on_cpu[-1]:.4f}, GPU {there[-1]:.4f}, largest gap of the loss {gap:.2e}; of the "
                    f"CPU's product on the GPU {moved:.2e}")
            if name in THROUGH_NCCL:
                there = train_through_nccl(part, folder, *words, "--device", "cuda")
                line += f"; through NCCL {there[-1]:.4f}, gap {largest_gap(there):.2e}"
                gap = max(gap, largest_gap(there))
            part.say(line)
            return gap > LARGEST_GAP or moved > LARGEST_GAP_OF_PRODUCT
        except (RuntimeError, ValueError, OSError, subprocess.SubprocessError) as error:
            part.say(f"{name}: {error}")
            return True

    failed = at_once(fails, list(STRATEGIES))
    if failed:
        raise RuntimeError("not as on the CPU: " + ", ".join(failed))


def noise(folder, images, side):
    """A file of images, a class after the other, in safetensors' format: where nothing can be installed, that package
    may be missing."""
    path = folder / f"noise-{side}-{images}.safetensors"
    if not path.exists():
        pixels, labels = images * 3 * side * side, array.array("q", (i % 10 for i in range(images))).tobytes()
        header = json.dumps({
            "images": {"dtype": "U8", "shape": [images, 3, side, side], "data_offsets": [0, pixels]},
            "labels": {"dtype": "I64", "shape": [images], "data_offsets": [pixels, pixels + len(labels)]}}).encode()
        header += b" " * (-len(header) % 8)
        path.write_bytes(len(header).to_bytes(8, "little") + header + os.urandom(pixels) + labels)
    return str(path)


def samples_per_second(part, case, device, *more):
    network, side, batch, precision, steps = case
    folder = part.scratch / "speed"
    shutil.rmtree(folder, ignore_errors=True)
    images = noise(part.scratch, steps * batch, side)
    result = part.run([PRUNEX, "train", "--dataset", images, "--test", images, "--test-limit", "16", "--model", network,
                       "--batch-size", str(batch), "--local-steps", str(steps), "--exchanges", "4", "--strategy",
                       "local_sgd", "--precision", precision, "--eval-every", "0", "--lr", "0.01", "--device", device,
                       "--quiet", *more, "--run-dir", str(folder)])
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-500:])
    with open(folder / "metrics.jsonl") as lines:
        seconds = [json.loads(line)["seconds"]["local"] for line in lines]
    return steps * batch / min(seconds[1:])  # the first ones warm up


class PythonStep:
    """The same local step in PyTorch: eager, compiled, or one CUDA graph."""

    def __init__(self, case, form):
        import torch

        from eager import make
        network, side, self.batch, precision, self.steps = case
        torch.backends.cuda.matmul.allow_tf32 = True  # as convolutions are by default
        self.torch, self.bf16 = torch, precision == "bf16"
        self.model = make(network, side).cuda().to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=True)
        images = torch.randn(self.batch, 3, side, side, device="cuda")
        self.images = images.to(memory_format=torch.channels_last)
        self.labels = torch.randint(10, (self.batch,), device="cuda")
        self.forward = torch.compile(self.model) if form == "compiled" else self.model
        self.step = self.captured() if form == "graph" else self.plain

    def plain(self):
        with self.torch.autocast("cuda", self.torch.bfloat16, enabled=self.bf16):
            loss = self.torch.nn.functional.cross_entropy(self.forward(self.images), self.labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def captured(self):
        stream = self.torch.cuda.Stream()
        stream.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(stream):
            for _ in range(3):
                self.plain()
        self.torch.cuda.current_stream().wait_stream(stream)
        graph = self.torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with self.torch.cuda.graph(graph):
            self.plain()
        return graph.replay

    def samples_per_second(self):
        best = float("inf")
        for _ in range(4):
            self.torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(self.steps):
                self.step()
            self.torch.cuda.synchronize()
            best = min(best, time.perf_counter() - begin)
        return self.steps * self.batch / best


def name_of(case):
    return f"{case[0]} at {case[1]}, {case[3]}"


def speed(part, gpus):
    """Local steps against PyTorch's forms of the same step, whose images are ready while ours are augmented."""
    if gpus == 0:
        return part.say("no GPU: left out")
    ours = {}
    for case in SPEEDS:
        ours[case] = samples_per_second(part, case, "cuda")
        plain = samples_per_second(part, case, "cuda", "--no-cuda-graphs")
        part.say(f"{name_of(case)}: prunex {ours[case]:.0f} samples/s, {plain:.0f} without CUDA graphs")
    for form in ("eager", "graph", "compiled"):  # each in a process that ends with the part
        for case in SPEEDS:
            result = part.run([sys.executable, __file__, "0", "--pytorch", json.dumps([case, form])])
            if result.returncode != 0:  # a form that this machine cannot do
                part.say(f"{name_of(case)}: PyTorch {form}: {result.stderr.strip()[-200:]}")
                continue
            theirs = float(result.stdout.split()[-1])
            part.say(f"{name_of(case)}: PyTorch {form} {theirs:.0f} samples/s, prunex {ours[case] / theirs:.2f} of it")


def kernels(part, gpus):
    """Time by kernel of some steps, from Nsight Compute where it is installed."""
    if gpus == 0 or not shutil.which("ncu"):
        return part.say("no GPU, or no ncu: left out")
    folder = part.scratch / "profiled"
    shutil.rmtree(folder, ignore_errors=True)
    result = part.run(["ncu", "--csv", "--metrics", "gpu__time_duration.sum", "--clock-control", "none",
                       "--launch-skip", "1500", "--launch-count", "600", PRUNEX, "train", *TINY, "--model", "resnet18",
                       "--strategy", "local_sgd", "--device", "cuda", "--no-cuda-graphs", "--run-dir", str(folder)])
    begin = result.stdout.find('"ID"')
    if begin < 0:  # it may not be allowed to read counters
        raise RuntimeError(f"ncu said nothing of kernels: {result.stdout[-500:]}{result.stderr[-500:]}")
    spent = collections.Counter()
    for row in csv.DictReader(result.stdout[begin:].splitlines()):
        if row.get("Metric Value"):
            spent[row["Kernel Name"].split("(")[0][:100]] += float(row["Metric Value"].replace(",", ""))
    for name, time_of_all in spent.most_common(20):
        part.say(f"{time_of_all / sum(spent.values()):6.1%}  {name}")


def sparse(part, gpus):
    """A seed of bench/sparse_training.py, whose rows share the GPU: with Torch-Pruning's if it is there."""
    if gpus == 0 or not part.data_dir:
        return part.say("no GPU, or no --data-dir: left out")
    output = part.scratch / "sparse"
    command = [sys.executable, str(KIT / "sparse_training.py"), PRUNEX, str(part.data_dir), str(output), "--seeds", "0"]
    tools = ["prunex"] + ["torch-pruning"] * (importlib.util.find_spec("torch_pruning") is not None)
    rows = [f"{tool}:{method}" for method in ("l1", "group_norm", "bn_scale", "growing") for tool in tools]

    def fails(row):
        try:
            result = part.run([*command, "--device", "cuda", "--only", row])
        except subprocess.TimeoutExpired:
            part.say(f"{row}: not in time")
            return True
        part.say(result.stdout.strip() or result.stderr.strip()[-500:])  # a row of result.jsonl
        return result.returncode != 0

    failed = at_once(fails, rows[:1]) or at_once(fails, rows[1:])  # the first one trains the network of all
    part.say(part.run([*command, "--device", "cuda", "--table"], limit=20).stdout)
    if failed:
        raise RuntimeError("failed: " + ", ".join(failed))


def matrix(part, gpus):
    """compare/gpu.toml for the rest of the time, without --data-dir on built-in images; the record keeps its runs."""
    if gpus == 0:
        return part.say("no GPU: left out")
    output, record = part.scratch / "matrix", part.file.with_name("compare.json")
    file, images = KIT / "gpu.toml", []
    if part.data_dir:
        images = ["--data-dir", str(part.data_dir)]
    else:
        text = file.read_text().replace('dataset = "cifar10"', 'dataset = "synthetic"\nsamples = 20000')
        file = part.scratch / file.name
        file.write_text(text)
    compare = [PRUNEX, "compare", str(file), "--output", str(output), "--jobs", str(AT_ONCE), *images]
    output.mkdir()
    if record.exists():
        shutil.copy(record, output / record.name)
    try:
        part.run(compare)
    except subprocess.TimeoutExpired:
        part.say("the time was over before the last run")
    finally:
        if (output / record.name).exists():
            shutil.copy(output / record.name, record)
    part.say(part.run([*compare, "--dry-run"], limit=20).stdout)


PARTS = [(machine, 0.5), (tests, 3), (equality, 3), (speed, 3.5), (kernels, 1), (sparse, 5),
         (matrix, 1000)]  # minutes at most


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", type=float)
    parser.add_argument("--output", type=pathlib.Path, default=KIT / "results")
    parser.add_argument("--data-dir", type=pathlib.Path, help="of CIFAR-10, for sparse training and the matrix")
    parser.add_argument("--only", nargs="+", choices=[work.__name__ for work, _ in PARTS])
    parser.add_argument("--pytorch", type=json.loads, help=argparse.SUPPRESS)  # a case and a form of speed()
    options = parser.parse_args()
    if options.pytorch:
        return print(PythonStep(*options.pytorch).samples_per_second())
    try:
        import torch
    except ImportError as error:
        sys.exit(f"gpu-kit: this Python cannot import torch: {error}")
    os.environ["LD_LIBRARY_PATH"] = library_path()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options.output.mkdir(parents=True, exist_ok=True)
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus == 0:
        print("gpu-kit: no GPU here: the parts that need one are left out")
    end, failed = time.monotonic() + 60 * options.minutes, []
    scratch = tempfile.TemporaryDirectory(prefix="gpu-kit")
    for number, (work, most) in enumerate(PARTS):
        name = work.__name__
        if options.only and name not in options.only:
            continue
        if end - time.monotonic() < 5:
            print(f"== {name}: no time left")
            continue
        print(f"== {name}", flush=True)
        part = Part(options.output / f"{number}-{name}.txt", pathlib.Path(scratch.name),
                    min(end, time.monotonic() + 60 * most), options.data_dir)
        part.file.unlink(missing_ok=True)
        try:
            work(part, gpus)
        except Exception as error:
            part.say(f"failed: {type(error).__name__}: {error}"[:2000])
            failed.append(name)
    if failed:
        sys.exit("gpu-kit: failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
