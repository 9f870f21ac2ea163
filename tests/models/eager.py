"""prunex's built-in networks in eager PyTorch, with the same names of tensors."""
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
