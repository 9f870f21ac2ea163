"""Ranks that find one another, or do not."""

import pytest

import prunex
from on_ranks import connections
from training import diloco


@pytest.mark.parametrize("ranks, case", connections.CASES)
def test_on_ranks(passed, ranks, case):
    passed(ranks, case)


def test_ranks_and_states_that_differ_are_refused(by_hand):
    for result in by_hand(2, "options_that_differ_are_refused"):
        assert result.returncode == 0, result.stderr


def test_a_rank_that_does_not_know_the_others_is_refused(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="torch.distributed: this is rank 1 of 2, which know nothing of each other"):
        diloco()


def test_a_group_of_nobody_is_refused():
    with pytest.raises(ValueError, match="`process_group`: got a object, and torch.distributed is not initialized"):
        prunex.comm_hook(payload="int8", process_group=object())
