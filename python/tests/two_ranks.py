"""Started by torchrun: two ranks that move weights apart and print them, which are the same in the end."""

import torch
import torch.distributed as dist

import prunex

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with prunex.LocalSGD(model, optimizer, sync_every=2, total_steps=4):
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).square().mean().backward()
        optimizer.step()
assert "libgloo" not in open("/proc/self/maps").read()
print(f"prunex {prunex.__version__}, 1 of {dist.get_world_size()} ranks: {model.weight.tolist()}\n", end="", flush=True)
dist.destroy_process_group()
