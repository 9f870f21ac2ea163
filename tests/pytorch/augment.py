"""augment.py FILE…: what each operation made of the tensor `image` (height x width x channels), beside torchvision's.

Names say the operation and its numbers. Levels may be one beside torchvision's in a thousandth of the values, pixels of
shears and rotations may be a neighbour in as many; everything else is equal. Resized crops are Pillow's or one beside."""
import sys

import numpy
import torch
from PIL import Image
from safetensors.torch import load_file
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

GEOMETRY = {"ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"}


def rand_augment(image, name, magnitude, sign):
    policy = v2.RandAugment()
    strengths, signed = policy._AUGMENTATION_SPACE[name]
    strengths = strengths(31, image.shape[1], image.shape[2])
    strength = 0.0 if strengths is None else float(strengths[int(magnitude)])
    assert signed or sign == "1"
    return policy._apply_image_or_video_transform(image, name, float(sign) * strength, policy.interpolation,
                                                  policy._fill)


def wanted(image, name, numbers):
    if name in v2.RandAugment._AUGMENTATION_SPACE:
        return rand_augment(image, name, *numbers)
    if name == "erase":
        top, left, height, width = map(int, numbers)
        value = torch.tensor([124, 116, 104], dtype=torch.uint8)[:image.shape[0], None, None]
        return F.erase(image, top, left, height, width, value)
    return getattr(F, name)(image, *map(float, numbers))


def by_pillow(image, numbers):
    top, left, height, width = map(int, numbers)
    pixels = image.permute(1, 2, 0).numpy()
    picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    picture = picture.crop((left, top, left + width, top + height)).resize((24, 24), Image.BILINEAR)
    return torch.from_numpy(numpy.array(picture)).reshape(24, 24, -1).permute(2, 0, 1)


seen = set()
for path in sys.argv[1:]:
    results = load_file(path)
    image = results.pop("image").permute(2, 0, 1).contiguous()
    for key, got in results.items():
        name, *numbers = key.split(":")
        seen.add(name)
        got = got.permute(2, 0, 1).int()
        if name == "resized_crop":
            difference = (got - by_pillow(image, numbers).int()).abs()
            assert difference.max() <= 1 and (difference > 0).float().mean() < 0.02, (key, difference.max())
            continue
        difference = (got - wanted(image, name, numbers).int()).abs()
        changed = (difference > 0).float().mean()
        assert changed <= 0.001, (path, key, changed)
        assert name in GEOMETRY or difference.max() <= 1, (path, key, difference.max())
assert set(v2.RandAugment._AUGMENTATION_SPACE) <= seen, seen
