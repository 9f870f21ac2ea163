"""Compressed gradients of DistributedDataParallel beside exact ones."""

import os

import torch
import torch.distributed as dist
from torch import nn

import prunex
from on_ranks.collectives import expect_equal_on_all_ranks, mean
from on_ranks.connections import uneven_nodes
from training import batch, small_network

CASES = [
    (2, "hook_of_ddp_averages payload int8"), (2, "hook_of_ddp_averages payload int4"),
    (2, "hook_of_ddp_averages density 1.0"), (2, "hook_of_ddp_averages density 0.2"),
    (2, "hook_of_ddp_recovers payload fp16"), (2, "hook_of_ddp_recovers payload int4"),
    (2, "hook_of_ddp_recovers density 0.1"), (2, "hook_of_ddp_recovers dgc 0.1"),
    (2, "hook_of_ddp_goes_on_from_its_state dgc 0.1"), (2, "hook_of_ddp_takes_gradients_of_bf16 payload int8"),
    (2, "hook_of_ddp_takes_gradients_of_bf16 density 0.5"), (2, "hook_of_ddp_goes_on_from_its_state payload int4"),
    (2, "hook_of_ddp_goes_on_from_its_state density 0.1"), (2, "hooks_of_other_options_are_refused"),
    (2, "hook_of_ddp_refuses_sparse_gradients"),
    (3, "hook_of_ddp_averages payload int4"), (3, "hook_of_ddp_averages payload int4 uneven")]


def hook(option, value):
    """Of nodes of one rank, between which messages are rounded."""
    if option == "dgc":
        return prunex.comm_hook(density=float(value), dgc=True, ranks_per_node=1)
    return prunex.comm_hook(**{option: value if option == "payload" else float(value)}, ranks_per_node=1)


def hook_of_ddp_averages(option, value, nodes="even"):
    """With error feedback the sum of what is applied follows the sum of the gradients; a dense top-k is exact."""
    rank = dist.get_rank()
    net = small_network()
    ddp = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=1)
    if nodes == "even":
        ddp.register_comm_hook(None, hook(option, value))
    else:
        with uneven_nodes():
            ddp.register_comm_hook(None, prunex.comm_hook(payload=value))
    alone = small_network()
    applied = [torch.zeros_like(p) for p in net.parameters()]
    exact = [torch.zeros_like(p) for p in net.parameters()]
    for step in range(1, 21):
        images, labels = batch(rank, step)
        for model, sums in ((ddp, applied), (alone, exact)):
            model.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            for total, p in zip(sums, model.parameters()):
                total += p.grad if model is ddp else mean(p.grad)
        expect_equal_on_all_ranks([p.grad for p in net.parameters()])
    largest = {"int8": 0.02, "int4": 0.1, "1.0": 1e-5, "0.2": 1.0}[value]
    gaps = [float((total - want).norm() / (want.norm() + 1e-12)) for total, want in zip(applied, exact)]
    assert all(gap <= largest for gap in gaps), gaps
    assert value == "1.0" or max(gaps) > 1e-5, gaps  # something is left out


def expect_same_buckets(state, other):
    assert state["buckets"] and len(state["buckets"]) == len(other["buckets"])
    for (names, kept), (other_names, other_kept) in zip(state["buckets"], other["buckets"]):
        assert names == other_names and kept.keys() == other_kept.keys()
        assert all(torch.equal(tensor, other_kept[name]) for name, tensor in kept.items())


