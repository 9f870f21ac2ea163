"""prunex's built-in networks in eager PyTorch, with the same names of tensors."""
from torch import nn
from torchvision import models
from torchvision.models.resnet import BasicBlock


def group_norm(channels):
    """As prunex divides 16, 32, 64 … 2048 channels."""
    return nn.GroupNorm(min(32, channels // 4), channels)


class CifarResNet(nn.Module):
    """He et al., section 4.2, of torchvision's blocks, with projections."""

    def __init__(self, blocks, norm=nn.BatchNorm2d):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = norm(16)
        widths = [16, 16, 32, 64]
        for stage in (1, 2, 3):
            layers = [self.block(widths[stage - 1], widths[stage], norm)]
            layers += [self.block(widths[stage], widths[stage], norm) for _ in range(blocks - 1)]
            setattr(self, f"layer{stage}", nn.Sequential(*layers))
        self.fc = nn.Linear(64, 10)

    @staticmethod
    def block(inputs, outputs, norm):
        if inputs == outputs:
            return BasicBlock(inputs, outputs, norm_layer=norm)
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, 2, bias=False), norm(outputs))
        return BasicBlock(inputs, outputs, 2, shortcut, norm_layer=norm)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


def with_group_norm(network):
    """torchvision's VGGs have no option for it."""
    for index, layer in enumerate(network.features):
        if isinstance(layer, nn.BatchNorm2d):
            network.features[index] = group_norm(layer.num_features)
    return network


def make(name, size, norm="batch"):
    cifar = {"resnet8": 1, "resnet20": 3, "resnet56": 9}
    if name in cifar:
        return CifarResNet(cifar[name], *([group_norm] if norm == "group" else []))
    if "vgg" in name:
        network = getattr(models, name)(num_classes=10)
        return with_group_norm(network) if norm == "group" else network
    network = getattr(models, name)(num_classes=10, norm_layer=group_norm if norm == "group" else None)
    if size <= 32 and "resnet" in name:
        network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        network.maxpool = nn.Identity()
    return network
