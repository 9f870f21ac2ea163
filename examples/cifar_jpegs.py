#!/usr/bin/env python3
"""Makes a folder of JPEGs in 100 classes of CIFAR-10: its ten classes, each in ten lights.

OUTPUT/train/CLASS/*.jpg and OUTPUT/val/CLASS/*.jpg, as torchvision's ImageFolder and `prunex train --dataset OUTPUT`
read them. Every image appears once, in one light: its colours are multiplied by one of ten gains, spread evenly around
the hue circle. So a class is an object and a light. Sizes vary, 32 to 64 pixels a side."""
import argparse
import math
import os
import sys

import numpy
from PIL import Image

LIGHTS = 10
STRENGTH = 0.4
SIZES = ((32, 32), (40, 40), (48, 48), (64, 64), (64, 48), (40, 56))  # width, height
RECORD = 1 + 3 * 32 * 32


def read(path):
    """Labels and images, N x 32 x 32 x 3, of one of CIFAR-10's binary files."""
    records = numpy.fromfile(path, dtype=numpy.uint8)
    if records.size == 0 or records.size % RECORD or records[::RECORD].max() > 9:
        raise OSError(f"{path}: {records.size} bytes, wanted records of {RECORD} with labels of 0 to 9")
    records = records.reshape(-1, RECORD)
    return records[:, 0], records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def gains(light):
    """Gains of red, green and blue, the largest 1."""
    of = [1 + STRENGTH * math.cos(2 * math.pi * (light / LIGHTS - colour / 3)) for colour in range(3)]
    return numpy.array(of) / max(of)


def first(paths, images):
    """Labels and images of the files' first records."""
    labels, pixels = (numpy.concatenate(parts) for parts in zip(*map(read, paths)))
    if not 1 <= images <= len(labels):
        raise OSError(f"{paths[0]}, …: {images} images are wanted, there are {len(labels)}")
    return labels[:images], pixels[:images]


def write(folder, names, labels, pixels):
    """Cycles through the lights, and then the sizes, within every class."""
    seen = [0] * len(names)
    for i, label in enumerate(labels):
        light = seen[label] % LIGHTS
        image = Image.fromarray((pixels[i] * gains(light)).round().astype(numpy.uint8))
        image = image.resize(SIZES[seen[label] // LIGHTS % len(SIZES)], Image.BICUBIC)
        place = os.path.join(folder, f"{names[label]}-{light}")
        os.makedirs(place, exist_ok=True)
        image.save(os.path.join(place, f"{i:05}.jpg"), quality=90)
        seen[label] += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cifar", help="folder of data_batch_1.bin … data_batch_5.bin, test_batch.bin, batches.meta.txt")
    parser.add_argument("output", help="where to write, a folder that is not there yet")
    parser.add_argument("--train", type=int, default=50000, metavar="N", help="images to train on (50000)")
    parser.add_argument("--val", type=int, default=10000, metavar="N", help="images to test on (10000)")
    options = parser.parse_args()
    with open(os.path.join(options.cifar, "batches.meta.txt")) as file:
        names = file.read().split()
    train = first([os.path.join(options.cifar, f"data_batch_{i}.bin") for i in range(1, 6)], options.train)
    val = first([os.path.join(options.cifar, "test_batch.bin")], options.val)
    os.makedirs(options.output)
    write(os.path.join(options.output, "train"), names, *train)
    write(os.path.join(options.output, "val"), names, *val)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"cifar_jpegs.py: {error}")
