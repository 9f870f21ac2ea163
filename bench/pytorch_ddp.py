#!/usr/bin/env python3
"""prunex next to PyTorch's own distributed training: two ranks over Gloo and loopback, the two sides taking turns.

    python bench/pytorch_ddp.py --prunex build/release/prunex --data-dir data --json result.json

ddp: DistributedDataParallel with its defaults. powersgd: powerSGD_hook, rank 2, from step 2 on. post_local: gradients
in every step of the first interval, then post_localSGD_hook and PeriodicModelAverager, a mean per interval. Ours are
--strategy ddp, powersgd and local_sgd --local-after 1. Both sides have the same network, weights, batches (order and
augmentation, batches.py), SGD, precision, and one thread per rank. PyTorch has its batches ready in memory, ours
prepares them in its step; PyTorch's layout and form of SGD are those that were the fastest before the first round.

samples/s: of all intervals but the first, local steps and exchanges, without evaluations; ratios are of the two runs of
a round. KB: what the kernel counted on loopback, per node, headers, acknowledgements and heartbeats included, and the
statistics of batch norm that PyTorch broadcasts; as root in a network namespace where nothing else runs. It is the
difference to a short run, so without start and end. "computed" is what the method's all-reduces of two ranks send.
Losses are means over the ranks and the steps of an interval, the largest gap is between those of the same interval.
Equal losses, step by step, are a test: tests/pytorch/distributed_test.cpp."""
import argparse
import itertools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post_local
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

import batches
from eager import make

RANKS, SEED, MOMENTUM, DECAY = 2, 1, 0.9, 5e-4
POWERSGD_RANK, POWERSGD_START, LEAST_SHRINKAGE = 2, 2, 2
OURS = {"ddp": ["--strategy", "ddp"],
        "powersgd": ["--strategy", "powersgd", "--powersgd-rank", str(POWERSGD_RANK), "--powersgd-start",
                     str(POWERSGD_START)],
        "post_local": ["--strategy", "local_sgd", "--local-after", "1"]}
LAYOUTS = ("contiguous", "channels_last images", "channels_last")
OPTIMIZERS = {"fused": {"fused": True}, "foreach": {"foreach": True}, "for loop": {"foreach": False}}
SHORT = 2  # intervals of the run whose bytes are subtracted


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prunex", default="build/release/prunex", help="the command (build/release/prunex)")
    parser.add_argument("--data-dir", default="data", help="folder of CIFAR-10 (data)")
    parser.add_argument("--model", default="resnet20", choices=("resnet8", "resnet20", "resnet56"))
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--batch", type=int, default=32, help="images per rank and step (32)")
    parser.add_argument("--steps", type=int, default=60, help="of a run (60)")
    parser.add_argument("--interval", type=int, default=10, help="steps per report, and per mean of post_local (10)")
    parser.add_argument("--lr", type=float, default=0.01, help="the same in all steps (0.01)")
    parser.add_argument("--rounds", type=int, default=3, help="of both sides in turn (3)")
    parser.add_argument("--methods", nargs="+", default=list(OURS), choices=OURS)
    parser.add_argument("--own-statistics", action="store_true", help="PyTorch's ranks, too, do not share batch norm's "
                        "statistics in every step (broadcast_buffers=False)")
    parser.add_argument("--json", metavar="FILE", help="where to write everything that was measured")
    parser.add_argument("--rank-of", metavar="FOLDER", help=argparse.SUPPRESS)  # be one rank of PyTorch's side
    options = parser.parse_args()
    if options.rank_of:
        return options
    if options.steps % options.interval or options.steps <= SHORT * options.interval:
        parser.error(f"--steps: wanted a multiple of --interval, more than {SHORT} times as many")
    if min(options.batch, options.rounds) < 1:
        parser.error("--batch and --rounds: wanted 1 or more")
    if not shutil.which(options.prunex):
        parser.error(f"--prunex: no command {options.prunex}")
    return options


class Failure(Exception):
    pass


# One rank of PyTorch's side


