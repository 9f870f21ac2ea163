"""Loops end: with their context, by an error, an interrupt or a rank that is lost."""

import datetime

import pytest

import prunex
from ranks import CASES
from training import OPTIMIZERS, diloco, small_network, train_step


def test_a_lost_rank_is_named(by_hand):
    survivor, lost = by_hand(2, "a_rank_dies")
    assert lost.returncode == 7 and survivor.returncode == 1
    assert "RuntimeError: [comm] rank 0: all_to_all in world: its connection closed (with rank 1)" in survivor.stderr


def test_what_fails_on_one_rank_has_passed_on_none(by_hand):
    first, second = by_hand(2, "rank_1_fails")
    assert "AssertionError: on rank 1" in second.stderr
    assert first.returncode != 0 and "passed" not in first.stdout


@pytest.mark.parametrize("ranks", sorted({ranks for ranks, _ in CASES}))
def test_ranks_end_without_an_error(all_on, ranks):
    done = all_on(ranks)
    of_torch = "terminate called without an active exception"  # docs/python.md, "What goes wrong"
    assert done.returncode == 0 or of_torch in done.stderr, f"{done.stdout}\n{done.stderr[-6000:]}"


def test_an_interrupt_ends_the_wait(by_hand):
    waiting, _ = by_hand(2, "one_waits", interrupt=0)
    assert waiting.stdout.endswith("KeyboardInterrupt\n"), (waiting.stdout, waiting.stderr)


@pytest.mark.parametrize("case", ["a_loop_ends_beside_an_exchange", "a_loop_is_dropped_beside_an_exchange"])
def test_exchanges_on_their_way_end_with_the_loop(by_hand, case):
    for result in by_hand(2, case):
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("steps, exchanges", [(7, 2), (8, 2), (9, 3)])
def test_nothing_new_is_not_exchanged(steps, exchanges):
    """The exchange of step 8 lands with the loop's end."""
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with prunex.DiLoCo(net, optimizer, sync_every=4, total_steps=40, overlap=2) as training:
        for step in range(1, steps + 1):
            train_step(net, optimizer, 0, step)
    assert training.exchange.index == exchanges


def test_hooks_end_with_the_context():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with prunex.LocalSGD(net, optimizer, sync_every=2) as training:
        train_step(net, optimizer, 0, 1)
    train_step(net, optimizer, 0, 2)
    assert training.step == 1


def test_an_error_in_the_loop_is_not_hidden_by_an_exchange():
    net = small_network()
    optimizer = OPTIMIZERS["sgd"](net.parameters())
    with pytest.raises(KeyError, match="mine"):
        with prunex.LocalSGD(net, optimizer, sync_every=2) as training:
            train_step(net, optimizer, 0, 1)
            raise KeyError("mine")
    assert training.exchange is None


def test_a_loop_outside_of_the_context_is_noticed():
    loop = diloco(sync_every=2, timeout=datetime.timedelta(minutes=1))
    with pytest.raises(ValueError, match="finish: no step was counted, wanted `with` this DiLoCo around the loop"):
        loop.finish()
