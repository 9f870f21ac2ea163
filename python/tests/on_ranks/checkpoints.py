"""What save() writes, and what as many nodes, fewer or more go on from."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

import prunex
from on_ranks.collectives import expect_equal_on_all_ranks, gathered
from training import OPTIMIZERS, InTurn, batch, small_network, train_step

CASES = [
    (2, "a_checkpoint_goes_on_to_the_bit DiLoCo"), (2, "a_checkpoint_goes_on_to_the_bit HSADMM"),
    (2, "a_checkpoint_goes_on_to_the_bit DiLoCo several"),
    (2, "what_one_rank_cannot_write_no_rank_has"), (2, "what_one_rank_cannot_read_is_said_on_all"),
    (3, "a_node_finds_its_own_share_on_its_disk"), (4, "other_numbers_of_nodes_go_on 4 2"),
    (4, "other_numbers_of_nodes_go_on 2 4"), (4, "other_numbers_of_nodes_go_on 3 2 4"), (4, "nodes_of_two_ranks_go_on"),
    (4, "other_ranks_per_node_are_refused"), (3, "a_newcomer_has_all_that_is_not_trained"),
    (2, "ranks_that_made_fewer_steps_have_one_checkpoint")]


@contextlib.contextmanager
def folder():
    """The same on all ranks."""
    name = gathered(tempfile.mkdtemp() if dist.get_rank() == 0 else None)[0]
    yield Path(name)
    dist.barrier()
    shutil.rmtree(name, ignore_errors=True)


def train(training, first, last, dtype=torch.float32):
    for step in range(first, last + 1):
        train_step(training.model, InTurn(training.optimizers), dist.get_rank(), step, dtype)
        if training._has_masks:
            training.cut()


@contextlib.contextmanager
def interrupted(training):
    """Nothing is exchanged at the end."""
    with contextlib.suppress(InterruptedError), training:
        yield
        raise InterruptedError


def a_checkpoint_goes_on_to_the_bit(strategy, kind="adamw"):
    options = {"sync_every": 3, "total_steps": 30, "ranks_per_node": 1, "payload": "int4", "example": batch(0, 0)[0],
               "groups": "coupled", "round_to": 1}

    def fresh():
        net = small_network()
        return getattr(prunex, strategy)(net, OPTIMIZERS[kind](net.parameters()), **options)

    with fresh() as whole:
        train(whole, 1, 30)
    for save_at in (9, 24):  # before the cut and after it
        with folder() as where:
            begun = fresh()
            assert begun.resume(where) is None and begun.step == 0
            with interrupted(begun):
                train(begun, 1, save_at)
                begun.save(where, {"draws": torch.arange(dist.get_rank() + 1), "epoch": (1, 0.5, "a")})
                train(begun, save_at + 1, save_at + 2)
            again = fresh()
            extra = again.resume(where)
            assert extra["draws"].tolist() == list(range(dist.get_rank() + 1)) and extra["epoch"] == (1, 0.5, "a")
            assert again.step == save_at
            with again:
                train(again, save_at + 1, 30)
        for a, b in zip(whole.model.parameters(), again.model.parameters()):
            assert torch.equal(a, b)


def simulated(stages, every=4):
    """DiLoCo in one process, in double, on nodes that come and go: [(nodes, last step)]. Returns z."""
    z = [p.detach().clone() for p in small_network(torch.float64).parameters()]
    momentum = [torch.zeros_like(p) for p in z]
    nodes = []
    begin = 1
    for count, end in stages:
        del nodes[count:]
        while len(nodes) < count:
            net = small_network(torch.float64)
            with torch.no_grad():
                for p, old in zip(net.parameters(), z):
                    p.copy_(old)
            nodes.append((net, OPTIMIZERS["adamw"](net.parameters())))
        for step in range(begin, end + 1):
            for rank, (net, optimizer) in enumerate(nodes):
                train_step(net, optimizer, rank, step, torch.float64)
            if step % every:
                continue
            with torch.no_grad():
                for i, (old, b) in enumerate(zip(z, momentum)):
                    params = [list(net.parameters())[i] for net, _ in nodes]
                    change = old - sum(params) / count
                    b.mul_(0.7).add_(change)
                    old.sub_(0.6 * (change + 0.7 * b))
                    for p in params:
                        p.copy_(old)
        begin = end + 1
    return z


def other_numbers_of_nodes_go_on(*counts):
    """Each count goes on from what the one before it has saved."""
    counts = [int(count) for count in counts]
    want = simulated([(count, 8 * (i + 1)) for i, count in enumerate(counts)])
    with folder() as where:
        for i, count in enumerate(counts):
            group = dist.new_group(list(range(count)))
            if dist.get_rank() >= count:
                continue
            net = small_network(torch.float64)
            training = prunex.DiLoCo(net, OPTIMIZERS["adamw"](net.parameters()), sync_every=4, outer_lr=0.6,
                                     outer_momentum=0.7, process_group=group, ranks_per_node=1)
            extra = training.resume(where)
            assert training.step == 8 * i and (extra is None if i == 0 else extra == {"stage": i - 1})
            with interrupted(training):
                train(training, 8 * i + 1, 8 * (i + 1), torch.float64)
                training.save(where, {"stage": i})
        dist.barrier()
    if dist.get_rank() < counts[-1]:
        for p, z in zip(net.parameters(), want):
            torch.testing.assert_close(p.detach(), z, rtol=0, atol=1e-12)


def a_node_finds_its_own_share_on_its_disk():
    """The first of three is lost, and the others have its and each other's numbers."""
    rank = dist.get_rank()
    rest = dist.new_group([1, 2])
    own = Path(tempfile.mkdtemp())
    options = {"sync_every": 3, "payload": "int4", "outer_lr": 1, "outer_momentum": 0.5, "ranks_per_node": 1}
    net = small_network()
    begun = prunex.DiLoCo(net, OPTIMIZERS["sgd"](net.parameters()), **options)
    with interrupted(begun):
        train(begun, 1, 6)
        begun.save(own, {"rank": rank})
    if rank > 0:
        net = small_network()
        again = prunex.DiLoCo(net, OPTIMIZERS["sgd"](net.parameters()), **options, process_group=rest)
        assert again.resume(own) == {"rank": rank} and again._ranks.rank == rank - 1
        was, now = begun.state_dict(), again.state_dict()
        assert was["rank"] and all(now["rank"][name].equal(value) for name, value in was["rank"].items())
        with again:
            train(again, 7, 12)
        others = [None] * 2
        dist.all_gather_object(others, [p.sum().item() for p in net.parameters()], group=rest)
        assert others[0] == others[1]
    dist.barrier()
    shutil.rmtree(own)


