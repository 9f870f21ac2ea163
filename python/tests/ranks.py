"""ranks.py FUNCTION [ARGUMENT...]: what one rank of a test does, a function of on_ranks; without, all cases of as many
ranks. PRUNEX_TEST_BACKEND: of torch.distributed, by default gloo."""

import os
import sys
import time
import warnings

import torch
import torch.distributed as dist

from on_ranks import checkpoints, command_loop, connections, endings, hooks, masks, strategies

ROOMS = (strategies, checkpoints, masks, connections, hooks, endings, command_loop)
CASES = strategies.CASES + checkpoints.CASES + masks.CASES + connections.CASES + hooks.CASES


def run(name, *arguments):
    next(getattr(room, name) for room in ROOMS if hasattr(room, name))(*arguments)
    dist.barrier()  # only what no rank failed in has passed
    if dist.get_rank() == 0:
        print("passed", name, *arguments, flush=True)


def main(*case):
    warnings.filterwarnings("ignore", message=".*follow the cut.*")
    os.environ["NCCL_HOSTID"] = os.environ["RANK"]  # two machines to NCCL, which may share a GPU
    dist.init_process_group(os.environ.get("PRUNEX_TEST_BACKEND", "gloo"))
    torch.backends.cudnn.deterministic = True
    for words in [case] if case else [words.split() for ranks, words in CASES if ranks == dist.get_world_size()]:
        run(*words)
    # Gloo's threads let go of the last collective's tensors a moment later; after the interpreter's end they would
    # crash
    time.sleep(0.2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
