"""The Python package next to what else one would use, in one run, the sides taking turns:

    torchrun --nproc-per-node 2 bench/python_package.py loops    # one thread each: OMP_NUM_THREADS=1
    torchrun --nproc-per-node 2 bench/python_package.py hooks
    python bench/python_package.py prune                         # wants torch-pruning 1.6.1

loops: milliseconds of a step of resnet8 between exchanges, plain and inside a context (hooks, the pull of ADMM); then
milliseconds of an exchange of resnet18's 11 million numbers, beside the mean that a loop in pure Python takes: flatten,
all-reduce, copy back, as torchft's LocalSGD does. hooks: milliseconds of a step of DistributedDataParallel, and bytes per
step by formula, with prunex.comm_hook and with PyTorch's own hooks. prune: seconds to half of the multiply-accumulates,
units of all groups compared by their L2 norm, tracing included, beside tp.pruner.BasePruner; what is left by
torchvision's count of parameters.
"""

import argparse
import copy
import json
import statistics
import time
import warnings

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import prunex

warnings.filterwarnings("ignore")
ROUNDS = 7


class Resnet8(nn.Module):
    """Three stages of one residual block, as the command's resnet8."""

    def __init__(self) -> None:
        super().__init__()
        block = torchvision.models.resnet.BasicBlock
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.layers = nn.Sequential(block(16, 16), self.shrink(block, 16, 32), self.shrink(block, 32, 64))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    @staticmethod
    def shrink(block: type[nn.Module], narrow: int, wide: int) -> nn.Module:
        down = nn.Sequential(nn.Conv2d(narrow, wide, 1, stride=2, bias=False), nn.BatchNorm2d(wide))
        return block(narrow, wide, 2, down)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.stem(x)))


def milliseconds(work) -> float:
    if dist.is_initialized():
        dist.barrier()
    begin = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - begin)


def in_turns(sides) -> dict[str, float]:
    """The median of each side's rounds, after one to warm up."""
    times = {name: [] for name in sides}
    for number in range(ROUNDS + 1):
        for name, work in sides.items():
            took = milliseconds(work)
            if number > 0:
                times[name].append(took)
    return {name: statistics.median(taken) for name, taken in times.items()}


def stepper(net: nn.Module, optimizer: torch.optim.Optimizer, batch: int, steps: int):
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))

    def steps_of() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()

    return steps_of


def show(title: str, times: dict[str, float], base: str, unit: str = "ms") -> None:
    if dist.is_initialized() and dist.get_rank() != 0:
        return
    for name, taken in times.items():
        print(f"{title:10} {name:34} {taken:9.2f} {unit}   {taken / times[base]:5.2f} of {base}", flush=True)


def loops() -> None:
    steps, never = 20, 10**6
    sides = {}
    for name in ("plain", "DiLoCo", "HSADMM"):
        net = Resnet8()
        optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
        if name == "DiLoCo":
            prunex.DiLoCo(net, optimizer, never, ranks_per_node=1).__enter__()
        if name == "HSADMM":
            prunex.HSADMM(net, optimizer, 500, total_steps=never, ranks_per_node=1, groups="coupled-inner",
                          example=torch.zeros(1, 3, 32, 32)).__enter__()
        sides[name] = stepper(net, optimizer, 32, steps)
    show("step", {name: taken / steps for name, taken in in_turns(sides).items()}, "plain")

    exchanges = {}
    net = torchvision.models.resnet18(num_classes=10)

    def mean_in_python() -> None:
        with torch.no_grad():
            flat = parameters_to_vector(net.parameters())
            dist.all_reduce(flat)
            vector_to_parameters(flat / dist.get_world_size(), net.parameters())

    exchanges["pure Python"] = mean_in_python
    for title, kind, options in (("LocalSGD", prunex.LocalSGD, {}), ("LocalSGD int8", prunex.LocalSGD, {"payload": "int8"}),
                                 ("LocalSGD int2", prunex.LocalSGD, {"payload": "int2"}),
                                 ("DiLoCo", prunex.DiLoCo, {}), ("DiLoCo int2", prunex.DiLoCo, {"payload": "int2"})):
        theirs = copy.deepcopy(net)
        optimizer = torch.optim.SGD(theirs.parameters(), 0.0)
        kind(theirs, optimizer, 1, ranks_per_node=1, **options).__enter__()
        exchanges[title] = optimizer.step  # without gradients it moves nothing: what is left is the exchange
    show("exchange", in_turns(exchanges), "pure Python")