def admm_of(process_group, ranks_per_node):
    net = small_network()
    return prunex.HSADMM(net, OPTIMIZERS["sgd"](net.parameters()), sync_every=3, total_steps=30, example=batch(0, 0)[0],
                         groups="coupled", round_to=1, payload="int8", process_group=process_group,
                         ranks_per_node=ranks_per_node)


def nodes_of_two_ranks_go_on():
    """Two nodes, one of them, two again: before the masks are final and after the cut. A newcomer begins with z, and with
    nothing of its own."""
    before = 0
    with folder() as where:
        for ranks, end in ((4, 6), (2, 9), (4, 21), (2, 24), (4, 30)):
            group = dist.new_group(list(range(ranks)))
            if dist.get_rank() >= ranks:
                before = ranks
                continue
            training = admm_of(group, 2)
            training.resume(where)
            state = training.state_dict()
            if 0 < before < ranks:
                is_new = dist.get_rank() >= before
                own = sum(value.abs().sum() for name, value in state["rank"].items() if name.startswith("u/"))
                assert end == 30 or (own == 0) == is_new
                assert (not training.optimizer.state_dict()["state"]) == is_new
                if is_new:
                    for name, value in training.product().items():
                        assert torch.equal(value, training.model.state_dict()[name])
            assert (training._cut is not None) == (training.step > 15)
            with interrupted(training) if end < 30 else training:
                train(training, training.step + 1, end)
                if end < 30:
                    training.save(where)
            before = ranks
        dist.barrier()
    expect_equal_on_all_ranks(training.model.parameters())
    assert training.exchange.index == 10 and all(p.isfinite().all() for p in training.model.parameters())


