"""Networks for sizes_test.cpp and bench/pruning.py: torchvision's, and those for CIFAR as Torch-Pruning has them."""
import torchvision
from torch import nn


def conv_norm(channels, width, **options):
    return [nn.Conv2d(channels, width, **options), nn.BatchNorm2d(width)]


class CifarVgg19(nn.Module):
    """VGG-19 with batch norm for 32x32 images: the last stage at 4x4. As in Torch-Pruning's, the last activation of a
    stage is a function, which its count leaves out."""

    def __init__(self):
        super().__init__()
        self.stages, channels = nn.ModuleList(), 3
        for width, count in [(64, 2), (128, 2), (256, 4), (512, 4), (512, 4)]:
            layers = []
            for _ in range(count):
                layers += conv_norm(channels, width, kernel_size=3, padding=1) + [nn.ReLU(inplace=True)]
                channels = width
            self.stages.append(nn.Sequential(*layers[:-1]))
        self.pool, self.last_pool = nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(512, 100)

    def forward(self, x):
        for i, stage in enumerate(self.stages):
            x = nn.functional.relu(stage(x))
            x = self.pool(x) if i < 3 else x
        return self.classifier(self.last_pool(x).flatten(1))


class Block(nn.Module):
    """Two 3x3 convolutions; the activation behind the sum is a function."""

    def __init__(self, channels, width, stride):
        super().__init__()
        self.first = nn.Sequential(*conv_norm(channels, width, kernel_size=3, stride=stride, padding=1, bias=False),
                                   nn.ReLU(inplace=True))
        self.second = nn.Sequential(*conv_norm(width, width, kernel_size=3, padding=1, bias=False))
        changes = stride > 1 or channels != width
        self.shortcut = nn.Sequential(*conv_norm(channels, width, kernel_size=1, stride=stride, bias=False)
                                      if changes else [])

    def forward(self, x):
        return nn.functional.relu(self.second(self.first(x)) + self.shortcut(x))


class CifarResNet(nn.Module):
    """ResNet of 6n + 2 layers for 32x32 images, with convolutions as shortcuts between stages."""

    def __init__(self, blocks):
        super().__init__()
        layers, channels = conv_norm(3, 16, kernel_size=3, padding=1, bias=False) + [nn.ReLU(inplace=True)], 16
        for stage, width in enumerate((16, 32, 64)):
            for block in range(blocks):
                layers.append(Block(channels, width, 2 if stage > 0 and block == 0 else 1))
                channels = width
        self.features = nn.Sequential(*layers, nn.AvgPool2d(8))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


def make(name):
    """The network and its image size."""
    if name == "cifar_vgg19":
        return CifarVgg19(), 32
    if name.startswith("cifar_resnet"):
        return CifarResNet((int(name[12:]) - 2) // 6), 32
    return getattr(torchvision.models, name)(), 224
