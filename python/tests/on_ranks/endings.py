"""Ranks that are lost, interrupted or leave their loop beside an exchange: each is a test of its own."""

import gc
import os
import time
import weakref

import torch
import torch.distributed as dist

import prunex
from on_ranks.collectives import mean
from training import OPTIMIZERS, small_network, train_step


def a_rank_dies():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with prunex.LocalSGD(net, optimizer, sync_every=2, ranks_per_node=1, timeout=20):
        for step in range(1, 9):  # the second exchange is the first without rank 1
            if step == 5 and dist.get_rank() == 1:
                os._exit(7)
            train_step(net, optimizer, dist.get_rank(), step)


def one_waits():
    """Rank 1 comes to no exchange; rank 0 waits for it until someone interrupts it."""
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    try:
        with prunex.LocalSGD(net, optimizer, sync_every=2, ranks_per_node=1, timeout=100):
            if dist.get_rank() == 1:
                time.sleep(100)
            for step in range(1, 3):
                train_step(net, optimizer, 0, step)
                print("waits" if step == 1 else "went on", flush=True)
    except BaseException as error:
        print(type(error).__name__, flush=True)
        os._exit(1)


def rank_1_fails():
    assert dist.get_rank() == 0, "on rank 1"


def a_loop_ends_beside_an_exchange():
    """LocalSGD with `overlap`, written out: the exchange of step 8 lands early, and the last one is waited for."""
    rank = dist.get_rank()
    ours, theirs = small_network(torch.float64), small_network(torch.float64)
    optimizer = OPTIMIZERS["sgd"](ours.parameters())
    with prunex.LocalSGD(ours, optimizer, sync_every=4, total_steps=40, overlap=2, ranks_per_node=1):
        for step in range(1, 10):
            train_step(ours, optimizer, rank, step, torch.float64)
    optimizer = OPTIMIZERS["sgd"](theirs.parameters())
    for step in range(1, 10):
        train_step(theirs, optimizer, rank, step, torch.float64)
        with torch.no_grad():
            for p in theirs.parameters() if step == 4 else ():
                p.copy_(mean(p))
            if step == 8:
                sent = [p.clone() for p in theirs.parameters()]
    with torch.no_grad():
        for ours_p, p, before in zip(ours.parameters(), theirs.parameters(), sent):
            torch.testing.assert_close(ours_p, mean(mean(before) + p - before), rtol=0, atol=1e-12)


def a_loop_is_dropped_beside_an_exchange():
    """Rank 1 joins the exchange when rank 0 has long given up its loop."""
    net = small_network()
    loop = prunex.DiLoCo(net, OPTIMIZERS["sgd"](net.parameters()), sync_every=4, total_steps=40, overlap=2,
                         ranks_per_node=1, timeout=100).__enter__()
    for step in range(1, 9):
        if step == 8 and dist.get_rank() == 1:
            time.sleep(3)
        train_step(net, loop.optimizer, dist.get_rank(), step)
    try:
        loop.state_dict()
        raise AssertionError("a state without what is on its way")
    except RuntimeError as error:
        assert "an exchange is on its way" in str(error), error
    loop.__exit__(KeyboardInterrupt, None, None)
    alive = weakref.ref(loop)
    del loop
    gc.collect()
    assert alive() is None
    dist.barrier()
