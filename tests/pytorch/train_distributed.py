"""Losses of PyTorch's own distributed training from given weights on given batches: for distributed_test.cpp.

usage: train_distributed.py INPUTS.safetensors RESULT.json
INPUTS holds the weights of resnet20 by state-dict name, `images` [ranks, steps, batch, 3, side, side] and `labels`;
all floating-point numbers are double, so that gaps are those of the algorithms and not of kernels' rounding.
"""
import json
import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench"))
from eager import make  # noqa: E402

PERIOD, START, RANK = 5, 2, 2  # of local SGD; of PowerSGD


def train(rank, method, inputs):
    model, averager, numbers = make("resnet20", 32).double(), None, 0
    model.load_state_dict({name: inputs[name] for name in model.state_dict()})
    if method == "local_sgd":
        averager = PeriodicModelAverager(period=PERIOD, warmup_steps=PERIOD - 1)
    else:
        # one bucket: the hook's all-reduces of several have no fixed order, which Gloo needs
        model = DistributedDataParallel(model, bucket_cap_mb=1000 if method == "powersgd" else None)
    if method == "powersgd":
        state = powersgd.PowerSGDState(None, matrix_approximation_rank=RANK, start_powerSGD_iter=START)
        model.register_comm_hook(state, powersgd.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0005, momentum=0.9, weight_decay=5e-4)
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


def run(rank, port, inputs_path):
    torch.set_num_threads(1)
    inputs = load_file(inputs_path)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    results = {method: train(rank, method, inputs) for method in ("ddp", "local_sgd", "powersgd")}
    dist.barrier()
    dist.destroy_process_group()
    return results


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def main():
    if len(sys.argv) == 4:  # one rank: RANK PORT INPUTS
        print(json.dumps(run(int(sys.argv[1]), sys.argv[2], sys.argv[3])))
        return
    inputs_path, result_path = sys.argv[1:]
    port = str(free_port())
    environment = dict(os.environ, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    ranks = [subprocess.Popen([sys.executable, __file__, str(rank), port, inputs_path], env=environment, text=True,
                              stdout=subprocess.PIPE) for rank in range(2)]
    outputs = [rank.communicate()[0] for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), outputs
    with open(result_path, "w") as file:
        json.dump([json.loads(output) for output in outputs], file)


main()
