"""Masks that the ranks agree on, and what they cut."""

import copy
import warnings

import torch
import torch.distributed as dist

import prunex
from on_ranks.collectives import expect_equal_on_all_ranks
from training import OPTIMIZERS, batch, small_network, train_step

CASES = [(2, "masks_cut_everything DiLoCo adamw"), (2, "masks_cut_everything HSADMM sgd"),
         (2, "masks_cut_everything HSADMM adamw"), (2, "a_cut_that_one_rank_does_not_follow_is_none"),
         (2, "a_cut_for_which_one_rank_has_no_memory_is_undone"),
         (4, "masks_cut_everything HSADMM adamw 2")]


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
                if training.cut() is not None and cut_after is None:
                    assert training.exchange.frozen
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


def a_cut_that_one_rank_does_not_follow_is_none():
    rank, example = dist.get_rank(), batch(0, 0)[0]
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    cut = prunex._cuts.cut

    def fails(*_):
        raise ValueError("not here")

    with prunex.DiLoCo(net, optimizer, sync_every=3, total_steps=36, example=example, groups="coupled", keep=0.5,
                       round_to=1, ranks_per_node=1) as training, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(1, 37):
            train_step(net, optimizer, rank, step)
            if step % 3 == 0:
                prunex._cuts.cut = fails if rank == 1 else cut
                assert training.cut() is None
                prunex._cuts.cut = cut
    assert net[0].out_channels == 8 and training.exchange.frozen
    assert any("does not follow (not here)" in str(warning.message) for warning in said)
    expect_equal_on_all_ranks(net.parameters())


def a_cut_for_which_one_rank_has_no_memory_is_undone():
    """And made once there is enough."""
    rank, net = dist.get_rank(), small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    evaluated = prunex._checked_cut.evaluated

    def fails(*_):
        raise torch.OutOfMemoryError("no memory")

    with prunex.DiLoCo(net, optimizer, sync_every=3, total_steps=36, example=batch(0, 0)[0], groups="coupled",
                       round_to=1, ranks_per_node=1) as training:
        for step in range(1, 31):
            train_step(net, optimizer, rank, step)
        whole = list(net.parameters())
        try:
            prunex._checked_cut.evaluated = fails if rank == 1 else evaluated
            training.cut()
            raise AssertionError("cut")
        except RuntimeError as error:
            assert isinstance(error, torch.OutOfMemoryError) == (rank == 1), error
            assert str(error) == ("no memory" if rank == 1 else "rank 1: no memory"), error
        finally:
            prunex._checked_cut.evaluated = evaluated
        assert net[0].out_channels == 8 and all(a is b for a, b in zip(net.parameters(), whole, strict=True))
        assert all(p in optimizer.state for p in whole)
        for step in range(31, 37):
            train_step(net, optimizer, rank, step)
        assert training.cut() is not None and net[0].out_channels == 4
    expect_equal_on_all_ranks(net.parameters())