def a_newcomer_has_all_that_is_not_trained():
    """Frozen weights are those of the save, not of a new module; Adagrad has a state before its first step."""

    def fresh(group, seed):
        net = small_network()
        net[3].requires_grad_(False)
        with torch.no_grad():
            net[3].weight.fill_(seed)
        optimizer = OPTIMIZERS["adagrad"](p for p in net.parameters() if p.requires_grad)
        return prunex.LocalSGD(net, optimizer, sync_every=2, process_group=group, ranks_per_node=1)

    group = dist.new_group([0, 1])
    with folder() as where:
        if dist.get_rank() < 2:
            begun = fresh(group, 0.25)
            with interrupted(begun):
                train(begun, 1, 2)
                begun.save(where)
        dist.barrier()
        training = fresh(None, 0.5)
        training.resume(where)
        assert training.model[3].weight.eq(0.25).all()
        with training:
            train(training, 3, 4)
    expect_equal_on_all_ranks(training.model.parameters())


def other_ranks_per_node_are_refused():
    with folder() as where:
        begun = admm_of(None, 2)
        with interrupted(begun):
            train(begun, 1, 3)
            begun.save(where)
        try:
            admm_of(None, 1).resume(where)
        except ValueError as error:
            assert "resume: it was saved on nodes of [2, 2] ranks, these are of [1, 1, 1, 1]; wanted as many" in str(error)
        else:
            raise AssertionError("resumed")


def local_sgd():
    net = small_network()
    return prunex.LocalSGD(net, OPTIMIZERS["sgd"](net.parameters()), sync_every=2, ranks_per_node=1)


def what_one_rank_cannot_write_no_rank_has():
    with folder() as where:
        own = where / str(dist.get_rank())
        training = local_sgd()
        with interrupted(training):
            train(training, 1, 2)
            training.save(own)
            train(training, 3, 4)
            if dist.get_rank() == 1:
                os.rename(own, where / "aside")
                own.write_text("")
            try:
                training.save(own)
            except OSError as error:
                assert dist.get_rank() == 1 and "save: " in str(error) and "Not a directory" in str(error), error
            except RuntimeError as error:
                assert dist.get_rank() == 0 and "rank 1: save: " in str(error), error
            else:
                raise AssertionError("saved")
        if dist.get_rank() == 1:
            own.unlink()
            os.rename(where / "aside", own)
        again = local_sgd()
        again.resume(own)
        assert again.step == 2 and len(list(own.iterdir())) == 1


def what_one_rank_cannot_read_is_said_on_all():
    with folder() as where:
        training = local_sgd()
        with interrupted(training):
            train(training, 1, 2)
            training.save(where)
        dist.barrier()
        (file,) = where.glob("*/rank-1.pt")
        if dist.get_rank() == 1:
            file.write_bytes(file.read_bytes()[:1000])
        dist.barrier()
        try:
            local_sgd().resume(where)
        except RuntimeError as error:
            assert f"resume: {file} is damaged" in str(error)
            assert str(error).startswith("rank 1: ") == (dist.get_rank() == 0)
        else:
            raise AssertionError("resumed")


def ranks_that_made_fewer_steps_have_one_checkpoint():
    def fresh():
        net = small_network()
        return prunex.LocalSGD(net, OPTIMIZERS["adamw"](net.parameters()), 5, ranks_per_node=1)

    last = 8 + dist.get_rank()
    with folder() as where:
        with fresh() as training:
            train(training, 1, last)
        training.save(where)
        assert [path.name.partition("-")[0] for path in where.iterdir()] == ["9"]
        again = fresh()
        assert again.resume(where) == {} and again.step == last
        assert again.optimizer.state_dict()["state"][0]["step"] == last
