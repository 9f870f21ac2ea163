"""What the networks of the cases are made of."""
import torch
from torch import nn
from torch.nn import functional as F

CASES = {}  # name -> (function that makes the network, its inputs)


class Net(nn.Module):
    """Named layers and parameters, and a function of them and the inputs."""

    def __init__(self, run, layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.run = run

    def forward(self, *inputs):
        return self.run(self, *inputs)


def image(*sizes):
    return wave(2, *(sizes or (3, 6, 6)))


def wave(*sizes):
    """Values that C++ makes as well: the sine of equally spaced numbers."""
    count = torch.Size(sizes).numel()
    return torch.linspace(-1000, 1000, count, dtype=torch.float64).sin().float().reshape(sizes)


def tokens(*sizes, words=7):
    """0, 1, 2 ... and again from 0."""
    count = torch.Size((2, *sizes)).numel()
    return (torch.arange(count) % words).reshape(2, *sizes)


def case(name, run, *inputs, **layers):
    """`layers` are made in the order they are given, by functions without arguments or as they are."""
    assert name not in CASES
    made = {key: (layer() if callable(layer) and not isinstance(layer, nn.Module) else layer)
            for key, layer in layers.items()}
    CASES[name] = (Net(run, made), inputs or (image(),))


def conv(inputs, outputs, kernel=1, **options):
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, **options)


def linear(inputs, outputs, **options):
    return nn.Linear(inputs, outputs, **options)


def parameter(*sizes):
    return nn.Parameter(1 + 0.5 * torch.randn(*sizes))


def pool(x):
    """Means over everything behind the channels."""
    return x.flatten(2).mean(2)


relu = F.relu
