"""Losses of PyTorch's own distributed training from given weights on given batches: for distributed_test.cpp.

usage: train_distributed.py INPUTS.safetensors RESULT.json
INPUTS holds the weights of resnet18 by state-dict name, `images` [ranks, steps, batch, 3, side, side] and `labels`.
"""
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from safetensors.torch import load_file
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel
from torchvision.models import resnet18

PERIOD, START, RANK = 5, 2, 2  # of local SGD; of PowerSGD


def make_model(inputs):
    model = resnet18(num_classes=10)
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    model.load_state_dict({name: inputs[name] for name in model.state_dict()})
    return model


def train(rank, method, inputs):
    model, averager, numbers = make_model(inputs), None, 0
    if method == "local_sgd":
        averager = PeriodicModelAverager(period=PERIOD, warmup_steps=PERIOD - 1)
    else:
        # one bucket: the hook's all-reduces of several have no fixed order, which Gloo needs
        model = DistributedDataParallel(model, bucket_cap_mb=1000 if method == "powersgd" else None)
    if method == "powersgd":
        state = powersgd.PowerSGDState(None, matrix_approximation_rank=RANK, start_powerSGD_iter=START)
        model.register_comm_hook(state, powersgd.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9, weight_decay=5e-4)
    losses = []
    for images, labels in zip(inputs["images"][rank], inputs["labels"][rank]):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if averager:
            averager.average_parameters(model.parameters())
        losses.append(loss.item())
    if method == "powersgd":
        numbers = state.total_numel_after_compression / (len(losses) - START)
    return {"losses": losses, "numbers_per_step": numbers}


def run(rank, folder, inputs_path):
    torch.set_num_threads(1)
    inputs = load_file(inputs_path)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    results = {method: train(rank, method, inputs) for method in ("ddp", "local_sgd", "powersgd")}
    dist.destroy_process_group()
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(results, file)


def main():
    inputs_path, result_path = sys.argv[1:]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(run, args=(folder, inputs_path), nprocs=2, start_method="fork")
        ranks = [json.load(open(f"{folder}/{rank}.json")) for rank in range(2)]
    with open(result_path, "w") as file:
        json.dump(ranks, file)


main()
