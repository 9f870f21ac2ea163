"""check_written.py NAME FOLDER: files that we wrote against the stock files they were read from.

written_train.pt2 and written_eval.pt2 come from train.pt2; eval.pt2 is PyTorch's own eval form of the network."""
import sys

import networks
import torch

name, folder = sys.argv[1:]


def load(file):
    return torch.export.load(f"{folder}/{file}")


def run(program, batch):
    torch.manual_seed(5)
    with torch.no_grad():
        return networks.outputs_of(program.module()(networks.images(name, batch, batch)))


def check(got, wanted, what):
    scale = wanted.abs().max().clamp(min=1e-12)
    error = (got - wanted).abs().max() / scale
    assert got.shape == wanted.shape and error <= 1e-5, f"{what}: relative difference {error}"


for written, stock in (("written_train.pt2", "train.pt2"), ("written_eval.pt2", "eval.pt2")):
    for batch in (1, 3, 7) if "eval" in written else (3, 7):
        got, wanted = run(load(written), batch), run(load(stock), batch)
        for g, w in zip(got, wanted):
            check(g, w, f"{written}, batch {batch}")

ours, theirs = load("written_train.pt2"), load("train.pt2")
assert list(ours.state_dict) == list(theirs.state_dict), "the state dicts have other names"
for key, tensor in theirs.state_dict.items():
    assert torch.equal(tensor, ours.state_dict[key]), key
assert ours.module_call_graph[0].signature.out_spec == theirs.module_call_graph[0].signature.out_spec
calls = [len([n for n in p.graph.nodes if n.op == "call_function"]) for p in (ours, theirs)]
assert calls[0] <= calls[1], f"{calls} calls"
torch.export.unflatten(ours)
