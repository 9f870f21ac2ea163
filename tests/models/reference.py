"""reference.py NAME FOLDER: torchvision's network with the weights of FOLDER/model.pt2.

Checks that the state dicts list the same tensors, and writes expected.pt: the input `x`, `eval`, and of one training
step (seed 7, loss = the mean square of the logits) `train`, `grad.PARAMETER` and `buffer.NAME`, thinned out."""
import sys

import torch
from torch import nn
from torchvision import models
from torchvision.models.resnet import BasicBlock


class CifarResNet(nn.Module):
    """He et al., section 4.2, of torchvision's blocks, with projections."""

    def __init__(self, blocks):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        widths = [16, 16, 32, 64]
        for stage in (1, 2, 3):
            layers = [self.block(widths[stage - 1], widths[stage])]
            layers += [self.block(widths[stage], widths[stage]) for _ in range(blocks - 1)]
            setattr(self, f"layer{stage}", nn.Sequential(*layers))
        self.fc = nn.Linear(64, 10)

    @staticmethod
    def block(inputs, outputs):
        if inputs == outputs:
            return BasicBlock(inputs, outputs)
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, 2, bias=False), nn.BatchNorm2d(outputs))
        return BasicBlock(inputs, outputs, 2, shortcut)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


def make(name, size):
    cifar = {"resnet8": 1, "resnet20": 3, "resnet56": 9}
    if name in cifar:
        return CifarResNet(cifar[name])
    network = getattr(models, name)(num_classes=10)
    if size <= 32 and "resnet" in name:
        network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        network.maxpool = nn.Identity()
    return network


def thin(tensor):
    return tensor.flatten()[:: max(1, tensor.numel() // 1000)].clone()


name, folder = sys.argv[1:]
program = torch.export.load(f"{folder}/model.pt2")
size = program.example_inputs[0][0].shape[-1]
network = make(name, size)
ours = {key: tensor.detach().clone() for key, tensor in program.state_dict.items()}
theirs = [key for key, _ in network.named_parameters()] + [key for key, _ in network.named_buffers()]
assert list(ours) == theirs, f"other tensors, or in another order: {list(ours)} {theirs}"
network.load_state_dict(ours)

x = torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(1))
expected = {"x": x}
with torch.no_grad():
    expected["eval"] = network.eval()(x)
    loaded = program.module()(x)
assert (loaded - expected["eval"]).abs().max() <= 1e-5 * expected["eval"].abs().max(), "the loaded program differs"

torch.manual_seed(7)
logits = network.train()(x)
logits.square().mean().backward()
expected["train"] = logits.detach()
for key, parameter in network.named_parameters():
    expected[f"grad.{key}"] = thin(parameter.grad)
for key, buffer in network.named_buffers():
    if not key.endswith("num_batches_tracked"):
        expected[f"buffer.{key}"] = thin(buffer)
torch.save(expected, f"{folder}/expected.pt")
