"""Nodes and groups of ranks, and the connections that are made for them."""

import contextlib
import gc
import os
import warnings

import torch
import torch.distributed as dist

import prunex
from on_ranks.collectives import expect_equal_on_all_ranks, gathered, hash_of
from on_ranks.strategies import written_out
from training import DEVICE, OPTIMIZERS, small_network, train_step

CASES = [(2, "nodes_are_found"), (2, "a_payload_without_effect_is_warned_of"), (2, "connections_are_taken_again"),
         (3, "nodes_may_differ_and_ranks_have_groups_of_their_own"),
         (3, "a_part_of_the_ranks_trains"), (3, "a_part_of_ranks_that_are_bound_to_devices_is_refused")]


@contextlib.contextmanager
def uneven_nodes():
    """Of two ranks and of one, by the launcher's number."""
    os.environ["GROUP_RANK"] = str(min(dist.get_rank(), 2) // 2)
    yield
    os.environ["GROUP_RANK"] = "0"


def nodes_are_found():
    """Two ranks in a node: what is said inside it crosses no link."""
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with prunex.LocalSGD(net, optimizer, sync_every=2) as local:
        for step in range(1, 5):
            train_step(net, optimizer, dist.get_rank(), step)
    assert local.sent_bytes > 0 and local.sent_bytes_between_nodes == 0  # torchrun says that all are on one


def a_payload_without_effect_is_warned_of():
    """At the line that asks for it."""
    net = small_network()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        prunex.LocalSGD(net, OPTIMIZERS["sgd"](net.parameters()), payload="int8")
        prunex.comm_hook(payload="int8")
    assert [w.filename for w in said if "`payload`: got int8, which is for what crosses nodes" in str(w.message)] == [
        __file__, __file__], said


def nodes_may_differ_and_ranks_have_groups_of_their_own():
    """Nodes of two ranks and of one, found by the launcher's number; before and between, groups of some ranks."""
    rank = dist.get_rank()
    want = written_out(1, 0, "sgd")
    dist.new_group([0, 2])
    net = small_network(torch.float64)
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with uneven_nodes(), prunex.LocalSGD(net, optimizer, sync_every=4) as local:
        for step in range(1, 13):
            train_step(net, optimizer, rank, step, torch.float64)
    for p, z in zip(net.parameters(), want):
        torch.testing.assert_close(p.detach(), z, rtol=0, atol=1e-12)
    assert (local.sent_bytes_between_nodes > 0) == (rank != 1)


def a_part_of_the_ranks_trains():
    """The others go on; the part's ranks have been in groups that the others have not."""
    part, rank = dist.new_group([0, 1]), dist.get_rank()
    net = small_network()
    torch.manual_seed(rank)
    if rank < 2:
        optimizer = OPTIMIZERS["sgd"](net.parameters())
        for _ in range(2):
            with prunex.LocalSGD(net, optimizer, sync_every=2, process_group=part, ranks_per_node=1):
                for step in range(1, 5):
                    train_step(net, optimizer, rank, step)
    try:
        prunex.comm_hook(payload="int8", process_group=part if rank >= 2 else object())
    except ValueError as error:
        got = "that of other ranks" if rank >= 2 else "a object"
        assert str(error).startswith(f"`process_group`: got {got}"), error
    else:
        raise AssertionError("nobody has noticed")
    hashes = gathered(hash_of(net.parameters()))
    assert hashes[0] == hashes[1] != hashes[2], hashes


def a_part_of_ranks_that_are_bound_to_devices_is_refused():
    part, world = dist.new_group([0, 1]), dist.group.WORLD
    world.bound_device_id = torch.device("cuda:0")
    try:
        if dist.get_rank() < 2:
            prunex.comm_hook(payload="int8", process_group=part, ranks_per_node=1, timeout=99)
            raise AssertionError("nobody has noticed")
    except ValueError as error:
        assert "`process_group`: got a part of the ranks, and init_process_group got `device_id` cuda:0" in str(error)
    finally:
        world.bound_device_id = None
        dist.barrier()


def connections_are_taken_again():
    """What a strategy or a hook leaves serves the next one; two at a time have their own, beside the loop's calls."""
    groups = len(dist.distributed_c10d._world.pg_map)

    def made():
        gc.collect()
        return len(dist.distributed_c10d._world.pg_map) - groups

    def strategy(**options):
        net = small_network()
        return prunex.LocalSGD(net, OPTIMIZERS["sgd"](net.parameters()), sync_every=2, timeout=77, **options)

    one = strategy(ranks_per_node=1)
    first = made()
    assert first > 0
    two = strategy(ranks_per_node=1)
    assert made() == 2 * first
    del one, two
    for _ in range(2):
        prunex.comm_hook(payload="int4", ranks_per_node=1, timeout=77)
        with strategy(ranks_per_node=1) as again:
            for step in range(1, 6):
                train_step(again.model, again.optimizer, dist.get_rank(), step)
                dist.all_reduce(torch.ones(3, device=DEVICE))
        expect_equal_on_all_ranks(again.model.parameters())
        del again
        assert made() == 2 * first, (made(), first)
    failed = strategy(ranks_per_node=1)
    failed._ranks.give_up()
    spare = strategy(ranks_per_node=1)
    del failed
    assert made() == 2 * first
    other = strategy(ranks_per_node=1)
    assert made() == 3 * first
    del spare, other
