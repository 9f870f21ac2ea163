"""Scores of Torch-Pruning 1.6.1 on small networks: scores.json, and the networks as NAME.pt2.

Run with an interpreter that has torch 2.11 and torch-pruning 1.6.1: python make.py
"""
import json
import os

import torch
import torch_pruning as tp
from torch import nn
from torch_pruning.pruner import importance as importances

FOLDER = os.path.dirname(os.path.abspath(__file__))


class Streams(nn.Module):
    """A residual stream, a depthwise convolution, a concatenation, and a flattened map of 2x2 before two linear layers."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.a_norm = nn.BatchNorm2d(8)
        self.b = nn.Conv2d(8, 6, 1)
        self.b_deep = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.b_norm = nn.BatchNorm2d(6)
        self.c = nn.Conv2d(6, 8, 3, padding=1)
        self.d = nn.Conv2d(8, 5, 3, padding=1)
        self.e = nn.Conv2d(13, 7, 1)
        self.f = nn.Linear(28, 9)
        self.g = nn.Linear(9, 4)

    def forward(self, x):
        x = self.a_norm(self.a(x)).relu()
        x = x + self.c(self.b_norm(self.b_deep(self.b(x))).relu())
        x = torch.cat([x, self.d(x).relu()], 1)
        x = nn.functional.adaptive_avg_pool2d(self.e(x).relu(), 2)
        return self.g(self.f(x.flatten(1)).relu())


class Grouped(nn.Module):
    """A convolution of 4 groups between two plain ones."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 16, 3, padding=1)
        self.b = nn.Conv2d(16, 24, 3, padding=1, groups=4)
        self.b_norm = nn.BatchNorm2d(24)
        self.c = nn.Conv2d(24, 6, 1)
        self.d = nn.Linear(6, 4)

    def forward(self, x):
        return self.d(self.c(self.b_norm(self.b(self.a(x).relu())).relu()).mean((2, 3)))


def criteria():
    for reduction in ("mean", "sum", "max", "prod", "first"):
        yield f"l2 {reduction}", tp.importance.MagnitudeImportance(2, reduction, "mean")
    for normalizer in (None, "sum", "max", "standarization", "gaussian"):
        yield f"l2 normalizer {normalizer}", tp.importance.MagnitudeImportance(2, "mean", normalizer)
    yield "l1", tp.importance.MagnitudeImportance(1)
    yield "l3", tp.importance.MagnitudeImportance(3)
    yield "l2 bias", tp.importance.MagnitudeImportance(2, bias=True)
    yield "bn_scale", tp.importance.BNScaleImportance()
    yield "lamp", tp.importance.LAMPImportance()
    yield "fpgm", importances.FPGMImportance()
    yield "taylor", tp.importance.TaylorImportance()
    yield "taylor multivariable", tp.importance.TaylorImportance(multivariable=True)
    yield "taylor bias", tp.importance.TaylorImportance(bias=True)
    yield "hessian", tp.importance.HessianImportance()
    yield "hessian bias", tp.importance.HessianImportance(bias=True)


def groups_of(net):
    """The layers whose outputs a group prunes, in order, and the group."""
    graph = tp.DependencyGraph().build_dependency(net, torch.randn(1, 3, 8, 8))
    names = {module: name for name, module in net.named_modules()}
    for group in graph.get_all_groups(ignored_layers=[list(net.children())[-1]]):
        makers = [names[dep.layer] for dep, _ in group if "out_channels" in dep.pruning_fn.__name__
                  and isinstance(dep.layer, (nn.Conv2d, nn.Linear))]
        yield sorted(makers), group


def score(group, criterion, channel_groups):
    """Of the units: equal positions of all channel groups of a grouped convolution are one."""
    scores = criterion(group)
    if scores is None:
        return None
    if not any(isinstance(dep.layer, nn.Conv2d) and 1 < dep.layer.groups < dep.layer.out_channels for dep, _ in group):
        channel_groups = 1
    return scores.view(channel_groups, -1).mean(0).tolist() if channel_groups > 1 else scores.tolist()


def measure(name, net, channel_groups):
    torch.manual_seed(1)
    for parameter in net.parameters():
        parameter.data.uniform_(-1, 1)
        parameter.grad = torch.rand_like(parameter) * (1 if name == "Streams" else 2) - 0.3
    result = {"gradients": {n: p.grad.flatten().tolist() for n, p in net.named_parameters()}, "scores": {}}
    for makers, group in groups_of(net):
        for label, criterion in criteria():
            if label.endswith("first") and len(makers) > 1:
                continue  # depends on where the search began
            if label.endswith(("max", "prod")) and any(len(set(e.root_idxs)) < len(e.root_idxs) for e in group.items):
                continue  # takes the last of a unit's positions
            if name == "Grouped" and (label in ("fpgm", "lamp") or "normalizer" in label or label.endswith(("max", "prod"))):
                continue  # fails there, or mixes positions of a unit
            result["scores"].setdefault(label, {})[makers[0]] = score(group, criterion, channel_groups)
    program = torch.export.export(net.eval(), (torch.randn(2, 3, 8, 8),),
                                  dynamic_shapes=({0: torch.export.Dim("batch")},))
    for node in program.graph.nodes:  # no paths of the machine that wrote it
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node"):
            node.meta.pop(key, None)
    torch.export.save(program, f"{FOLDER}/{name.lower()}.pt2")
    return result


if __name__ == "__main__":
    measured = {"streams": measure("Streams", Streams(), 1), "grouped": measure("Grouped", Grouped(), 4)}
    with open(f"{FOLDER}/scores.json", "w") as file:
        json.dump(measured, file)
