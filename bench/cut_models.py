"""cut_models.py PROGRAM [NAME...]: the table of docs/pruning-models.md. Exports torchvision networks for small images,
lets PROGRAM (build/bench/bench_cut_models) cut half of every prunable group, and loads the results with stock PyTorch.
Needs torch and torchvision."""
import json
import os
import subprocess
import sys
import tempfile

import torch
import torchvision

NAMES = ("resnet18 resnet50 vgg16_bn densenet121 mobilenet_v2 googlenet shufflenet_v2_x1_0 regnet_x_1_6gf regnet_y_400mf "
         "resnext50_32x4d efficientnet_b0 convnext_tiny vit_b_16 swin_t").split()
SIZE = 64
STATISTICS = ("convnext_tiny", "vit_b_16", "swin_t")


def network(name):
    options = {"init_weights": True, "aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    if name.startswith("vit"):
        options["image_size"] = SIZE
    return getattr(torchvision.models, name)(num_classes=10, **options)


def export(name, path):
    torch.manual_seed(0)
    batch = {0: torch.export.Dim("batch")}
    program = torch.export.export(network(name).train(), (torch.randn(2, 3, SIZE, SIZE),), dynamic_shapes=(batch,))
    torch.export.save(program, path)


def difference(stem):
    """Between stock PyTorch's answers and those of prunex, relative to the largest."""
    with open(f"{stem}.cut.json") as file:
        expected = torch.tensor(json.load(file)[0])
    images = torch.linspace(-1000, 1000, 2 * 3 * SIZE * SIZE, dtype=torch.float64).sin().float()
    with torch.no_grad():
        answers = torch.export.load(f"{stem}.cut.pt2").module()(images.reshape(2, 3, SIZE, SIZE)).flatten()
    return ((answers - expected).abs().max() / expected.abs().max()).item()


def main(program, names):
    print("| network | groups | prunable | parameters (M) | cut | MACs (M) | cut | error, float | error, double | "
          "grouping (ms) |\n|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, f"{name}.pt2")
            export(name, path)
            subprocess.run([program, path], check=True)
            print(f"  stock PyTorch: {difference(os.path.join(folder, name)):.0e}", flush=True)
            if name in STATISTICS:
                subprocess.run([program, "--statistics", path], check=True)
                print(f"  stock PyTorch: {difference(os.path.join(folder, name + '.statistics')):.0e}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
