"""ranks.py FUNCTION [ARGUMENT...]: what one rank of a test does, under torchrun. PRUNEX_TEST_DEVICE: where, by default
the CPU; PRUNEX_TEST_BACKEND: of torch.distributed, by default gloo."""

import contextlib
import copy
import gc
import os
import sys
import time
import warnings
import weakref

import torch
import torch.distributed as dist
from torch import nn

import prunex

DEVICE = os.environ.get("PRUNEX_TEST_DEVICE", "cpu")


def small_network(dtype=torch.float32):
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                         nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(16, 5)).to(DEVICE, dtype)


class Shuffled(nn.Module):
    """Its code knows the width of its first layer."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(4, 8), nn.Linear(8, 6), nn.Linear(6, 3)

    def forward(self, x):
        y = self.a(x)
        return self.head(self.b(torch.cat([y[:, 4:], y[:, :4]], 1).relu()).relu())


def batch(rank, step, dtype=torch.float32):
    draws = torch.Generator().manual_seed(1000 * rank + step)
    images, labels = torch.randn(6, 3, 8, 8, generator=draws, dtype=dtype), torch.randint(5, (6,), generator=draws)
    return images.to(DEVICE), labels.to(DEVICE)


def train_step(net, optimizer, rank, step, dtype=torch.float32):
    images, labels = batch(rank, step, dtype)
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(images), labels).backward()
    optimizer.step()


def mean(tensor):
    total = tensor.detach().clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


def gathered(value):
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def hash_of(tensors):
    return [t.detach().double().sum().item() for t in tensors]


def expect_equal_on_all_ranks(tensors):
    hashes = gathered(hash_of(tensors))
    assert all(other == hashes[0] for other in hashes), hashes


OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, 0.05, momentum=0.9, weight_decay=1e-3),
    "adamw": lambda params: torch.optim.AdamW(params, 0.01),
    "adagrad": lambda params: torch.optim.Adagrad(params, 0.02),
}


def written_out(outer_lr, outer_momentum, kind, steps=12, every=4):
    """DiLoCo (arXiv 2311.08105) in PyTorch, in double; local SGD with an outer step of 1 / 0. Returns z."""
    rank = dist.get_rank()
    net = small_network(torch.float64)
    optimizer = OPTIMIZERS[kind](net.parameters())
    z = [p.detach().clone() for p in net.parameters()]
    momentum = [torch.zeros_like(p) for p in z]
    for step in range(1, steps + 1):
        train_step(net, optimizer, rank, step, torch.float64)
        if step % every and step != steps:
            continue
        with torch.no_grad():
            for p, old, b in zip(net.parameters(), z, momentum):
                change = old - mean(p)
                b.mul_(outer_momentum).add_(change)
                old.sub_(outer_lr * (change + outer_momentum * b))
                p.copy_(old)
            for buffer in net.buffers():
                if buffer.is_floating_point():
                    buffer.copy_(mean(buffer))
    return z


def diloco_is_its_formula(kind, ranks_per_node="1"):
    want = written_out(0.6, 0.7, kind)
    net = small_network(torch.float64)
    optimizer = OPTIMIZERS[kind](net.parameters())
    with prunex.DiLoCo(net, optimizer, sync_every=4, outer_lr=0.6, outer_momentum=0.7,
                       ranks_per_node=int(ranks_per_node)) as diloco:
        for step in range(1, 13):
            train_step(net, optimizer, dist.get_rank(), step, torch.float64)
            assert (diloco.exchange.index if diloco.exchange else 0) == step // 4
    for p, z in zip(net.parameters(), want):
        torch.testing.assert_close(p.detach(), z, rtol=0, atol=1e-12)
    expect_equal_on_all_ranks([*net.parameters(), *net.buffers()])


def local_sgd_averages(kind):
    want = written_out(1, 0, kind)
    net = small_network(torch.float64)
    optimizer = OPTIMIZERS[kind](net.parameters())
    with prunex.LocalSGD(net, optimizer, sync_every=4, ranks_per_node=1):
        for step in range(1, 13):
            train_step(net, optimizer, dist.get_rank(), step, torch.float64)
    for p, z in zip(net.parameters(), want):
        torch.testing.assert_close(p.detach(), z, rtol=0, atol=1e-12)


def the_last_steps_are_exchanged():
    """11 steps, four between exchanges: the third exchange comes when the context ends."""
    want = written_out(0.6, 0.7, "sgd", steps=11)
    net = small_network(torch.float64)
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with prunex.DiLoCo(net, optimizer, sync_every=4, outer_lr=0.6, outer_momentum=0.7) as diloco:
        for step in range(1, 12):
            train_step(net, optimizer, dist.get_rank(), step, torch.float64)
    assert diloco.exchange.index == 3
    for p, z in zip(net.parameters(), want):
        torch.testing.assert_close(p.detach(), z, rtol=0, atol=1e-12)


def bytes_are_those_of_the_formula(payload):
    """A ring over two nodes of one rank sends the encoded model once per exchange: half of it in each leg."""
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with prunex.LocalSGD(net, optimizer, sync_every=2, payload=payload, ranks_per_node=1) as local:
        for step in range(1, 7):
            train_step(net, optimizer, dist.get_rank(), step)
    weights = sum(p.numel() for p in net.parameters() if p.dim() > 1)
    vectors = sum(p.numel() for p in net.parameters() if p.dim() < 2)
    statistics = 2 * 8  # which are each rank's own where numbers are rounded
    sent = sum(gathered(local.sent_bytes_between_nodes))
    if payload == "fp32":
        assert sent == 3 * 2 * 4 * (weights + vectors + statistics), sent
    else:  # int4: half a byte, a scale of two bytes for 128; vectors in fp16
        expect_equal_on_all_ranks(net.buffers())
        scales = -(-weights // 128)
        assert sent == 3 * 2 * (weights / 2 + 2 * scales + 2 * vectors), sent


def masks_cut_everything(strategy, kind, ranks_per_node="1"):
    """Module, optimizer and strategy shrink; training goes on, the ranks agree, and messages shrink with them."""
    rank = dist.get_rank()
    net = small_network()
    optimizer = OPTIMIZERS[kind](net.parameters())
    example = batch(0, 0)[0]
    sent, cut_after = [0], None
    with getattr(prunex, strategy)(net, optimizer, sync_every=3, total_steps=36, example=example, groups="coupled",
                                   keep=0.5, round_to=1, ranks_per_node=int(ranks_per_node)) as training:
        for step in range(1, 37):
            train_step(net, optimizer, rank, step)
            if step % 3 == 0:
                sent.append(training.sent_bytes)
                masked = copy.deepcopy(net)
                if training.cut() is not None:
                    assert cut_after is None and training.exchange.frozen
                    cut_after = step // 3
                    masked.eval(), net.eval()
                    torch.testing.assert_close(net(example), masked(example), rtol=1e-5, atol=1e-6)
                    net.train()
    assert cut_after is not None
    assert net[0].weight.shape == (4, 3, 3, 3) and net[0].out_channels == 4 and net[1].num_features == 4
    assert net[3].in_channels == 4
    for group in optimizer.param_groups:
        assert {id(p) for p in group["params"]} == {id(p) for p in net.parameters()}
        for p in group["params"]:
            for value in optimizer.state[p].values():
                assert not isinstance(value, torch.Tensor) or value.dim() == 0 or value.shape == p.shape
    per_exchange = [after - before for before, after in zip(sent, sent[1:])]
    assert per_exchange[-1] < 0.6 * per_exchange[0], per_exchange
    expect_equal_on_all_ranks([*net.parameters(), *net.buffers()])
    assert all(mask.dtype == torch.bool for mask in training.masks().values())


def resumes_to_the_bit(strategy):
    """A strategy, module and optimizer made anew from what was saved after an exchange go on as if nothing had been."""
    rank = dist.get_rank()
    example = batch(0, 0)[0]
    options = {"sync_every": 3, "total_steps": 30, "ranks_per_node": 1, "payload": "int8"}
    if strategy != "LocalSGD":
        options |= {"example": example, "groups": "coupled", "round_to": 1}

    def run(net, optimizer, training, begin, end, save_at=None):
        for step in range(begin, end + 1):
            train_step(net, optimizer, rank, step)
            if step % 3 == 0 and "groups" in options:
                training.cut()
            if step == save_at:
                return copy.deepcopy((net.state_dict(), optimizer.state_dict(), training.state_dict()))
        return None

    def fresh():
        net = small_network()
        optimizer = OPTIMIZERS["adamw"](net.parameters())
        return net, optimizer, getattr(prunex, strategy)(net, optimizer, **options)

    net, optimizer, training = fresh()
    with training:
        run(net, optimizer, training, 1, 30)
    for save_at in (9, 24):
        begun, its_optimizer, its_training = fresh()
        with contextlib.suppress(InterruptedError), its_training:
            saved = run(begun, its_optimizer, its_training, 1, 30, save_at)
            raise InterruptedError  # nothing is exchanged any more
        again, optimizer_again, training_again = fresh()
        saved = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to(DEVICE), saved)  # as map_location
        training_again.load_state_dict(saved[2])
        again.load_state_dict(saved[0])
        optimizer_again.load_state_dict(saved[1])
        with training_again:
            run(again, optimizer_again, training_again, save_at + 1, 30)
        for a, b in zip(net.parameters(), again.parameters()):
            assert torch.equal(a, b)


def options_that_differ_are_refused():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    try:
        prunex.DiLoCo(net, optimizer, 2, outer_lr=(1, 0.5)[dist.get_rank()], ranks_per_node=1)
    except ValueError as error:
        assert str(error) == "`outer_lr`: rank 0 has 1, rank 1 0.5; wanted the same on all ranks", error
    else:
        raise AssertionError("nobody has noticed")
    states = gathered(prunex.DiLoCo(net, optimizer, 2, payload="int8", ranks_per_node=1).state_dict())
    for other, message in (({"payload": "int4"}, "it was saved with `payload` int8, this strategy has int4"),
                           ({"payload": "int8"}, "it is that of rank")):
        try:
            prunex.DiLoCo(net, optimizer, 2, ranks_per_node=1, **other).load_state_dict(states[1 - dist.get_rank()])
        except ValueError as error:
            assert message in str(error), error
        else:
            raise AssertionError(other)


@contextlib.contextmanager
def uneven_nodes():
    """Of two ranks and of one, by the launcher's number."""
    os.environ["GROUP_RANK"] = str(min(dist.get_rank(), 2) // 2)
    yield
    os.environ["GROUP_RANK"] = "0"


def hook(option, value):
    """Of nodes of one rank, between which messages are rounded."""
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


def frozen_parameters_are_those_of_the_first_rank():
    """Of any type and layout; what lies between the numbers of a view stays."""
    rank = dist.get_rank()
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).to(DEVICE)
    net[0].requires_grad_(False)
    memory = torch.full((4, 6), float(rank), device=DEVICE)
    frozen = [memory[:, ::2], torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last), torch.randn(()),
              torch.randn(5).to(torch.float8_e4m3fn), torch.arange(3 + rank, 6 + rank, dtype=torch.int16),
              torch.randn(3, dtype=torch.complex64), torch.empty(0), torch.tensor([rank == 0, True])]
    for i, values in enumerate(frozen):
        net.register_parameter(f"frozen{i}", nn.Parameter(values.to(DEVICE), requires_grad=False))
    prunex.LocalSGD(net, torch.optim.SGD(net[1].parameters(), 0.1))
    expect_equal_on_all_ranks([p if p.is_complex() else p.float() for p in net.parameters()])
    assert net.frozen0.eq(0).all() and memory[:, 1::2].eq(rank).all()