class Step:
    """One step of the training loop, without what makes it distributed."""

    def __init__(self, model, form, bf16, rate):
        layout, optimizer = form
        self.bf16 = bf16
        self.model = model.to(memory_format=torch.channels_last) if layout == "channels_last" else model
        self.images_layout = torch.contiguous_format if layout == "contiguous" else torch.channels_last
        self.optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM, weight_decay=DECAY,
                                         **OPTIMIZERS[optimizer])

    def __call__(self, images, labels):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def distribute(step, method, interval, broadcast):
    """Sets the method up as PyTorch documents it; what is to be called after a step."""
    # one bucket for PowerSGD: the hook's all-reduces of several have no fixed order, which Gloo needs
    step.model = model = DistributedDataParallel(step.model, bucket_cap_mb=1000 if method == "powersgd" else None,
                                                 broadcast_buffers=broadcast)
    if method == "powersgd":
        state = powersgd.PowerSGDState(None, POWERSGD_RANK, POWERSGD_START, LEAST_SHRINKAGE)
        model.register_comm_hook(state, powersgd.powerSGD_hook)
    if method != "post_local":
        return lambda: None
    state = post_local.PostLocalSGDState(None, None, interval, post_local_gradient_allreduce=False)
    model.register_comm_hook(state, post_local.post_localSGD_hook)
    averager = PeriodicModelAverager(interval, warmup_steps=2 * interval - 1)  # first after step 2 x interval
    return lambda: averager.average_parameters(model.parameters())


def normalised(pixels, layout):
    scale, shift = (torch.tensor(x, dtype=torch.float32).reshape(3, 1, 1)
                    for x in (1 / (255 * batches.STD), -batches.MEAN / batches.STD))
    return (pixels.float() * scale + shift).contiguous(memory_format=layout)


def train(folder, method, interval, intervals, broadcast, **step_options):
    """Losses and seconds of every interval, means over the ranks."""
    model = make(step_options.pop("model"), batches.SIDE)
    model.load_state_dict(load_file(f"{folder}/weights.safetensors"))
    step = Step(model, **step_options)
    with safe_open(f"{folder}/batches.safetensors", "pt") as drawn:
        pixels, labels = (drawn.get_slice(name)[:, dist.get_rank()] for name in ("pixels", "labels"))
    images = [normalised(batch, step.images_layout) for batch in pixels]
    after_step = distribute(step, method, interval, broadcast)
    losses, seconds = [], []
    dist.barrier()
    for begin in range(0, intervals * interval, interval):
        start, loss = time.perf_counter(), 0
        for i in range(begin, begin + interval):
            loss += step(images[i], labels[i])
            after_step()
        seconds.append(time.perf_counter() - start)
        losses.append(loss / interval)
    means = torch.tensor([losses, seconds], dtype=torch.float64) / RANKS
    dist.all_reduce(means)
    return means.tolist()


def run_rank(folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with open(f"{folder}/run.json") as file:
        losses, seconds = train(folder, **json.load(file))
    if dist.get_rank() == 0:
        with open(f"{folder}/result.json", "w") as file:
            json.dump({"losses": losses, "seconds": seconds}, file)
    dist.barrier()
    dist.destroy_process_group()


# Both sides


def isolate():
    """Starts this program anew with a loopback of its own, where that is permitted; whether it has one."""
    own = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "own"]
    if "OWN_LOOPBACK" in os.environ:
        return True
    if shutil.which(own[0]) and subprocess.run([*own, "true"], capture_output=True).returncode == 0:
        os.execvpe(own[0], [*own, sys.executable, *sys.argv], {**os.environ, "OWN_LOOPBACK": "1"})
    return False


def loopback_bytes():
    with open("/proc/net/dev") as file:
        return next(int(line.split()[9]) for line in file if line.split()[0] == "lo:")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start_rank(rank, port, command, errors):
    """As torchrun does on a node with one rank; in a session of its own, as the kernel may share processors by them."""
    place = {"RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": rank,
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1, "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(command, env={**os.environ, **{name: str(value) for name, value in place.items()}},
                            stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)


def run(command):
    """Runs all ranks to their end; bytes that loopback carried meanwhile."""
    before, port = loopback_bytes(), free_port()
    with tempfile.TemporaryFile("w+") as errors:
        ranks = [start_rank(rank, port, command, errors) for rank in range(RANKS)]
        try:
            while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
                time.sleep(0.05)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        if any(rank.returncode for rank in ranks):
            errors.seek(0)
            raise Failure(f"{os.path.basename(command[0])} failed:\n{errors.read()[-2000:].rstrip()}")
    return loopback_bytes() - before


