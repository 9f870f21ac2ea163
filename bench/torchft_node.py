#!/usr/bin/env python3
"""One replica of a run with torchft, for bench/churn.py: local SGD, ResNet-8, random images of 3x32x32.

Usage: bench/torchft_node.py ADDRESS LIGHTHOUSE STATE --local-steps H --batch-size B

Writes to STATE after every exchange that counts: exchanges, and the images that all replicas have trained on in them.
"""
import argparse
import pathlib
import socket
from datetime import timedelta

import torch
import torch.distributed as dist

from eager import make

PORT = 29501
SECONDS = timedelta(seconds=5)


def make_manager(address, lighthouse, state_dict, load_state_dict):
    socket.gethostname = lambda: address  # where others fetch weights
    from torchft import Manager, ProcessGroupGloo

    store = dist.TCPStore(address, PORT, is_master=True, wait_for_workers=False)
    manager = Manager(pg=ProcessGroupGloo(timeout=SECONDS), load_state_dict=load_state_dict, state_dict=state_dict,
                      min_replica_size=1, use_async_quorum=False, timeout=SECONDS, connect_timeout=SECONDS,
                      rank=0, world_size=1, store_addr=address, store_port=PORT, lighthouse_addr=lighthouse,
                      replica_id=address, hostname=address)
    return store, manager


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("lighthouse")
    parser.add_argument("state", type=pathlib.Path)
    parser.add_argument("--local-steps", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = make("resnet8")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def state_dict():
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def load_state_dict(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    _store, manager = make_manager(arguments.address, arguments.lighthouse, state_dict, load_state_dict)
    from torchft.local_sgd import LocalSGD

    written = -1
    with LocalSGD(manager, model, optimizer, arguments.local_steps):
        while True:
            images = torch.randn(arguments.batch_size, 3, 32, 32)
            labels = torch.randint(10, (arguments.batch_size,))
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            if manager.current_step() == written:
                continue
            written = manager.current_step()
            seen = manager.batches_committed() * arguments.local_steps * arguments.batch_size
            new = arguments.state.with_suffix(".new")
            new.write_text(f"{written} {seen}\n")
            new.replace(arguments.state)


if __name__ == "__main__":
    main()
