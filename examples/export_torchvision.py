#!/usr/bin/env python3
"""Exports a classification network of torchvision as a program that prunex trains, prunes and cuts."""
import argparse
import logging
import os
import sys
import tempfile

FAMILIES = ("resnet", "wide_resnet", "resnext", "vgg", "densenet", "mobilenet_v2", "mobilenet_v3", "googlenet",
            "inception_v3", "regnet", "efficientnet", "squeezenet", "mnasnet", "shufflenet_v2", "convnext", "vit_b",
            "swin_t")


def shape(text):
    try:
        sizes = [int(size) for size in text.split("x")]
    except ValueError:
        sizes = []
    if len(sizes) != 4 or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"got {text}, wanted BATCHxCHANNELSxHEIGHTxWIDTH such as 1x3x32x32")
    return sizes


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


def parse_options():
    parser = Parser(description=__doc__)
    parser.add_argument("name", nargs="?", help="torchvision's name, such as resnet18")
    parser.add_argument("--list", action="store_true", help="print the names known to work, and end")
    parser.add_argument("--output", metavar="FILE.pt2", help="where to write (NAME.pt2)")
    parser.add_argument("--classes", type=int, default=10, metavar="N", help="length of the logits (10)")
    parser.add_argument("--input", type=shape, default="1x3x32x32", metavar="SHAPE",
                        help="of the images (1x3x32x32); the program takes any batch size, whatever is given here")
    parser.add_argument("--weights", metavar="NAME",
                        help="torchvision's trained weights, such as DEFAULT (random weights); if their number of "
                        "classes is not --classes, the last layer is new")
    parser.add_argument("--seed", type=int, default=0, help="of random weights (0)")
    options = parser.parse_args()
    if not options.list and not options.name:
        parser.error("name: got nothing, wanted one of those that --list prints")
    if options.classes < 1:
        parser.error(f"argument --classes: got {options.classes}, wanted at least 1")
    return parser, options


def without_auxiliary_classifiers(model):
    """googlenet and inception_v3 train with heads that the finished network does not have."""
    if hasattr(model, "aux_logits"):
        model.aux_logits = False
        for name in ("aux1", "aux2", "AuxLogits"):
            if hasattr(model, name):
                setattr(model, name, None)
    return model


def replace_last_layer(model, classes):
    from torch import nn
    name, last = [item for item in model.named_modules() if isinstance(item[1], (nn.Linear, nn.Conv2d))][-1]
    if isinstance(last, nn.Linear):
        new = nn.Linear(last.in_features, classes)
    else:
        new = nn.Conv2d(last.in_channels, classes, last.kernel_size)
    model.set_submodule(name, new)


# Vision transformers without weights in torchvision, by the numbers of arXiv 2010.11929 and 2106.04560.
TRANSFORMERS = {"vit_s_16": {"patch_size": 16, "num_layers": 12, "num_heads": 6, "hidden_dim": 384, "mlp_dim": 1536}}


def make_network(name, classes, weights, sizes):
    from torchvision import models
    if name in TRANSFORMERS:
        return models.VisionTransformer(image_size=sizes[2], num_classes=classes, **TRANSFORMERS[name])
    options = {"init_weights": True} if name in ("googlenet", "inception_v3") and not weights else {}
    if name.startswith("vit") and not weights:
        options["image_size"] = sizes[2]
    if weights:
        weights = models.get_model_weights(name)[weights]
        classes_of_weights = len(weights.meta["categories"])
        model = without_auxiliary_classifiers(models.get_model(name, weights=weights))
        if classes != classes_of_weights:
            replace_last_layer(model, classes)
        return model
    return without_auxiliary_classifiers(models.get_model(name, num_classes=classes, **options))


def export(model, sizes):
    """In training form: dropout and batch norm train until prunex runs the program in its eval mode."""
    import torch
    example = torch.randn(2, *sizes[1:])  # 1 would be taken for a constant
    batch = {0: torch.export.Dim("batch")}
    return torch.export.export(model.train(), (example,), dynamic_shapes=(batch,))


def save(program, path):
    """Never leaves a partial file at `path`."""
    import torch
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path) or ".") as folder:
        unfinished = os.path.join(folder, "program.pt2")
        torch.export.save(program, unfinished)
        os.replace(unfinished, path)


def check_names(parser, options, models):
    if options.name in TRANSFORMERS:
        if options.weights:
            parser.error(f"argument --weights: torchvision has none of {options.name}")
        return
    if options.name not in models.list_models(module=models):
        parser.error(f"name: got {options.name}, wanted one of those that --list prints")
    weights = list(models.get_model_weights(options.name).__members__)
    if options.weights and options.weights not in weights:
        parser.error(f"argument --weights: got {options.weights}, wanted one of {' '.join(weights)}")


def main():
    parser, options = parse_options()
    logging.disable()  # PyTorch logs what it then throws
    import torch
    from torchvision import models
    if options.list:
        print("\n".join([name for name in models.list_models(module=models) if name.startswith(FAMILIES)]
                        + list(TRANSFORMERS)))
        return
    check_names(parser, options, models)
    torch.manual_seed(options.seed)
    network = make_network(options.name, options.classes, options.weights, options.input)
    try:
        program = export(network, options.input)
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        parser.error(f"{options.name} cannot be exported for --input {'x'.join(map(str, options.input))}: {reason}")
    path = options.output or f"{options.name}.pt2"
    save(program, path)
    print(f"{path}: {options.name}, {sum(p.numel() for p in network.parameters())} parameters")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"export_torchvision.py: {error}")
