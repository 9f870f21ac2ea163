"""groups: which units live and die together, and why some stay."""

import pytest
import torch
from torch import nn

import prunex
from training import batch, small_network

X = batch(0, 0)[0]


def test_groups_know_where_their_units_lie():
    groups = {group.name: group for group in prunex.groups(small_network(), X)}
    inner = groups["0"]
    assert (inner.size, inner.kind, inner.prunable) == (8, "inner", True)
    assert {(s.tensor, s.axis) for s in inner.slices} >= {("0.weight", 0), ("1.weight", 0), ("3.weight", 1)}
    assert any(not group.prunable and group.reason for group in groups.values())
    with pytest.raises(ValueError, match="`example`: got none"):
        prunex.groups(small_network())
    with pytest.raises(ValueError, match="`example`: an exported program carries its own"):
        prunex.groups(torch.export.export(small_network(), (X,)), X)


class Differences(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(15, 4)

    def forward(self, x, mask=None):
        return self.c(torch.diff(self.b(self.a(x).relu())))


def test_operations_without_a_rule_keep_what_they_touch():
    net, inputs = Differences(), (torch.randn(2, 8), None)
    reasons = {group.name: group.reason for group in prunex.groups(net, inputs)}
    assert reasons["a"] == "" and "aten::diff (node diff) has no rule" in reasons["b"]
    assert "<prunex.Group a: 16 units, inner>" in repr(prunex.groups(net, inputs))
    prunex.prune(net, inputs, ratio=0.5)
    assert (net.a.out_features, net.b.out_features) == (8, 16)
    assert net(*inputs).shape == (2, 4)


def test_files_may_not_hold_what_modules_may(tmp_path):
    torch.export.save(torch.export.export(Differences(), (torch.randn(2, 8),)), tmp_path / "net.pt2")
    with pytest.raises(ValueError, match="is not among the operations that a program from a file may hold"):
        prunex.groups(tmp_path / "net.pt2")