def whole_numbers_are_those_of_the_first_rank():
    rank, net = dist.get_rank(), small_network()
    net.register_buffer("seen", torch.tensor(0, device=DEVICE))
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with prunex.LocalSGD(net, optimizer, sync_every=2, ranks_per_node=1):
        for step in range(1, 4):
            train_step(net, optimizer, rank, step)
            net.seen += 3 + rank
    assert net.seen == 9, net.seen


def unequal_steps_are_refused():
    """On all ranks, before weights meet what is not theirs: within the loop, and where one has ended."""
    rank = dist.get_rank()
    for steps, message in (((4, 8), "rank 0 ends its loop after step 4, rank 1 exchanges after step 6; wanted equally"),
                           ((6, 3), "rank 0 exchanges after step 4, rank 1 ends its loop after step 3; wanted equally")):
        net = small_network()
        optimizer = OPTIMIZERS["sgd"](net.parameters())
        try:
            with prunex.LocalSGD(net, optimizer, sync_every=2 if steps[0] == 4 else 4, ranks_per_node=1):
                for step in range(1, steps[rank] + 1):
                    train_step(net, optimizer, rank, step)
        except ValueError as error:
            assert message in str(error), error
        else:
            raise AssertionError(steps)
    dist.barrier()


def an_uneven_end_is_averaged():
    """One rank makes a step more than the others after the last exchange."""
    rank = dist.get_rank()
    ours, theirs = small_network(torch.float64), small_network(torch.float64)
    optimizer = OPTIMIZERS["sgd"](ours.parameters())
    with prunex.LocalSGD(ours, optimizer, sync_every=4, ranks_per_node=1) as local:
        for step in range(1, 5 + rank):
            train_step(ours, optimizer, rank, step, torch.float64)
    assert local.exchange.index == 2
    optimizer = OPTIMIZERS["sgd"](theirs.parameters())
    for step in range(1, 5 + rank):
        train_step(theirs, optimizer, rank, step, torch.float64)
        with torch.no_grad():
            for p in theirs.parameters() if step == 4 else ():
                p.copy_(mean(p))
    with torch.no_grad():
        for a, b in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(a, mean(b), rtol=0, atol=1e-12)


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


