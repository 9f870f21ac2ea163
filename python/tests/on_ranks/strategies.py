"""LocalSGD, DiLoCo and HSADMM against what they are, written out in PyTorch."""

import contextlib
import copy

import torch
import torch.distributed as dist
from torch import nn

import prunex
from on_ranks.collectives import expect_equal_on_all_ranks, gathered, mean
from training import DEVICE, OPTIMIZERS, batch, small_network, train_step

CASES = [
    (2, "diloco_is_its_formula sgd"), (2, "diloco_is_its_formula adamw"), (2, "local_sgd_averages adagrad"),
    (2, "the_last_steps_are_exchanged"), (2, "bytes_are_those_of_the_formula fp32"),
    (2, "bytes_are_those_of_the_formula int4"), (2, "resumes_to_the_bit LocalSGD"), (2, "resumes_to_the_bit DiLoCo"),
    (2, "resumes_to_the_bit HSADMM"), (2, "beside_ddp_and_gloo"), (2, "frozen_parameters_are_those_of_the_first_rank"),
    (2, "a_scaler_skips_steps_on_all_ranks"), (2, "whole_numbers_are_those_of_the_first_rank"),
    (2, "unequal_steps_are_refused"), (2, "an_uneven_end_is_averaged"),
    (3, "diloco_is_its_formula sgd"), (3, "whole_numbers_are_those_of_the_first_rank"),
    (2, "several_optimizers_step_in_turn"), (4, "diloco_is_its_formula sgd 2"), (4, "a_node_may_be_one_worker")]


def written_out(outer_lr, outer_momentum, kind, steps=12, every=4, seen=None):
    """DiLoCo (arXiv 2311.08105) in PyTorch, in double; local SGD with an outer step of 1 / 0. seen: what the local
    optimizer sees of a gradient. Returns z."""
    rank = dist.get_rank()
    net = small_network(torch.float64)
    optimizer = OPTIMIZERS[kind](net.parameters())
    if seen is not None:
        optimizer.register_step_pre_hook(lambda *_: [p.grad.copy_(seen(p.grad)) for p in net.parameters()] and None)
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


def several_optimizers_step_in_turn():
    """Exchanges come after the step of the last one, whether the strategy has all or that one."""
    want = written_out(0.6, 0.7, "several")
    for has_all in (True, False):
        net = small_network(torch.float64)
        optimizers = OPTIMIZERS["several"](net.parameters())
        with prunex.DiLoCo(net, optimizers if has_all else optimizers[-1], sync_every=4, outer_lr=0.6,
                           outer_momentum=0.7):
            for step in range(1, 13):
                train_step(net, optimizers, dist.get_rank(), step, torch.float64)
        for p, z in zip(net.parameters(), want):
            torch.testing.assert_close(p.detach(), z, rtol=0, atol=1e-12)


def a_node_may_be_one_worker():
    """Under DDP in the node; of two ranks. Their gradients' mean is what the formula's optimizer sees."""
    want = written_out(0.6, 0.7, "sgd", seen=lambda gradient: gathered_in_node(gradient).mean(0))
    net = small_network(torch.float64)
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    node, _ = dist.new_subgroups(2)
    ddp = nn.parallel.DistributedDataParallel(net, process_group=node)
    with prunex.DiLoCo(net, optimizer, sync_every=4, outer_lr=0.6, outer_momentum=0.7, ranks_per_node=2):
        for step in range(1, 13):
            train_step(ddp, optimizer, dist.get_rank(), step, torch.float64)
    for p, z in zip(net.parameters(), want):
        torch.testing.assert_close(p.detach(), z, rtol=0, atol=1e-12)


def gathered_in_node(tensor):
    first = dist.get_rank() // 2 * 2
    return torch.stack(gathered(tensor)[first:first + 2])


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
    training = prunex.LocalSGD(net, torch.optim.SGD(net[1].parameters(), 0.1))
    expect_equal_on_all_ranks([p if p.is_complex() else p.float() for p in net.parameters()])
    assert net.frozen0.eq(0).all() and memory[:, 1::2].eq(rank).all()
    net[0].weight.data.fill_(5 + rank)  # as one rank may load what others do not
    with training:
        assert net[0].weight.eq(5).all()


def whole_numbers_are_those_of_the_first_rank():
    rank, net = dist.get_rank(), small_network()
    net.register_buffer("seen", torch.tensor(0, device=DEVICE))
    for name, kind in {"short": torch.int16, "unsigned": torch.uint16, "table": torch.uint32}.items():
        net.register_buffer(name, torch.full((3,), 7 + rank, dtype=kind, device=DEVICE))
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with prunex.LocalSGD(net, optimizer, sync_every=2, ranks_per_node=1):
        for step in range(1, 4):
            train_step(net, optimizer, rank, step)
            net.seen += 3 + rank
    assert net.seen == 9, net.seen
    assert all((tensor.to(torch.int64) == 7).all() for tensor in (net.short, net.unsigned, net.table))


def unequal_steps_are_refused():
    """On all ranks, before weights meet what is not theirs: within the loop, and where one has ended."""
    rank = dist.get_rank()
    for steps, message in (((4, 8), "rank 0 ends its loop after step 4, rank 1 exchanges after step 6; wanted equal"),
                           ((6, 3), "rank 0 exchanges after step 4, rank 1 ends its loop after step 3; wanted equal")):
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


def beside_ddp_and_gloo():
    """Gloo of torch.distributed before, between and after, and DDP in the same process."""
    one = torch.ones(3, device=DEVICE)
    dist.all_reduce(one)
    local_sgd_averages("sgd")
    ddp = nn.parallel.DistributedDataParallel(small_network())
    whole = nn.Sequential(ddp)
    for module, name in ((ddp, "got"), (whole, "0 is")):
        try:
            prunex.LocalSGD(module, torch.optim.SGD(module.parameters(), 0.1))
            raise AssertionError("it is taken")
        except ValueError as error:
            assert f"`model`: {name} a DistributedDataParallel, wanted the module in it" in str(error), error
    ddp(batch(dist.get_rank(), 1)[0]).sum().backward()
    diloco_is_its_formula("sgd")
    dist.all_reduce(one)
    assert one.tolist() == [dist.get_world_size() ** 2] * 3
