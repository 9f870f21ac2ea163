"""prunex's built-in networks for CIFAR images, in eager PyTorch."""
from torch import nn


class Block(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + shortcut)


def cifar_resnet(blocks):
    """He et al., section 4.2, with projections: three stages of so many blocks."""
    layers, channels = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)], 16
    for out in (16, 32, 64):
        for i in range(blocks):
            layers.append(Block(channels, out, 2 if i == 0 and out != 16 else 1))
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def resnet8():
    return cifar_resnet(1)


def resnet20():
    return cifar_resnet(3)


def resnet18():
    """A 3x3 stem without max-pool, as for images of 32x32 and below."""
    import torchvision
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    return model


def resnet50():
    import torchvision
    return torchvision.models.resnet50(num_classes=10)


def vgg16_bn():
    import torchvision
    return torchvision.models.vgg16_bn(num_classes=10)
