#!/usr/bin/env python3
"""Everything that a GPU can show of prunex, most valuable first, in so many minutes.

    gpu-kit/run MINUTES [--output FOLDER]

Python's torch must be the version that prunex was built with. Each part has a time of its own and writes its result to
FOLDER (gpu-kit/results) when it ends: a part that fails, or takes too long, costs the later ones nothing. Without a GPU
it says so and runs what the CPU can."""
import argparse
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
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
}
LARGEST_GAP = 0.05  # of the loss: the order of sums differs, and grows with the steps
STEPS, BATCH = 50, 128  # of a timing


class Part:
    """What a part of the kit may use: the rest of its time, its file, and processes that end with it."""

    def __init__(self, output, deadline):
        self.file, self.deadline = output, deadline

    def left(self):
        return max(1, self.deadline - time.monotonic())

    def say(self, line):
        print(line, flush=True)
        with open(self.file, "a") as file:
            file.write(line + "\n")

    def run(self, words, **more):
        return subprocess.run(words, capture_output=True, text=True, timeout=self.left(), **more)


def library_path():
    import torch
    site = pathlib.Path(torch.__file__).parent.parent
    folders = [KIT / "lib", site / "torch/lib", *map(pathlib.Path, sorted(glob.glob(str(site / "nvidia/*/lib"))))]
    return ":".join(map(str, folders))


def machine(part, gpus):
    import torch
    part.say(f"torch {torch.__version__}, CUDA {torch.version.cuda}, {gpus} GPUs")
    part.say(part.run([PRUNEX, "--version"]).stdout.strip())
    if shutil.which("nvidia-smi"):
        part.say(part.run(["nvidia-smi"]).stdout)


def tests(part, gpus):
    failed = []
    for program in ("test_nccl", "test_gpu"):
        result = part.run([str(KIT / "bin" / program), "--gtest_brief=1"])
        part.say(f"{program}: exit code {result.returncode}\n{result.stdout[-4000:]}{result.stderr[-4000:]}")
        if result.returncode != 0:
            failed.append(program)
    if failed:
        raise RuntimeError("failed: " + ", ".join(failed))


def losses(part, folder, words):
    shutil.rmtree(folder, ignore_errors=True)
    result = part.run([PRUNEX, "train", *TINY, *words, "--run-dir", str(folder)])
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-500:])
    with open(folder / "metrics.jsonl") as lines:
        return [json.loads(line)["loss"] for line in lines]


def equality(part, gpus):
    """The same run on the CPU and on the GPU, exchange by exchange."""
    failed = []
    for name, words in STRATEGIES.items():
        folder = part.file.parent / "equality"
        try:
            on_cpu = losses(part, folder, [*words, "--nodes", "2"])
            if gpus == 0:
                part.say(f"{name}: CPU {on_cpu[-1]:.4f}; no GPU")
                continue
            on_gpu = losses(part, folder, [*words, "--nodes", "2", "--device", "cuda"])
            gap = max(abs(a - b) / abs(a) for a, b in zip(on_cpu, on_gpu))
            part.say(f"{name}: CPU {on_cpu[-1]:.4f}, GPU {on_gpu[-1]:.4f}, largest gap of the loss {gap:.2e}")
            if gap > LARGEST_GAP:
                failed.append(name)
        except (RuntimeError, subprocess.SubprocessError) as error:
            part.say(f"{name}: {error}")
            failed.append(name)
    if failed:
        raise RuntimeError("not as on the CPU: " + ", ".join(failed))


def samples_per_second(part, network, device, *more):
    folder = part.file.parent / "speed"
    shutil.rmtree(folder, ignore_errors=True)
    precision = "tf32" if device == "cuda" else "fp32"
    result = part.run([PRUNEX, "train", "--samples", str(STEPS * BATCH), "--test-limit", "64", "--model", network,
                       "--batch-size", str(BATCH), "--local-steps", str(STEPS), "--exchanges", "4", "--strategy",
                       "local_sgd", "--precision", precision, "--eval-every", "0", "--lr", "0.01", "--device", device,
                       "--quiet", *more, "--run-dir", str(folder)])
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip()[-500:])
    with open(folder / "metrics.jsonl") as lines:
        seconds = [json.loads(line)["seconds"]["local"] for line in lines]
    return STEPS * BATCH / min(seconds[1:])  # the first ones warm up


