"""images.py [FOLDER]: images per second and core, from JPEG files to batches, of prunex, torchvision and Pillow.

FOLDER is an ImageFolder, FOLDER/train/CLASS/*.jpg and FOLDER/val/CLASS/*.jpg; without it one is made of noise and waves,
of 500 x 375 pixels. All do RandomResizedCrop(224) and a flip, in one thread of one process each, in turns; the
best of five rounds counts. Then the share of resnet18's step that waits for images, and how memory grows while ten times
as many images are read. Run with the package's folder in PYTHONPATH."""
import argparse
import os
import resource
import tempfile
import time

import numpy
import torch
import torchvision
from PIL import Image
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import v2

torch.set_num_threads(1)
SIZE = 224


def make(folder, images):
    """Smooth pictures with some detail, 75 to 110 kB each."""
    random = numpy.random.default_rng(1)
    for part, count in ("train", images), ("val", images // 5):
        for i in range(count):
            coarse = Image.fromarray(random.integers(0, 256, (24, 32, 3), dtype=numpy.uint8)).resize((500, 375), 3)
            pixels = numpy.array(coarse).astype(int) + random.integers(-14, 15, (375, 500, 3))
            os.makedirs(f"{folder}/{part}/{i % 4}", exist_ok=True)
            Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(f"{folder}/{part}/{i % 4}/{i}.jpg", quality=85)


def pillow(folder):
    """As torchvision's references: PIL images, then tensors."""
    work = transforms.Compose([transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(),
                               transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    return loader(ImageFolder(f"{folder}/train", work))


def torchvision_io(folder):
    """torchvision's decoder and v2 on uint8 tensors, its fastest way on a CPU."""
    work = v2.Compose([v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip(),
                       v2.ToDtype(torch.float32, scale=True),
                       v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    return loader(ImageFolder(f"{folder}/train", work, loader=lambda path: decode_image(path, ImageReadMode.RGB)))


def loader(dataset):
    return torch.utils.data.DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)


def epoch_of(batches):
    begin, count = time.process_time(), 0
    for images, _ in batches:
        count += len(images)
    time.sleep(1)  # for threads that decode ahead: as many batches are there as were when it began
    return count / (time.process_time() - begin)


class Prunex:
    """The Loader that `prunex train` has, by the Python package; the processor time of all its threads counts."""

    def __init__(self, folder):
        from prunex import _prunex
        train = sum(len(files) for _, _, files in os.walk(f"{folder}/train"))
        self.loader, self.epoch = _prunex.Loader(folder, "", 0, 32, 0, 1, 1), 0
        assert self.loader.steps_per_epoch() == train // 32

    def __iter__(self):
        for step in range(self.loader.steps_per_epoch()):
            yield self.loader.batch(self.epoch, step)
        self.epoch += 1


def speeds(folder, rounds):
    ways = {"prunex": Prunex(folder), "torchvision.io + v2": torchvision_io(folder), "ImageFolder, Pillow": pillow(folder)}
    best = dict.fromkeys(ways, 0.0)
    for _ in range(rounds):
        for name, batches in ways.items():
            best[name] = max(best[name], epoch_of(batches))
    for name, speed in best.items():
        print(f"{name:24s} {speed:7.0f} images/s per core   x {best['prunex'] / speed:.2f}")
    return best


def forever(epochs):
    while True:
        yield from epochs


def waiting(folder, steps):
    """Of the time of resnet18's steps at 224 in one thread, batches of 32, while prunex' threads decode."""
    net = torchvision.models.resnet18(num_classes=4)
    batches, waited = forever(Prunex(folder)), 0.0
    next(batches)
    begin = time.perf_counter()
    for _ in range(steps):
        asked = time.perf_counter()
        images, labels = next(batches)
        waited += time.perf_counter() - asked
        torch.nn.functional.cross_entropy(net(images), labels).backward()
    total = time.perf_counter() - begin
    print(f"resnet18, batches of 32: {1e3 * total / steps:.0f} ms per step, {100 * waited / total:.2f} % of them waiting")


def memory(folder, times):
    """Growth of the process while a set of links to the same files, so many times as large, is read once."""
    with tempfile.TemporaryDirectory() as place:
        for part, repeats in ("train", times), ("val", 1):
            for name in os.listdir(f"{folder}/{part}"):
                os.makedirs(f"{place}/{part}/{name}")
                for file in os.listdir(f"{folder}/{part}/{name}"):
                    for i in range(repeats):
                        os.symlink(f"{folder}/{part}/{name}/{file}", f"{place}/{part}/{name}/{i}-{file}")
        batches = iter(Prunex(place))
        for _ in range(8):
            next(batches)
        before, count = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
        for images, _ in batches:
            count += len(images)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"{count} images, {count * SIZE * SIZE * 3 / 2**20:.0f} MiB decoded: {grown / 1024:.0f} MiB more memory")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = options.folder
        if folder is None:
            folder = f"{place}/set"
            make(folder, options.images)
        speeds(folder, options.rounds)
        waiting(folder, 8)
        memory(os.path.abspath(folder), 10)


if __name__ == "__main__":
    main()