def nodes_are_found():
    """Two ranks in a node: what is said inside it crosses no link."""
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with prunex.LocalSGD(net, optimizer, sync_every=2) as local:
        for step in range(1, 5):
            train_step(net, optimizer, dist.get_rank(), step)
    assert local.sent_bytes > 0 and local.sent_bytes_between_nodes == 0  # torchrun says that all are on one


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
        assert str(error).startswith(f"`process_group`: got {'that of other ranks' if rank >= 2 else 'a object'}"), error
    else:
        raise AssertionError("nobody has noticed")
    hashes = gathered(hash_of(net.parameters()))
    assert hashes[0] == hashes[1] != hashes[2], hashes


def a_cut_that_one_rank_does_not_follow_is_none():
    rank, example = dist.get_rank(), batch(0, 0)[0]
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    check = prunex._modules.expect_close

    def fails(got, want):
        raise prunex._modules.Differs("not here")

    with prunex.DiLoCo(net, optimizer, sync_every=3, total_steps=36, example=example, groups="coupled", keep=0.5,
                       round_to=1, ranks_per_node=1) as training, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(1, 37):
            train_step(net, optimizer, rank, step)
            if step % 3 == 0:
                prunex._modules.expect_close = fails if rank == 1 else check
                assert training.cut() is None
                prunex._modules.expect_close = check
    assert net[0].out_channels == 8 and training.exchange.frozen
    assert any("does not follow (not here)" in str(warning.message) for warning in said)
    expect_equal_on_all_ranks(net.parameters())


