"""restarted.py DIR [STEP...]: what torchrun starts again. The last rank kills itself at each step, once."""

import os
import signal
import sys
from pathlib import Path

import torch.distributed as dist

import prunex
from training import OPTIMIZERS, small_network, train_step

folder, kills = Path(sys.argv[1]), [int(step) for step in sys.argv[2:]]
dist.init_process_group("gloo")
rank = dist.get_rank()
net = small_network()
optimizer = OPTIMIZERS["adamw"](net.parameters())
training = prunex.DiLoCo(net, optimizer, sync_every=3, payload="int4", outer_lr=1, outer_momentum=0.5, ranks_per_node=1)
if training.resume(folder) is not None and rank == 0:
    print("resumed after step", training.step, flush=True)
with training:
    for step in range(training.step + 1, 19):
        train_step(net, optimizer, rank, step)
        if training.step % 6 == 0:
            training.save(folder)
        mark = folder / f"killed-{step}"
        if step in kills and rank == dist.get_world_size() - 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
if rank == 0:
    print("sum", sum(p.double().sum().item() for p in net.parameters()), flush=True)
dist.destroy_process_group()
