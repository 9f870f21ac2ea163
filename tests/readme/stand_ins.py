"""stand_ins.py FOLDER: makes there what README takes for granted, small: data/ with CIFAR-10's binary files, and what the blocks of
Python call images and labels, in images.pt."""
import os
import sys

import torch

FOLDER = "data/cifar-10-batches-bin"
NAMES = "airplane automobile bird cat deer dog frog horse ship truck"


def batch(seed, count):
    """Labels in turn, each with a brightness of its own."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 10
    images = torch.randint(0, 100, (count, 3, 32, 32), generator=generator) + 15 * labels.view(-1, 1, 1, 1)
    return images.to(torch.uint8), labels


def write_cifar(name, seed, count):
    images, labels = batch(seed, count)
    records = torch.cat([labels.to(torch.uint8).view(-1, 1), images.reshape(count, -1)], 1)
    with open(f"{FOLDER}/{name}", "wb") as file:
        file.write(records.numpy().tobytes())


os.chdir(sys.argv[1])
os.makedirs(FOLDER)
for i in range(1, 6):
    write_cifar(f"data_batch_{i}.bin", i, 40)
write_cifar("test_batch.bin", 6, 20)
with open(f"{FOLDER}/batches.meta.txt", "w") as file:
    file.write("\n".join(NAMES.split()) + "\n\n")
images, labels = batch(7, 80)
torch.save({"images": images, "labels": labels}, "images.pt")