class Ours:
    def __init__(self, options, folder):
        self.options, self.folder, self.summary = options, folder, None

    def __call__(self, method, intervals):
        options, run_dir = self.options, f"{self.folder}/run"
        shutil.rmtree(run_dir, ignore_errors=True)
        sent = run([options.prunex, "train", "--dataset", "cifar10", "--data-dir", options.data_dir, "--test-limit",
                    "64", "--model", options.model, "--weights", f"{self.folder}/weights.safetensors", "--groups",
                    "none", "--nodes", str(RANKS), "--precision", options.precision, "--batch-size",
                    str(options.batch), "--local-steps", str(options.interval), "--exchanges", str(intervals), "--lr",
                    str(options.lr), "--lr-schedule", "constant", "--momentum", str(MOMENTUM), "--weight-decay",
                    str(DECAY), "--seed", str(SEED), "--eval-every", "0", "--quiet", "--run-dir", run_dir,
                    *OURS[method]])
        with open(f"{run_dir}/summary.json") as summary, open(f"{run_dir}/metrics.jsonl") as metrics:
            self.summary, lines = json.load(summary), [json.loads(line) for line in metrics]
        return {"loopback_bytes": sent, "losses": [line["loss"] for line in lines],
                "seconds": [line["seconds"]["total"] - line["seconds"]["evaluate"] for line in lines],
                "local_seconds": [line["seconds"]["local"] for line in lines],
                "counted_bytes": [line["inter_node_bytes"] for line in lines]}


class Theirs:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.seconds = self._seconds_of_forms()

    def _seconds_of_forms(self):
        """Of a step on one rank, in the fastest of the intervals, the forms taking turns."""
        bf16, batch = self.options.precision == "bf16", self.options.batch
        steps = {form: Step(make(self.options.model, batches.SIDE), form, bf16, self.options.lr)
                 for form in itertools.product(LAYOUTS, OPTIMIZERS)}
        labels, seconds = torch.randint(10, (batch,)), {form: [] for form in steps}
        for form in list(steps) * 6:
            step = steps[form]
            images = torch.randn(batch, 3, batches.SIDE, batches.SIDE).contiguous(memory_format=step.images_layout)
            step(images, labels)
            start = time.perf_counter()
            step(images, labels)
            seconds[form].append(time.perf_counter() - start)
        return {form: min(own) for form, own in seconds.items()}

    def form(self, method):
        """PowerSGD's hook wants contiguous gradients."""
        forms = [form for form in self.seconds if method != "powersgd" or form[0] != "channels_last"]
        return min(forms, key=self.seconds.get)

    def __call__(self, method, intervals):
        with open(f"{self.folder}/run.json", "w") as file:
            json.dump({"model": self.options.model, "method": method, "form": self.form(method),
                       "bf16": self.options.precision == "bf16", "rate": self.options.lr,
                       "interval": self.options.interval, "intervals": intervals,
                       "broadcast": method != "post_local" and not self.options.own_statistics}, file)
        sent = run([sys.executable, os.path.abspath(__file__), "--rank-of", self.folder])
        with open(f"{self.folder}/result.json") as file:
            return {"loopback_bytes": sent, **json.load(file)}


# What comes of it


def prepare(options, folder):
    """Writes the weights and the batches; the network."""
    torch.manual_seed(SEED)
    model = make(options.model, batches.SIDE)
    save_file(model.state_dict(), f"{folder}/weights.safetensors")
    try:
        pixels, labels = batches.draw(options.data_dir, SEED, options.steps, RANKS, options.batch)
    except OSError as error:
        raise Failure(f"--data-dir: no CIFAR-10: {error}") from None
    save_file({"pixels": torch.from_numpy(pixels), "labels": torch.from_numpy(labels)}, f"{folder}/batches.safetensors")
    return model


def macs(model):
    """Of the convolutions and linear layers, for one image."""
    counts = []
    for module in model.modules():
        if isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)):
            module.register_forward_hook(lambda m, _, output: counts.append(m.weight[0].numel() * output.numel()))
    with torch.no_grad():
        model.eval()(torch.zeros(1, 3, batches.SIDE, batches.SIDE))
    return sum(counts)


def check_network(model, summary):
    theirs = sum(p.numel() for p in model.parameters()), macs(model)
    ours = summary["parameters_dense"], summary["macs_dense"]
    if ours != theirs:
        raise Failure(f"not the same network: {ours} parameters and MACs, PyTorch's has {theirs}")