def a_scaler_skips_steps_on_all_ranks():
    """As docs/python.md has it, on the device or the CPU."""
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    scaler = torch.amp.GradScaler(DEVICE.split(":")[0], init_scale=256.0)
    with prunex.LocalSGD(net, optimizer, sync_every=2, ranks_per_node=1) as local:
        for step in range(1, 7):
            images, labels = batch(dist.get_rank(), step)
            loss = nn.functional.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            scaler.scale(loss * (float("inf") if (dist.get_rank(), step) == (0, 3) else 1)).backward()
            scaler.unscale_(optimizer)
            for found in scaler._found_inf_per_device(optimizer).values():
                dist.all_reduce(found, dist.ReduceOp.MAX)
            scaler.step(optimizer)
            scaler.update()
    assert local.step == 5 and scaler.get_scale() == 128.0, (local.step, scaler.get_scale())
    expect_equal_on_all_ranks(net.parameters())


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


def beside_ddp_and_gloo():
    """Gloo of torch.distributed before, between and after, and DDP in the same process."""
    one = torch.ones(3, device=DEVICE)
    dist.all_reduce(one)
    local_sgd_averages("sgd")
    ddp = nn.parallel.DistributedDataParallel(small_network())
    ddp(batch(dist.get_rank(), 1)[0]).sum().backward()
    diloco_is_its_formula("sgd")
    dist.all_reduce(one)
    assert one.tolist() == [dist.get_world_size() ** 2] * 3


COMMAND = {"samples": 240, "batch-size": 15, "local-steps": 3, "lr": 0.05, "momentum": 0.9, "weight-decay": 5e-4}


