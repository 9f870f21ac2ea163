"""Exports networks for sizes_test.cpp as DIR/NAME.pt2, in eval form: export_sizes.py DIR NAME…"""
import sys

import torch

from networks_by_name import make

folder, *names = sys.argv[1:]
torch.manual_seed(0)
for name in names:
    net, size = make(name)
    batch = {0: torch.export.Dim("batch")}
    program = torch.export.export(net.eval(), (torch.randn(2, 3, size, size),), dynamic_shapes=(batch,))
    torch.export.save(program, f"{folder}/{name}.pt2")
