"""The package on a GPU, which all ranks share."""

import os
import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torchvision
from torch import nn

import prunex
from layer_cases import CASES as NETWORKS
from layer_cases import case
from ranks import CASES
from training import batch, small_network

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
ON_RANKS = [("gloo", ranks, case) for ranks, case in CASES] + [("nccl", 2, case) for ranks, case in CASES if ranks == 2]


@pytest.mark.parametrize("backend, ranks, case", ON_RANKS)
def test_on_ranks(torchrun, monkeypatch, backend, ranks, case):
    monkeypatch.setenv("PRUNEX_TEST_DEVICE", "cuda")
    monkeypatch.setenv("PRUNEX_TEST_BACKEND", backend)
    done = torchrun(ranks, *case.split())
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-6000:]}"


def test_the_loop_of_the_docs_runs(monkeypatch, free_port):
    page = (Path(__file__).parents[2] / "docs/python.md").read_text()
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "cuda:nccl" in block)
    for name, value in {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": str(free_port)}.items():
        monkeypatch.setenv(name, value)
    net = small_network().cuda()
    names = {"os": os, "torch": torch, "dist": dist, "prunex": prunex, "net": net, "criterion": nn.CrossEntropyLoss(),
             "optimizer": torch.optim.SGD(net.parameters(), 0.05), "loader": [batch(0, step) for step in range(60)]}
    try:
        exec(compile(code, "docs/python.md", "exec"), names)
    finally:
        dist.destroy_process_group()
    assert names["training"].exchange.index == 2


def on_gpu(value):
    return torch.utils._pytree.tree_map(lambda x: x.cuda() if isinstance(x, torch.Tensor) else x, value)


@pytest.mark.filterwarnings("ignore:.*does not follow")
@pytest.mark.parametrize("name", list(NETWORKS)[::4])
def test_modules_lose_there_what_they_lose_on_the_cpu(name):
    net, inputs = case(name)
    there, where = case(name)[0].cuda(), on_gpu(inputs)
    assert prunex.prune(there, where, ratio=0.5).parameters == prunex.prune(net, inputs, ratio=0.5).parameters
    assert all(p.is_cuda for p in there.parameters())
    for (key, ours), theirs in zip(net.state_dict().items(), there.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs.cpu(), msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("tf32", [False, True])
def test_a_network_that_computes_in_tf32_is_pruned(tf32):
    torch.manual_seed(0)
    net, images = torchvision.models.resnet18().cuda(), torch.randn(4, 3, 64, 64, device="cuda")
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    try:
        pruned = prunex.prune(net, (images,), ratio=0.5)
        net(images).sum().backward()
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
    assert pruned.parameters[1] == sum(p.numel() for p in net.parameters()) < pruned.parameters[0]


def test_a_recorded_update_is_refused():
    net = nn.Linear(4, 2, device="cuda")
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, fused=True)
    with pytest.raises(ValueError, match="recorded in a CUDA graph"), prunex.LocalSGD(net, optimizer):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            net(torch.ones(3, 4, device="cuda")).sum().backward()
            optimizer.step()


def test_recorded_gradients_train():
    """A loop whose forward and backward are one CUDA graph, with update and exchanges behind it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    net = net.cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, fused=True)
    images, labels = torch.randn(6, 3, 8, 8, device="cuda"), torch.randint(5, (6,), device="cuda")

    def backward():
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        return loss

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            backward()
    torch.cuda.current_stream().wait_stream(stream)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = backward()
    losses = []
    with prunex.LocalSGD(net, optimizer, sync_every=2) as training:
        for _ in range(20):
            graph.replay()
            optimizer.step()
            losses.append(loss.item())
            optimizer.zero_grad(set_to_none=False)
    assert training.exchange.index == 10 and losses[-1] < 0.5 * losses[0], losses
