"""The training batches of `prunex train --dataset cifar10`, as prunex/data/loader.cpp draws them."""
import os

import numpy as np

STEP = 0x9e3779b97f4a7c15
PERMUTATION, AUGMENTATION = 1, 2  # streams of random numbers
PADDING, SIDE = 4, 32
MEAN = np.array([0.49139968, 0.48215841, 0.44653091])
STD = np.array([0.24703223, 0.24348513, 0.26158784])


def mix(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
    return x ^ (x >> np.uint64(31))


def stream(*keys):
    """SplitMix64's state for keys, each a number or an array of them."""
    state = np.zeros(1, np.uint64)
    for key in keys:
        state = mix(state + np.uint64(STEP) + np.asarray(key, np.uint64))
    return state


def below(n, state, draw):
    """Number `draw`, counted from 1, of each stream: uniform in 0 ... n - 1."""
    bits = mix(state + np.asarray(draw, np.uint64) * np.uint64(STEP)) >> np.uint64(32)
    return ((bits * np.asarray(n, np.uint64)) >> np.uint64(32)).astype(np.int64)


def permutation(size, seed, epoch):
    last = np.arange(size - 1, 0, -1)
    order = list(range(size))
    for i, j in zip(last.tolist(), below(last + 1, stream(seed, PERMUTATION, epoch), np.arange(1, size)).tolist()):
        order[i], order[j] = order[j], order[i]
    return np.array(order)


TRAINING = [f"data_batch_{i}.bin" for i in range(1, 6)]


def read_cifar10(folder, names=TRAINING):
    """Images [N, 3, 32, 32] and labels of these files, by default the training set."""
    inner = os.path.join(folder, "cifar-10-batches-bin")
    files = [os.path.join(inner if os.path.isdir(inner) else folder, name) for name in names]
    records = np.concatenate([np.fromfile(file, np.uint8).reshape(-1, 1 + 3 * SIDE * SIDE) for file in files])
    return records[:, 1:].reshape(-1, 3, SIDE, SIDE), records[:, 0].astype(np.int64)


def augmented(images, seed, epoch, positions):
    """Crops of the images, padded with black, at random places; every other one mirrored."""
    state = stream(seed, AUGMENTATION, epoch, positions)
    down, right = (below(2 * PADDING + 1, state, draw) for draw in (1, 2))
    flip = below(2, state, 3)
    padded = np.pad(images, ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING)))
    crops = [image[:, y:y + SIDE, x:x + SIDE] for image, y, x in zip(padded, down, right)]
    return np.stack([crop[:, :, ::-1] if mirrored else crop for crop, mirrored in zip(crops, flip)])


def draw(folder, seed, steps, ranks, batch):
    """Pixels [steps, ranks, batch, 3, 32, 32] before they are normalised, and labels."""
    images, labels = read_cifar10(folder)
    each = ranks * batch
    epoch_steps, drawn = len(labels) // each, []
    for begin in range(0, steps, epoch_steps):
        epoch, positions = begin // epoch_steps, np.arange(min(epoch_steps, steps - begin) * each)
        chosen = permutation(len(labels), seed, epoch)[positions]
        drawn.append((augmented(images[chosen], seed, epoch, positions), labels[chosen]))
    pixels, numbers = (np.concatenate(parts) for parts in zip(*drawn))
    return pixels.reshape(steps, ranks, batch, 3, SIDE, SIDE), numbers.reshape(steps, ranks, batch)