def hook_of_ddp_goes_on_from_its_state(option, value):
    """What is kept for later steps is saved: after a step that goes whole, a new hook sends what the old one does."""
    rank = dist.get_rank()

    def run(ddp, net, begin, end):
        sent = []
        for step in range(begin, end):
            images, labels = batch(rank, step)
            net.zero_grad()
            nn.functional.cross_entropy(ddp(images), labels).backward()
            sent.append([p.grad.clone() for p in net.parameters()])
        return sent

    net = small_network()
    ddp, first = nn.parallel.DistributedDataParallel(net), hook(option, value)
    ddp.register_comm_hook(None, first)
    run(ddp, net, 1, 8)
    again = small_network()
    again.load_state_dict(net.state_dict())
    ddp_again, second = nn.parallel.DistributedDataParallel(again), hook(option, value)
    ddp_again.register_comm_hook(None, second)
    run(ddp_again, again, 8, 9)  # DDP makes its buckets anew
    saved = first.state_dict(net)
    second.load_state_dict(saved, ddp_again)
    expect_same_buckets(second.state_dict(again), saved)  # before they are seen again
    for one, other in zip(run(ddp, net, 9, 12), run(ddp_again, again, 9, 12), strict=True):
        for a, b in zip(one, other):
            assert torch.equal(a, b)
    state = second.state_dict(ddp_again)
    expect_same_buckets(state, first.state_dict(ddp))
    second.load_state_dict(saved, again)  # in the place of what it has kept since
    expect_same_buckets(second.state_dict(again), saved)
    for change, message in (({"of_rank": 5}, "it is that of rank 5"), ({"settings": {}}, "this hook has"),
                            ({"buckets": [(["nobody"], {})]}, "the module has no parameter nobody")):
        try:
            second.load_state_dict(state | change, again)
        except ValueError as error:
            assert message in str(error), error
        else:
            raise AssertionError(change)


def hooks_of_other_options_are_refused():
    try:
        prunex.comm_hook(payload=("int8", "int4")[dist.get_rank()], ranks_per_node=1)
    except ValueError as error:
        assert str(error) == "`payload`: rank 0 has int8, rank 1 int4; wanted the same on all ranks", error
    else:
        raise AssertionError("nobody has noticed")


def hook_of_ddp_refuses_sparse_gradients():
    net = nn.Sequential(nn.Embedding(5, 4, sparse=True), nn.Linear(4, 2))
    ddp = nn.parallel.DistributedDataParallel(net)
    ddp.register_comm_hook(None, prunex.comm_hook(payload="int8", ranks_per_node=1))
    try:
        ddp(torch.tensor([1, 2])).sum().backward()
    except ValueError as error:
        assert "`model`: its parameter of [5, 4] has sparse gradients" in str(error), error
    else:
        raise AssertionError("nobody has noticed")


def hook_of_ddp_recovers(option, value):
    """From a gradient that is no number on one rank, as the loss scale of fp16 brings them: that step's alone is."""
    net = small_network()
    ddp = nn.parallel.DistributedDataParallel(net)
    ddp.register_comm_hook(None, hook(option, value))
    finite = []
    for step in range(1, 9):
        images, labels = batch(dist.get_rank(), step)
        net.zero_grad()
        loss = nn.functional.cross_entropy(ddp(images), labels)
        (loss * (float("inf") if step == 5 and dist.get_rank() == 0 else 1)).backward()
        finite.append(all(bool(p.grad.isfinite().all()) for p in net.parameters()))
    assert finite == [step != 5 for step in range(1, 9)], finite


def hook_of_ddp_takes_gradients_of_bf16(option, value):
    """After 20 steps the sum of what is applied is that of the exact means, as far as bf16 can say."""
    net = small_network(torch.bfloat16)
    ddp = nn.parallel.DistributedDataParallel(net)
    ddp.register_comm_hook(None, hook(option, value))
    alone = small_network(torch.bfloat16)
    applied, exact = ([torch.zeros_like(p, dtype=torch.float32) for p in net.parameters()] for _ in range(2))
    for step in range(1, 21):
        images, labels = batch(dist.get_rank(), step, torch.bfloat16)
        for model, sums in ((ddp, applied), (alone, exact)):
            model.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            for total, p in zip(sums, model.parameters()):
                total += p.grad if model is ddp else mean(p.grad.float())
        expect_equal_on_all_ranks([p.grad for p in net.parameters()])
    for total, want in zip(applied, exact):
        # a step in twenty, and what feedback still keeps of half of the entries
        largest = {"payload": 0.05, "density": 0.1}[option]
        assert (total - want).norm() <= largest * want.norm() + 1e-3, (total.shape, (total - want).norm(), want.norm())


def hook_of_ddp_names_a_lost_rank():
    net = small_network()
    ddp = nn.parallel.DistributedDataParallel(net, broadcast_buffers=False)
    ddp.register_comm_hook(None, prunex.comm_hook(payload="int4", ranks_per_node=1, timeout=5))
    for step in range(1, 6):
        if step == 4 and dist.get_rank() == 1:
            os._exit(7)
        images, labels = batch(dist.get_rank(), step)
        nn.functional.cross_entropy(ddp(images), labels).backward()
