"""make.py: writes the .pt2 files beside it, with PyTorch 2.11. Run once; the files are committed."""
import os

import torch
from torch import nn

FOLDER = os.path.dirname(os.path.abspath(__file__))
BATCH = {"x": {0: torch.export.Dim("batch")}}


class Net(nn.Module):
    """Convolution, batch norm, relu, max pooling, dropout, linear: what nearly every file holds."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(0.25)
        self.fc = nn.Linear(4 * 2 * 2, 5)

    def forward(self, x):
        y = nn.functional.max_pool2d(nn.functional.relu(self.bn(self.conv(x))), 2)
        return self.fc(self.dropout(y.flatten(1)))


class Structures(nn.Module):
    """Tied weights, a lifted constant, a buffer outside the state dict, symbolic sizes, lists, several outputs."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.register_buffer("order", torch.tensor([2, 0, 1]))
        self.register_buffer("scale", torch.arange(1.0, 4.0), persistent=False)

    def forward(self, x):
        y = self.second(self.first(x)).view(x.shape[0] * 2, 3) * self.scale
        left, _, right = torch.chunk(y[:, self.order], 3, 1)
        values, _ = torch.max(y, 1)
        return {"sum": left + right + torch.tensor(0.5), "max": values, "all": y.clamp(min=float("-inf"))}


class Branch(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,))


class Double(nn.Module):
    """A size that is no multiple of the batch."""

    def forward(self, x):
        return torch.cat([x, x.new_zeros(1, 3)])


class Counter(nn.Module):
    """A buffer that is written in place, other than by batch norm."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen.add_(x.mean(0))
        return x + self.seen


class Number(nn.Module):
    def forward(self, x):
        return x.shape[0]


class Pair(nn.Module):
    def forward(self, x):
        return torch.view_as_real(x.to(torch.complex64)).sum(-1)


class Autocast(nn.Module):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x.mT


class WriteWithoutGradients(nn.Module):
    """In place, to what gradients go through."""

    def forward(self, x):
        y = x * 2
        with torch.no_grad():
            y.mul_(3)
        return y * x


class ViewWithoutGradients(nn.Module):
    """The same, through a view."""

    def forward(self, x):
        y = x * 2
        with torch.no_grad():
            y.view(-1).mul_(3)
        return y * x


class WrittenCopy(nn.Module):
    """Rows of what lies in another order are a copy of it."""

    def forward(self, x):
        y = x.permute(0, 2, 3, 1) * 2 - 1
        rows = y.reshape(x.shape[0], -1)
        return torch.relu_(rows), y


class ThreeImages(nn.Module):
    """For three to nine."""

    def forward(self, x):
        return x * 2 if x.shape[0] >= 3 else x


def save(name, model, x, dynamic_shapes=None, decompose=False):
    program = torch.export.export(model, (x,), dynamic_shapes=dynamic_shapes)
    if decompose:
        program = program.run_decompositions()
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)  # paths of this machine
    torch.export.save(program, os.path.join(FOLDER, name))


torch.manual_seed(0)
images, rows = torch.randn(4, 3, 4, 4), torch.randn(4, 3)
save("net.pt2", Net(), images, BATCH)
save("structures.pt2", Structures(), torch.randn(4, 6), BATCH)
save("fixed_batch.pt2", Net(), torch.randn(1, 3, 4, 4))
save("dynamic_height.pt2", nn.Sequential(nn.ReLU()), torch.randn(4, 3, 8, 8),
     ({0: torch.export.Dim("batch"), 2: torch.export.Dim("height")},))
save("control_flow.pt2", Branch(), rows, BATCH)
save("decomposed.pt2", Net(), images, BATCH, decompose=True)
save("odd_size.pt2", Double(), rows, BATCH)
save("written_buffer.pt2", Counter(), rows, BATCH)
save("number_output.pt2", Number(), rows, BATCH)
save("complex.pt2", Pair(), rows, BATCH)
save("autocast.pt2", Autocast(), images, BATCH)
save("write_without_gradients.pt2", WriteWithoutGradients(), rows, BATCH)
save("view_without_gradients.pt2", ViewWithoutGradients(), rows, BATCH)
save("written_copy.pt2", WrittenCopy(), images, BATCH)
save("three_images.pt2", ThreeImages(), rows, ({0: torch.export.Dim("batch", min=3, max=9)},))
