"""folders.py make FOLDER: a folder of images of all forms, written by Pillow.
folders.py check FOLDER: what prunex made of FOLDER/set/val, beside torchvision's ImageFolder, Pillow's pixels and the
presets that torchvision's networks are tested with."""
import os
import sys

import numpy
import torch
from PIL import Image
from safetensors.torch import load_file
from torchvision import transforms
from torchvision.datasets import ImageFolder

what, folder = sys.argv[1:]


def picture(seed, height, width, mode="RGB"):
    waves = numpy.random.default_rng(seed).uniform(0.02, 0.2, (4, 2))
    y, x = numpy.mgrid[0:height, 0:width]
    channels = [127 + 120 * numpy.sin(wave[0] * x + wave[1] * y + seed) for wave in waves]
    pixels = numpy.stack(channels, 2).clip(0, 255).astype(numpy.uint8)
    if mode in ("RGBA", "CMYK"):
        return Image.fromarray(pixels, mode)
    return Image.fromarray(pixels[:, :, :3].copy()).convert(mode)


def save(name, image, **options):
    os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
    image.save(f"{folder}/{name}", **options)


def write_rgb16(name, pixels):
    """Pillow writes no PNG of 16 bits per colour: written by hand."""
    import struct
    import zlib
    chunks = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 16, 2, 0, 0, 0)
    with open(f"{folder}/{name}", "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(chunks)) + chunk(b"IEND", b""))


def make():
    for part in "train", "val":
        for seed, name in enumerate(("Zebra", "ant", "bee 2", "ähre")):
            save(f"{part}/{name}/{seed}.jpg", picture(seed, 70 + seed, 90))
    for subsampling in 0, 1, 2:
        for quality in 30, 95:
            save(f"val/ant/s{subsampling}q{quality}.JPEG", picture(quality, 91, 75), subsampling=subsampling,
                 quality=quality, progressive=quality == 30)
    save("val/ant/deeper/b.jpg", picture(9, 64, 64))
    save("val/ant/a-deeper/c.jpg", picture(10, 300, 64))
    save("val/bee 2/grey.jpg", picture(11, 80, 120, "L"))
    save("val/bee 2/cmyk.jpg", picture(12, 80, 120, "CMYK"))
    exif = Image.Exif()
    exif[0x0112] = 6
    save("val/bee 2/turned.jpg", picture(13, 80, 120), exif=exif)
    for i, mode in enumerate(("RGB", "L", "P", "1", "RGBA", "LA")):
        image = picture(14 + i, 66, 77, "RGB" if mode in ("P", "1", "LA") else mode)
        save(f"val/Zebra/{mode}.png", image.convert(mode))
    save("val/Zebra/transparent.png", picture(20, 66, 77).convert("P"), transparency=3)
    write_rgb16("val/Zebra/rgb16.png", numpy.random.default_rng(3).integers(0, 65536, (60, 61, 3)))
    save("val/Zebra/lossy.webp", picture(21, 66, 77), quality=80)
    save("val/Zebra/lossless.webp", picture(22, 66, 77), lossless=True)
    save("val/Zebra/alpha.webp", picture(23, 66, 77, "RGBA"), lossless=True, exact=True)
    save("val/Zebra/is_png.jpg", picture(24, 66, 77), format="PNG")
    with open(f"{folder}/val/Zebra/notes.txt", "w") as file:
        file.write("no image")


def check():
    wanted = ImageFolder(f"{folder}/set/val")
    with open(f"{folder}/names.txt") as file:
        got = [line.rstrip("\n").split("\t") for line in file]
    assert [(name, int(label)) for name, label in got] == wanted.samples, (got, wanted.samples)
    pixels = load_file(f"{folder}/pixels.safetensors")
    test = transforms.Compose([transforms.Resize(64), transforms.CenterCrop(56)])
    normalise = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    for i, (name, _) in enumerate(got):
        with Image.open(name) as file:
            image = file.convert("RGB")
        decoded = torch.from_numpy(numpy.array(image)).int()
        difference = (pixels[f"decoded:{i}"].int() - decoded).abs()
        # another version of libjpeg or libwebp may round otherwise
        share = (difference > 0).float().mean()
        assert difference.max() <= 2 and share < 0.02, (name, difference.max(), share)
        plain = torch.from_numpy(numpy.array(test(Image.fromarray(pixels[f"decoded:{i}"].numpy())))).int()
        difference = (pixels[f"plain:{i}"].int() - plain).abs()
        share = (difference > 0).float().mean()
        twice = (difference > 1).float().mean()  # both round after each of two passes
        assert difference.max() <= 2 and twice < 0.001 and share < 0.1, (name, difference.max(), twice, share)
        batch = normalise(pixels[f"plain:{i}"].permute(2, 0, 1) / 255)
        assert (pixels["batch"][i] - batch).abs().max() < 1e-5, name


make() if what == "make" else check()
