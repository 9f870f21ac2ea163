"""Compressed gradients of DistributedDataParallel."""

import pytest

import prunex
from on_ranks import hooks


@pytest.mark.parametrize("ranks, case", hooks.CASES)
def test_on_ranks(passed, ranks, case):
    passed(ranks, case)


@pytest.mark.parametrize("options, message", [
    ({}, "wanted one of `payload` and `density`"),
    ({"payload": "int4", "density": 0.1}, "wanted one of `payload` and `density`"),
    ({"payload": "fp32"}, "`payload`"),
    ({"density": 0}, "`density`: got 0, wanted a share"),
    ({"payload": "int4", "dgc": True}, "`dgc`: goes with `density`"),
    ({"density": 0.1, "warmup_steps": 5}, "go with `dgc`"),
    ({"density": 0.1, "dgc": True, "momentum": 1}, "`momentum`: got 1, wanted 0 or more, below 1"),
    ({"density": 0.1, "dgc": True, "warmup_steps": -1}, "`warmup_steps`: got -1, wanted 0 or more"),
    ({"payload": "int4", "timeout": -3}, "`timeout`: got -3, wanted seconds above 0"),
])
def test_options_without_sense_are_refused(options, message):
    with pytest.raises(ValueError) as error:
        prunex.comm_hook(**options)
    assert message in str(error.value)


def test_a_lost_rank_is_named(by_hand):
    survivor, lost = by_hand(2, "hook_of_ddp_names_a_lost_rank")
    assert lost.returncode == 7 and survivor.returncode == 1
    assert "RuntimeError: [comm] rank 0: " in survivor.stderr and "(with rank 1)" in survivor.stderr
