"""check_written.py NAME FOLDER: files that we wrote against the stock files they were read from.

written_train.pt2 and written_eval.pt2 come from train.pt2; eval.pt2 is PyTorch's own eval form of the network."""
import sys

import networks
import torch

name, folder = sys.argv[1:]


def run(module, batch):
    torch.manual_seed(5)
    with torch.no_grad():
        return networks.outputs_of(module(networks.images(name, batch, batch)))


def check(got, wanted, what):
    scale = wanted.abs().max().clamp(min=1e-12)
    error = (got - wanted).abs().max() / scale
    assert got.shape == wanted.shape and error <= 1e-5, f"{what}: relative difference {error}"


def compare(written, stock, batches):
    """Loads one pair at a time: vgg16_bn takes 0.5 GB."""
    ours, theirs = (torch.export.load(f"{folder}/{file}") for file in (written, stock))
    modules = ours.module(), theirs.module()
    for batch in batches:
        for got, wanted in zip(run(modules[0], batch), run(modules[1], batch)):
            check(got, wanted, f"{written}, batch {batch}")
    return ours, theirs


compare("written_eval.pt2", "eval.pt2", (1, 3, 7))
ours, theirs = compare("written_train.pt2", "train.pt2", (3,))
assert list(ours.state_dict) == list(theirs.state_dict), "the state dicts have other names"
assert ours.module_call_graph[0].signature.out_spec == theirs.module_call_graph[0].signature.out_spec
calls = [len([n for n in p.graph.nodes if n.op == "call_function"]) for p in (ours, theirs)]
assert calls[0] <= calls[1], f"{calls} calls"
torch.export.unflatten(ours)
