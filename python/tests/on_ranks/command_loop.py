"""The command's run as a loop in Python."""

import torch
import torch.distributed as dist
from torch import nn

import prunex

COMMAND = {"samples": 240, "batch-size": 15, "local-steps": 3, "lr": 0.05, "momentum": 0.9, "weight-decay": 5e-4}


def classifier():
    """Of the command's synthetic images."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(4),
                         nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(16, 10))


LIKE_THE_COMMAND = [
    ("LocalSGD", {"exchanges": 4}),
    ("DiLoCo", {"exchanges": 4, "payload": "int2", "outer_lr": 1, "outer_momentum": 0.5}),
    ("DiLoCo", {"exchanges": 8, "groups": "coupled", "round_to": 1}),
    ("HSADMM", {"exchanges": 8, "groups": "coupled", "keep": "macs=0.6", "round_to": 1, "payload": "int8"}),
    ("HSADMM", {"exchanges": 8, "groups": "coupled-inner", "round_to": 1}),
    ("HSADMM", {"exchanges": 8, "groups": "coupled-inner", "round_to": 1, "optimizer": "adamw",
                "lr": 0.002}),
]


def trains_like_the_command(strategy, settings):
    """The same loop, written in Python: z, and bytes sent to other nodes."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    net = classifier().to(memory_format=torch.channels_last)
    options = dict(settings)
    if options.pop("optimizer", "sgd") == "adamw":
        optimizer = torch.optim.AdamW(net.parameters(), options.pop("lr"), weight_decay=COMMAND["weight-decay"])
    else:
        optimizer = torch.optim.SGD(net.parameters(), COMMAND["lr"], momentum=COMMAND["momentum"],
                                    weight_decay=COMMAND["weight-decay"])
    loader = prunex._library.library.Loader("synthetic", "", COMMAND["samples"], COMMAND["batch-size"], rank, ranks, 0)
    steps = COMMAND["local-steps"] * options.pop("exchanges")
    if "groups" in options:
        options["example"] = loader.batch(0, 0)[0]
    with getattr(prunex, strategy)(net, optimizer, COMMAND["local-steps"], total_steps=steps, ranks_per_node=1,
                                   **options) as training:
        for step in range(steps):
            images, labels = loader.batch(step // loader.steps_per_epoch(), step % loader.steps_per_epoch())
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
            if "groups" in options:
                training.cut()
    return {"weights": net.state_dict(), "sent": training.sent_bytes_between_nodes}


def train_like_the_command(file):
    done = [trains_like_the_command(*case) for case in LIKE_THE_COMMAND]
    if dist.get_rank() == 0:
        torch.save(done, file)