def computed_bytes(model, method, interval):
    """That an all-reduce of two sends per step: the gradients, their factors, or an interval's share of the weights."""
    total = 0
    for tensor in model.parameters():
        rows, columns = (len(tensor), tensor.numel() // len(tensor)) if tensor.dim() > 1 else (1, tensor.numel())
        factors = min(POWERSGD_RANK, rows, columns) * (rows + columns)
        small = method == "powersgd" and tensor.dim() > 1 and LEAST_SHRINKAGE * factors < tensor.numel()
        total += factors if small else tensor.numel()
    return 4 * total / (interval if method == "post_local" else 1)


def rate(result, options):
    timed = result["seconds"][1:]
    return RANKS * options.batch * options.interval * len(timed) / sum(timed)


def measure(method, ours, theirs, options):
    sides, intervals = {"ours": ours, "theirs": theirs}, options.steps // options.interval
    short = {name: side(method, SHORT)["loopback_bytes"] for name, side in sides.items()}
    rounds = [{name: side(method, intervals) for name, side in sides.items()} for _ in range(options.rounds)]
    ratios = [rate(both["ours"], options) / rate(both["theirs"], options) for both in rounds]
    steps = options.steps - SHORT * options.interval
    last = {name: rounds[-1][name]["losses"] for name in sides}
    return {"samples_per_second": {name: statistics.median(rate(both[name], options) for both in rounds)
                                   for name in sides},
            "ratio": {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)},
            "bytes_per_step_and_node": {
                name: statistics.median(both[name]["loopback_bytes"] - short[name] for both in rounds) / steps / RANKS
                for name in sides},
            "final_loss": {name: losses[-1] for name, losses in last.items()},
            "largest_loss_difference": max(abs(a - b) for a, b in zip(last["ours"], last["theirs"])),
            "form": theirs.form(method), "rounds": rounds}


def row(method, result):
    def pair(name, digits, factor=1.0):
        return " | ".join(f"{factor * result[name][side]:.{digits}f}" for side in ("ours", "theirs"))
    ratio = result["ratio"]
    return (f"| {method} | {pair('samples_per_second', 0)} | {ratio['median']:.2f} ({ratio['least']:.2f}–"
            f"{ratio['most']:.2f}) | "
            f"{pair('bytes_per_step_and_node', 1, 1e-3)} | {result['computed_bytes_per_step'] / 1e3:.1f} | "
            f"{pair('final_loss', 4)} | {result['largest_loss_difference']:.4f} |")


def curves(methods, results):
    """The losses of the last round, interval by interval."""
    lines = ["| loss | side | " + " | ".join(str(i + 1) for i in range(len(
        results[methods[0]]["rounds"][-1]["ours"]["losses"]))) + " |"]
    lines.append("|---" * (lines[0].count("|") - 1) + "|")
    for method in methods:
        for side, name in (("ours", "ours"), ("theirs", "PyTorch's")):
            losses = results[method]["rounds"][-1][side]["losses"]
            lines.append(f"| {method} | {name} | " + " | ".join(f"{loss:.4f}" for loss in losses) + " |")
    return "\n".join(lines)


def compare(options, folder, isolated):
    torch.set_num_threads(1)
    model, results = prepare(options, folder), {}
    ours, theirs = Ours(options, folder), Theirs(options, folder)
    print("| method | samples/s, ours | PyTorch's | ratio (least–most) | KB/step, ours | PyTorch's | "
          "computed | last loss, ours | PyTorch's | largest gap |\n" + "|---" * 10 + "|")
    for method in options.methods:
        results[method] = result = measure(method, ours, theirs, options)
        result["computed_bytes_per_step"] = computed_bytes(model, method, options.interval)
        check_network(model, ours.summary)
        print(row(method, result), flush=True)
    print("\n" + curves(options.methods, results))
    forms = {method: ", ".join(theirs.form(method)) for method in options.methods}
    print(f"\nPyTorch's form: {forms}. A loopback of its own: {'yes' if isolated else 'no'}.")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "torch": torch.__version__, "own_loopback": isolated,
                       "seconds_per_step_of_forms": {", ".join(form): s for form, s in theirs.seconds.items()},
                       "methods": results}, file, indent=1)


def main():
    options = parse_options()
    if options.rank_of:
        return run_rank(options.rank_of)
    isolated = isolate()
    try:
        with tempfile.TemporaryDirectory() as folder:
            compare(options, folder, isolated)
    except Failure as failure:
        sys.exit(f"pytorch_ddp.py: {failure}")


if __name__ == "__main__":
    main()
