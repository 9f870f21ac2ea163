"""unflatten_written.py FOLDER makes region.pt2 and three.pt2; unflatten_written.py FILE...: stock PyTorch loads our files,
whatever batches their exports allow, and gives their modules back."""
import os
import sys

import torch


class Region(torch.nn.Module):
    """Part of it takes no gradients."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 6), torch.nn.Linear(6, 2)

    def forward(self, x):
        with torch.no_grad():
            y = self.a(x).relu()
        return self.b(y)


def make(folder):
    for name, least in (("region", 1), ("three", 3)):
        shapes = ({0: torch.export.Dim("batch", min=least, max=9)},)
        torch.export.save(torch.export.export(Region(), (torch.ones(3, 4),), dynamic_shapes=shapes),
                          f"{folder}/{name}.pt2")


def check(path):
    program = torch.export.load(path)
    inputs, _ = program.example_inputs
    assert torch.allclose(program.module()(*inputs), torch.export.unflatten(program)(*inputs)), path


for path in sys.argv[1:]:
    make(path) if os.path.isdir(path) else check(path)
