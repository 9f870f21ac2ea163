"""prunex's built-in networks in eager PyTorch, with the same names of tensors."""
from torch import nn


class Block(nn.Module):
    """He et al., figure 2, with a projection where shapes differ."""

    def __init__(self, inputs, outputs, norm):
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = norm(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + shortcut)


class CifarResNet(nn.Module):
    """He et al., section 4.2: three stages of so many blocks."""

    def __init__(self, blocks, norm=nn.BatchNorm2d):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = norm(16)
        widths = [16, 16, 32, 64]
        for stage in (1, 2, 3):
            layers = [Block(widths[stage - 1], widths[stage], norm)]
            layers += [Block(widths[stage], widths[stage], norm) for _ in range(blocks - 1)]
            setattr(self, f"layer{stage}", nn.Sequential(*layers))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


def group_norm(channels):
    """As prunex divides 16, 32, 64 … 2048 channels."""
    return nn.GroupNorm(min(32, channels // 4), channels)


def with_group_norm(network):
    """torchvision's VGGs have no option for it."""
    for index, layer in enumerate(network.features):
        if isinstance(layer, nn.BatchNorm2d):
            network.features[index] = group_norm(layer.num_features)
    return network


def make(name, size=32, norm="batch"):
    """Of ten classes, for images of so many pixels a side. torchvision is needed but for the CIFAR ResNets."""
    cifar = {"resnet8": 1, "resnet20": 3, "resnet56": 9}
    if name in cifar:
        return CifarResNet(cifar[name], group_norm if norm == "group" else nn.BatchNorm2d)
    from torchvision import models
    if "vgg" in name:
        network = getattr(models, name)(num_classes=10)
        return with_group_norm(network) if norm == "group" else network
    network = getattr(models, name)(num_classes=10, norm_layer=group_norm if norm == "group" else None)
    if size <= 32 and "resnet" in name:
        network.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        network.maxpool = nn.Identity()
    return network
