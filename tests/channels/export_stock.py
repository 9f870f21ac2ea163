"""export_stock.py FOLDER [--train] NAME...: exports torchvision networks without auxiliary classifiers, or the small
ones below, in eval or training form, as FOLDER/NAME.pt2."""
import sys

import torch
import torchvision
from torch import nn


class SplitStage(nn.Module):
    """YOLOv8's C2f in small: one half is refined, everything is concatenated."""

    def __init__(self):
        super().__init__()
        self.cv1 = nn.Conv2d(3, 8, 1)
        self.m = nn.Conv2d(4, 4, 3, padding=1)
        self.cv2 = nn.Conv2d(12, 5, 1)
        self.fc = nn.Linear(5, 10)

    def forward(self, x):
        a, b = self.cv1(x).chunk(2, 1)
        y = self.cv2(torch.cat([a, b, self.m(b) + b], 1))
        return self.fc(y.mean((2, 3)))


class TiedWeights(nn.Module):
    """Two convolutions with one weight."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 1)
        self.a = nn.Conv2d(6, 6, 1, bias=False)
        self.b = nn.Conv2d(6, 6, 1, bias=False)
        self.b.weight = self.a.weight
        self.fc = nn.Linear(6, 10)

    def forward(self, x):
        return self.fc(self.b(self.a(self.stem(x)).relu()).mean((2, 3)))


class ViewSize(nn.Module):
    """Flattens by a view with a symbolic batch, after a 2x2 map, and takes a slice of the features."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 1)
        self.fc1 = nn.Linear(24, 8)
        self.fc2 = nn.Linear(5, 10)

    def forward(self, x):
        x = nn.functional.adaptive_avg_pool2d(self.conv(x), 2)
        x = self.fc1(x.view(x.size(0), -1))
        return self.fc2(x[:, 2:7])


class SlopesAndNorms(nn.Module):
    """One slope per channel, and norms with statistics of their own."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.slopes = nn.PReLU(6)
        self.norm = nn.InstanceNorm2d(6, affine=True, track_running_stats=True)
        self.slope = nn.PReLU()
        self.fc = nn.Linear(6, 10)

    def forward(self, x):
        return self.fc(self.slope(self.norm(self.slopes(self.conv(x)))).mean((2, 3)))


SMALL = {"split_stage": SplitStage, "tied_weights": TiedWeights, "view_size": ViewSize, "slopes": SlopesAndNorms}
SIZES = {"inception_v3": 75}
OPTIONS = {"googlenet": {"init_weights": True, "aux_logits": False},
           "inception_v3": {"init_weights": True, "aux_logits": False}, "vit_b_16": {"image_size": 64}}


def make(name):
    if name in SMALL:
        return SMALL[name]()
    return getattr(torchvision.models, name)(num_classes=10, **OPTIONS.get(name, {}))


folder, *names = sys.argv[1:]
train = "--train" in names
torch.manual_seed(0)
for name in names:
    if name == "--train":
        continue
    size = SIZES.get(name, 64)
    batch = {0: torch.export.Dim("batch")}
    program = torch.export.export(make(name).train(train), (torch.randn(2, 3, size, size),), dynamic_shapes=(batch,))
    torch.export.save(program, f"{folder}/{name}.pt2")