def classifier():
    """Of the command's synthetic images."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(4),
                         nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(16, 10))


LIKE_THE_COMMAND = [
    ("LocalSGD", {"exchanges": 4}),
    ("DiLoCo", {"exchanges": 4, "payload": "int2", "outer_lr": 1, "outer_momentum": 0.5}),
    ("DiLoCo", {"exchanges": 8, "groups": "coupled", "round_to": 1}),
    ("HSADMM", {"exchanges": 8, "groups": "coupled", "keep": "macs=0.6", "round_to": 1, "payload": "int8"}),
    ("HSADMM", {"exchanges": 8, "groups": "coupled-inner", "round_to": 1}),
    ("HSADMM", {"exchanges": 8, "groups": "coupled-inner", "round_to": 1, "optimizer": "adamw",
                "lr": 0.002}),
]


def trains_like_the_command(strategy, settings):
    """The same loop, written in Python: z, and bytes sent to other nodes."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    net = classifier().to(memory_format=torch.channels_last)
    options = dict(settings)
    if options.pop("optimizer", "sgd") == "adamw":
        optimizer = torch.optim.AdamW(net.parameters(), options.pop("lr"), weight_decay=COMMAND["weight-decay"])
    else:
        optimizer = torch.optim.SGD(net.parameters(), COMMAND["lr"], momentum=COMMAND["momentum"],
                                    weight_decay=COMMAND["weight-decay"])
    loader = prunex._library.library.Loader("synthetic", "", COMMAND["samples"], COMMAND["batch-size"], rank, ranks, 0)
    steps = COMMAND["local-steps"] * options.pop("exchanges")
    if "groups" in options:
        options["example"] = loader.batch(0, 0)[0]
    with getattr(prunex, strategy)(net, optimizer, COMMAND["local-steps"], total_steps=steps, ranks_per_node=1,
                                   **options) as training:
        for step in range(steps):
            images, labels = loader.batch(step // loader.steps_per_epoch(), step % loader.steps_per_epoch())
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
            if "groups" in options:
                training.cut()
    return {"weights": net.state_dict(), "sent": training.sent_bytes_between_nodes}


def train_like_the_command(file):
    done = [trains_like_the_command(*case) for case in LIKE_THE_COMMAND]
    if dist.get_rank() == 0:
        torch.save(done, file)


CASES = {
    2: [("diloco_is_its_formula", "sgd"), ("diloco_is_its_formula", "adamw"), ("local_sgd_averages", "adagrad"),
        ("the_last_steps_are_exchanged",), ("bytes_are_those_of_the_formula", "fp32"),
        ("bytes_are_those_of_the_formula", "int4"), ("masks_cut_everything", "DiLoCo", "adamw"),
        ("masks_cut_everything", "HSADMM", "sgd"), ("masks_cut_everything", "HSADMM", "adamw"),
        ("resumes_to_the_bit", "LocalSGD"), ("resumes_to_the_bit", "DiLoCo"), ("resumes_to_the_bit", "HSADMM"),
        ("nodes_are_found",), ("beside_ddp_and_gloo",), ("hook_of_ddp_averages", "payload", "int8"),
        ("hook_of_ddp_averages", "payload", "int4"), ("hook_of_ddp_averages", "density", "1.0"),
        ("hook_of_ddp_averages", "density", "0.2"), ("hook_of_ddp_recovers", "payload", "fp16"),
        ("hook_of_ddp_recovers", "payload", "int4"), ("hook_of_ddp_recovers", "density", "0.1"),
        ("hook_of_ddp_takes_gradients_of_bf16", "payload", "int8"),
        ("hook_of_ddp_takes_gradients_of_bf16", "density", "0.5"),
        ("frozen_parameters_are_those_of_the_first_rank",), ("a_cut_that_one_rank_does_not_follow_is_none",),
        ("a_scaler_skips_steps_on_all_ranks",), ("hook_of_ddp_goes_on_from_its_state", "payload", "int4"),
        ("hook_of_ddp_goes_on_from_its_state", "density", "0.1"), ("hooks_of_other_options_are_refused",),
        ("whole_numbers_are_those_of_the_first_rank",), ("unequal_steps_are_refused",), ("an_uneven_end_is_averaged",),
        ("connections_are_taken_again",)],
    3: [("diloco_is_its_formula", "sgd"), ("hook_of_ddp_averages", "payload", "int4"),
        ("hook_of_ddp_averages", "payload", "int4", "uneven"), ("whole_numbers_are_those_of_the_first_rank",),
        ("nodes_may_differ_and_ranks_have_groups_of_their_own",), ("a_part_of_the_ranks_trains",)],
    4: [("diloco_is_its_formula", "sgd", "2"), ("masks_cut_everything", "HSADMM", "adamw", "2")],
}


def main(function=None, *arguments):
    warnings.filterwarnings("ignore", message=".*follow the cut.*")
    os.environ["NCCL_HOSTID"] = os.environ["RANK"]  # two machines to NCCL, which may share a GPU
    dist.init_process_group(os.environ.get("PRUNEX_TEST_BACKEND", "gloo"))
    torch.backends.cudnn.deterministic = True
    for case in [(function, *arguments)] if function else CASES[dist.get_world_size()]:
        globals()[case[0]](*case[1:])
        if dist.get_rank() == 0:
            print("passed", *case, flush=True)
    # Gloo's threads let go of the last collective's tensors a moment later; after the interpreter's end they would crash
    time.sleep(0.2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