def hooks() -> None:
    net = torchvision.models.resnet18(num_classes=10)
    size = sum(p.numel() for p in net.parameters())
    group = dist.group.WORLD
    kinds = {"all-reduce": lambda ddp: None,
             "fp16_compress_hook": lambda ddp: ddp.register_comm_hook(group, default_hooks.fp16_compress_hook),
             "powerSGD_hook, rank 2": lambda ddp: ddp.register_comm_hook(
                 powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=2),
                 powerSGD_hook.powerSGD_hook)}
    for payload in ("fp16", "int8", "int4", "int2"):
        kinds[f"prunex {payload}"] = lambda ddp, payload=payload: ddp.register_comm_hook(
            None, prunex.comm_hook(payload=payload, ranks_per_node=1))
    kinds["prunex top 1 %"] = lambda ddp: ddp.register_comm_hook(None, prunex.comm_hook(density=0.01, ranks_per_node=1))
    sides = {}
    for name, register in kinds.items():
        # one bucket: over Gloo those of powerSGD_hook come in other orders on other ranks
        ddp = nn.parallel.DistributedDataParallel(copy.deepcopy(net), bucket_cap_mb=100)
        register(ddp)
        optimizer = torch.optim.SGD(ddp.parameters(), 0.01, momentum=0.9)
        sides[name] = stepper(ddp, optimizer, 16, 4)
    show("step", {name: taken / 4 for name, taken in in_turns(sides).items()}, "all-reduce")
    if dist.get_rank() == 0:
        print(f"numbers: {size}")


def prune() -> None:
    import torch_pruning as tp

    for name, side in (("resnet18", 224), ("resnet50", 224), ("vit_b_16", 224)):
        net, x = getattr(torchvision.models, name)(), torch.randn(1, 3, side, side)

        def ours() -> None:
            nonlocal pruned
            pruned = prunex.prune(copy.deepcopy(net), x, macs=0.5, scope="global")

        def theirs() -> None:
            nonlocal small
            small = copy.deepcopy(net)
            whole, _ = tp.utils.count_ops_and_params(small, x)
            pruner = tp.pruner.BasePruner(small, x, tp.importance.GroupMagnitudeImportance(p=2), pruning_ratio=1.0,
                                          global_pruning=True, iterative_steps=400, max_pruning_ratio=1.0,
                                          ignored_layers=[m for m in small.modules() if isinstance(m, nn.Linear)
                                                          and m.out_features == 1000])
            while tp.utils.count_ops_and_params(small, x)[0] > whole / 2:
                pruner.step()

        pruned, small = None, None
        times = {}
        for title, work in (("prunex", ours), ("Torch-Pruning", theirs)):
            try:
                times[title] = milliseconds(work) / 1000
            except Exception as error:
                print(name, title, type(error).__name__, str(error)[:200])
        show(name, times, "prunex", "s")
        left = sum(p.numel() for p in small.parameters()) if small is not None else None
        print(json.dumps({"network": name, "prunex_macs": pruned.macs, "prunex_parameters": pruned.parameters,
                          "torch_pruning_parameters": left}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["loops", "hooks", "prune"])
    what = parser.parse_args().what
    torch.manual_seed(0)
    if what != "prune":
        dist.init_process_group("gloo")
    {"loops": loops, "hooks": hooks, "prune": prune}[what]()
    if what != "prune":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