class PythonStep:
    """The same local step in PyTorch: eager, compiled, or one CUDA graph."""

    def __init__(self, network, form):
        import networks
        import torch
        torch.backends.cuda.matmul.allow_tf32 = True  # as convolutions are by default
        self.torch = torch
        self.model = getattr(networks, network)().cuda().to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=True)
        self.images = torch.randn(BATCH, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)
        self.labels = torch.randint(10, (BATCH,), device="cuda")
        self.forward = torch.compile(self.model) if form == "compiled" else self.model
        self.step = self.captured() if form == "graph" else self.plain

    def plain(self):
        loss = self.torch.nn.functional.cross_entropy(self.forward(self.images), self.labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def captured(self):
        stream = self.torch.cuda.Stream()
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
            for _ in range(STEPS):
                self.step()
            self.torch.cuda.synchronize()
            best = min(best, time.perf_counter() - begin)
        return STEPS * BATCH / best


def speed(part, gpus):
    """Local steps in TF32 on 32 x 32 images, against PyTorch's forms of the same step."""
    if gpus == 0:
        return part.say("no GPU: left out")
    sys.path.insert(0, str(KIT))
    for network in ("resnet18", "resnet20"):
        ours = samples_per_second(part, network, "cuda")
        plain = samples_per_second(part, network, "cuda", "--no-cuda-graphs")
        part.say(f"{network}: prunex {ours:.0f} samples/s, {plain:.0f} without CUDA graphs")
        for form in ("eager", "compiled", "graph"):
            try:
                theirs = PythonStep(network, form).samples_per_second()
                part.say(f"{network}: PyTorch {form} {theirs:.0f} samples/s, prunex {ours / theirs:.2f} of it")
            except Exception as error:  # a form that this machine cannot do
                part.say(f"{network}: PyTorch {form}: {str(error).splitlines()[0][:200]}")


def kernels(part, gpus):
    """Time by kernel of some steps, from Nsight Systems or Compute, where they are installed."""
    if gpus == 0 or not shutil.which("nsys"):
        return part.say("no GPU, or no nsys: left out")
    report = part.file.parent / "kernels"
    train = [PRUNEX, "train", *TINY, "--model", "resnet18", "--strategy", "local_sgd", "--device", "cuda", "--run-dir",
             str(part.file.parent / "profiled")]
    part.run(["nsys", "profile", "--force-overwrite=true", "-o", str(report), *train])
    part.say(part.run(["nsys", "stats", "--report", "cuda_gpu_kern_sum", f"{report}.nsys-rep"]).stdout[:6000])


def matrix(part, gpus):
    """compare/gpu.toml for the rest of the time; the record keeps what is done."""
    if gpus == 0:
        return part.say("no GPU: left out")
    output = part.file.parent / "matrix"
    try:
        part.run([PRUNEX, "compare", str(KIT / "gpu.toml"), "--output", str(output)])
    except subprocess.TimeoutExpired:
        part.say("the time was over before the last run")
    part.say(part.run([PRUNEX, "compare", str(KIT / "gpu.toml"), "--output", str(output), "--dry-run"]).stdout)


PARTS = [(machine, 0.5), (tests, 3), (equality, 4), (speed, 4), (kernels, 2), (matrix, 1000)]  # minutes at most


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", type=float)
    parser.add_argument("--output", type=pathlib.Path, default=KIT / "results")
    options = parser.parse_args()
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
    for number, (work, most) in enumerate(PARTS):
        name = work.__name__
        if end - time.monotonic() < 5:
            print(f"== {name}: no time left")
            continue
        print(f"== {name}", flush=True)
        part = Part(options.output / f"{number}-{name}.txt", min(end, time.monotonic() + 60 * most))
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
