"""Times of pruning a network, against Torch-Pruning on the same machine in the same run.

    python bench/pruning.py --binary BUILD/bench_pruning cifar_resnet56 cifar_vgg19 resnet18 resnet50

The interpreter needs torch, torchvision and torch-pruning 1.6.1; the binary is built with -DPRUNEX_BENCHMARKS=ON.
One thread each; milliseconds, the least of several, but for the progressive runs. Grouping: for Torch-Pruning, tracing
and all groups. Step: importance, plan and cut at half of every group's units; what prunex does
besides, running the small network once to check it, is "checked step". Regularize: what group-norm sparse training adds to
a step; prunex refreshes its coefficients once per exchange besides. Progressive: global, to the speed-up, in as
many steps as Torch-Pruning takes of its 400.
"""
import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings

import torch

warnings.filterwarnings("ignore")
import torch_pruning as tp  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "pytorch"))
from networks_by_name import make  # noqa: E402

SPEED_UPS = {"cifar_vgg19": 8.84}
ROWS = ("grouping", "importance", "init", "step", "count", "progressive", "regularize")


def least(work, runs=3):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def classifier(net):
    return [[m for m in net.modules() if isinstance(m, torch.nn.Linear)][-1]]


def magnitude():
    return tp.importance.MagnitudeImportance(2)


def pruner(net, image, **options):
    return tp.pruner.BasePruner(net, image, magnitude(), ignored_layers=classifier(net), **options)


def progressive(net, image, speed_up):
    """Steps until the speed-up is reached, and the size then."""
    base, _ = tp.utils.count_ops_and_params(net, image)
    run = pruner(net, image, global_pruning=True, pruning_ratio=1.0, iterative_steps=400)
    macs, steps = base, 0
    while base / macs < speed_up and steps < 400:
        run.step()
        steps += 1
        macs, parameters = tp.utils.count_ops_and_params(net, image)
    return steps, macs, parameters


def regularize(net, image):
    """Group-norm sparse training, per iteration."""
    importance = tp.importance.GroupMagnitudeImportance(2, normalizer="max")
    run = tp.pruner.GroupNormPruner(net, image, importance, reg=5e-4, ignored_layers=classifier(net))
    run.update_regularizer()
    net(torch.cat([image, image])).square().sum().backward()
    return least(lambda: run.regularize(net))


def torch_pruning(net, image, speed_up):
    graph = tp.DependencyGraph()

    def grouping():
        nonlocal graph
        graph = tp.DependencyGraph().build_dependency(net, image)
        return list(graph.get_all_groups(ignored_layers=classifier(net)))

    times = {"grouping": least(grouping)}
    groups, score = grouping(), magnitude()
    times["importance"] = least(lambda: [score(group) for group in groups])
    times["init"] = least(lambda: pruner(net, image, pruning_ratio=0.5))
    runs = [pruner(copy.deepcopy(net), image, pruning_ratio=0.5) for _ in range(3)]
    times["step"] = least(lambda: runs.pop().step())
    times["regularize"] = regularize(copy.deepcopy(net).train(), image)
    times["count"] = least(lambda: tp.utils.count_ops_and_params(net, image))
    start = time.perf_counter()
    steps, macs, parameters = progressive(copy.deepcopy(net), image, speed_up)
    times["progressive"] = 1000 * (time.perf_counter() - start)
    return times, steps, macs, parameters


def ours(binary, net, image, speed_up, steps):
    with tempfile.TemporaryDirectory() as folder:
        batch = {0: torch.export.Dim("batch")}
        images = torch.cat([image, image])
        torch.export.save(torch.export.export(net, (images,), dynamic_shapes=(batch,)), folder + "/net.pt2")
        command = [binary, folder + "/net.pt2", str(speed_up), str(steps)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, help="bench_pruning")
    parser.add_argument("--speed-up", type=float, help="of the progressive runs (2.11; cifar_vgg19 8.84)")
    parser.add_argument("networks", nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | " + " | ".join(f"{row}: TP, ours, ratio" for row in ROWS) + " |")
    print("|---" * (1 + len(ROWS)) + "|")
    for name in options.networks:
        torch.manual_seed(0)
        net, size = make(name)
        net, image = net.eval(), torch.randn(1, 3, size, size)
        speed_up = options.speed_up or SPEED_UPS.get(name, 2.11)
        theirs, steps, macs, parameters = torch_pruning(net, image, speed_up)
        mine = ours(options.binary, net, image, speed_up, steps)
        cells = [f"{theirs[row]:.1f}, {mine[row]:.3g}, {theirs[row] / mine[row]:.0f}x" for row in ROWS]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
        print(f"  {name} to {speed_up}x in {steps} steps: Torch-Pruning {macs:.0f} MACs, {parameters} parameters; "
              f"ours {mine['macs']} MACs, {mine['parameters']} parameters; plan to it in one step {mine['plan']:.3g} ms; checked step {mine['checked step']:.3g} ms; "
              f"refresh of the coefficients {mine['refresh']:.3g} ms, forward and backward of 128 images {mine['training step']:.4g} ms")


if __name__ == "__main__":
    main()
