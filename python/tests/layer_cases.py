"""The networks of tests/data/prune, as modules with inputs."""

import copy
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests/data/prune"))
import axis_cases, convolution_cases, sequence_cases, shape_cases  # noqa: E401, E402, F401
from layers import CASES  # noqa: E402


def case(name):
    net, inputs = CASES[name]
    torch.manual_seed(0)
    net = copy.deepcopy(net)
    for weight in net.parameters():
        weight.data.uniform_(-0.7, 0.7)
    return net, tuple(inputs)
