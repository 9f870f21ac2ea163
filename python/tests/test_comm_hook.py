"""Compressed gradients of DistributedDataParallel."""

import types

import pytest
import torch

import prunex
from on_ranks import hooks
from prunex import _hooks


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
    ({"density": 0.5, "dgc": True, "warmup_steps": 5}, "`warmup_steps`: the density falls from 0.25, and `density` is"),
    ({"payload": "int4", "timeout": -3}, "`timeout`: got -3, wanted seconds above 0"),
])
def test_options_without_sense_are_refused(options, message):
    with pytest.raises(ValueError) as error:
        prunex.comm_hook(**options)
    assert message in str(error.value)


def test_memory_of_a_loaded_state_is_kept_for_the_stream_that_copies_it(monkeypatch):
    class OnGpu:
        is_cuda, device, streams = True, torch.device("cuda:0"), []

        def record_stream(self, stream):
            self.streams.append(stream)

    state = {"error": OnGpu()}
    monkeypatch.setattr(_hooks.library, "RoundedBucket", lambda *_: types.SimpleNamespace(load=lambda _: None))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    hook = prunex.comm_hook(payload="int8")
    hook._saved[(1,)] = state
    hook._exchange_of([], (1,))
    assert OnGpu.streams == ["stream of cuda:0"] and not hook._saved


def test_a_lost_rank_is_named(by_hand):
    survivor, lost = by_hand(2, "hook_of_ddp_names_a_lost_rank")
    assert lost.returncode == 7 and survivor.returncode == 1
    assert "RuntimeError: [comm] rank 0: " in survivor.stderr and "(with rank 1)" in survivor.stderr
