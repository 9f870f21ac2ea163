"""Checkpoints of a loop: what is kept, what is refused, and ranks that torchrun starts again."""

import os
import subprocess
import sys
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import prunex
from on_ranks import checkpoints
from training import OPTIMIZERS, diloco, small_network, train_step

HERE = Path(__file__).parent


@pytest.mark.parametrize("ranks, case", checkpoints.CASES)
def test_on_ranks(passed, ranks, case):
    passed(ranks, case)


def train(training, first, last, save_every=0, where=None):
    for step in range(first, last + 1):
        train_step(training.model, training.optimizer, 0, step)
        if save_every and step % save_every == 0:
            training.save(where)


def steps_in(where):
    return sorted(int(path.name.split("-")[0]) for path in where.iterdir())


def test_the_last_two_are_kept_and_the_users_files(tmp_path):
    (tmp_path / "12").mkdir()
    (tmp_path / "notes-0badcafe").write_text("mine")
    with diloco(sync_every=2) as training:
        train(training, 1, 8, 2, tmp_path)
        (kept,) = tmp_path.glob("6-*")
        (kept / "mine.txt").write_text("mine")
        train(training, 9, 14, 2, tmp_path)
    assert (tmp_path / "notes-0badcafe").exists() and (tmp_path / "12").exists()
    assert [path.name for path in kept.iterdir()] == ["mine.txt"]
    assert sorted(path.parent.name.split("-")[0] for path in tmp_path.glob("*/rank-0.pt")) == ["12", "14"]


def test_what_is_not_finished_is_not_taken_and_what_was_gone_back_from_goes(tmp_path):
    with diloco(sync_every=2) as training:
        train(training, 1, 6, 2, tmp_path)
    assert steps_in(tmp_path) == [4, 6]
    (last,) = tmp_path.glob("6-*/rank-0.pt")
    os.rename(last, last.with_name("rank-0.pt.new"))
    again = diloco(sync_every=2)
    assert again.resume(tmp_path) == {} and again.step == 4
    with again:
        train(again, 5, 6, 2, tmp_path)
        assert steps_in(tmp_path) == [4, 6] and not last.parent.exists()


def test_after_a_step_without_an_exchange_nothing_is_saved(tmp_path):
    training = diloco(sync_every=2)
    with pytest.raises(ValueError, match="save: got step 0, wanted one that ends with an exchange"):
        training.save(tmp_path)
    with training:
        train(training, 1, 3)
        with pytest.raises(ValueError, match="save: got step 3, wanted .*; the last one was step 2"):
            training.save(tmp_path)
        with pytest.raises(ValueError, match="resume: the loop has begun; wanted it before `with`"):
            training.resume(tmp_path)
        with pytest.raises(ValueError, match="load_state_dict: the loop has begun; wanted it before `with`"):
            training.load_state_dict(training.state_dict())
    assert list(tmp_path.iterdir()) == []


def test_beside_an_exchange_that_overlaps_one_saves_when_it_has_landed(tmp_path):
    def fresh():
        net = small_network()
        return prunex.DiLoCo(net, OPTIMIZERS["sgd"](net.parameters()), sync_every=4, total_steps=16, overlap=1)

    with fresh() as whole:
        train(whole, 1, 16)
    with pytest.raises(InterruptedError), fresh() as begun:
        train(begun, 1, 8)
        with pytest.raises(ValueError, match="save: got step 8, wanted .*; the last one was step 4"):
            begun.save(tmp_path)
        train(begun, 9, 9)
        begun.save(tmp_path)
        raise InterruptedError
    again = fresh()
    again.resume(tmp_path)
    with again:
        train(again, 10, 16)
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), again.model.parameters()))


def test_what_torch_would_not_load_is_refused(tmp_path):
    class Point(NamedTuple):
        x: int

    class Subclass(torch.Tensor):
        pass

    with diloco(sync_every=2) as training:
        train(training, 1, 2)
        for value, name in [({"file": [1, tmp_path]}, r"extra\['file'\]\[1\] is a PosixPath"),
                            ({"at": Point(1)}, r"extra\['at'\] is a Point"),
                            ({"t": torch.ones(1).as_subclass(Subclass)}, r"extra\['t'\] is a Subclass"),
                            ({"n": defaultdict(int)}, r"extra\['n'\] is a defaultdict"),
                            ({Point(1): 1}, "a key of extra is a Point"), ({"x": b""}, r"extra\['x'\] is b''")]:
            with pytest.raises(ValueError, match=f"save: {name}, (wanted tensors, numbers|which torch.load does not)"):
                training.save(tmp_path, value)
        assert list(tmp_path.iterdir()) == []
        extra = {"a": [1, 0.5, 1j, None, True, b"b", {2}], 3: OrderedDict(c=(torch.float32, torch.Size([2])))}
        training.save(tmp_path, extra)
    assert diloco(sync_every=2).resume(tmp_path) == extra


def test_a_save_that_was_killed_does_not_take_the_place_of_one_that_was_finished(tmp_path):
    with diloco(sync_every=2) as training:
        train(training, 1, 2, 2, tmp_path)
    (tmp_path / "4-00000000").mkdir()
    (tmp_path / "4-00000000/rank-0.pt.new").write_bytes(b"half")
    again = diloco(sync_every=2)
    assert again.resume(tmp_path) is not None
    with again:
        train(again, 3, 6)
        again.save(tmp_path)
    assert steps_in(tmp_path) == [2, 6]


def test_two_strategies_want_folders_of_their_own(tmp_path):
    first, second = diloco(sync_every=2), diloco(sync_every=2)
    for training in (first, second):
        assert training.resume(tmp_path) is None
    with first, second:
        for training in (first, second):
            train(training, 1, 2)
        first.save(tmp_path)
        with pytest.raises(ValueError, match=r"save: .*/2-\w+ is of another run"):
            second.save(tmp_path)
        for training in (first, second):
            train(training, 3, 4)
        first.save(tmp_path)
    assert steps_in(tmp_path) == [2, 4]


def test_a_run_may_have_several_folders(tmp_path):
    with diloco(sync_every=2) as training:
        for step, name in enumerate(["last", "best", "last", "last", "best"], 1):
            train(training, 2 * step - 1, 2 * step, 2, tmp_path / name)
    assert steps_in(tmp_path / "last") == [6, 8] and steps_in(tmp_path / "best") == [4, 10]
    again = diloco(sync_every=2)
    assert again.resume(tmp_path / "best") == {} and again.resume(tmp_path / "last") == {} and again.step == 8
    with again:
        train(again, 9, 10, 2, tmp_path / "best")
        train(again, 11, 12, 2, tmp_path / "last")


def test_what_the_run_did_not_look_at_is_not_removed(tmp_path):
    with diloco(sync_every=2) as training:
        train(training, 1, 4, 2, tmp_path)
    with diloco(sync_every=2) as other:
        train(other, 1, 2)
        with pytest.raises(ValueError, match=r"save: .*/2-\w+ is of another run; wanted resume\(\) before"):
            other.save(tmp_path)
    assert steps_in(tmp_path) == [2, 4]


def test_a_directory_that_is_none_is_named(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(OSError, match="a'$"):
        diloco(sync_every=2).resume(tmp_path / "a")


def test_options_must_be_those_that_it_was_saved_with(tmp_path):
    with diloco(sync_every=2, outer_lr=0.5) as training:
        train(training, 1, 2, 2, tmp_path)
    with pytest.raises(ValueError, match="it was saved with `outer_lr` 0.5, this strategy has 0.7"):
        diloco(sync_every=2, outer_lr=0.7).resume(tmp_path)
    again = diloco(sync_every=2, outer_lr="0.50")
    assert again.resume(tmp_path) == {} and again.step == 2


@pytest.mark.parametrize("made, message", [
    (OPTIMIZERS["adamw"], "got AdamW of 9 parameters"),
    (OPTIMIZERS["several"], "got SGD of 3 parameters, AdamW of 6 parameters"),
    (lambda params: torch.optim.SGD([{"params": [p]} for p in params], 0.05), "got SGD of 1( and 1){8} parameters"),
], ids=["kind", "number", "groups"])
def test_another_optimizer_is_refused_before_anything_changes(made, message, tmp_path):
    with diloco(sync_every=2) as training:
        train(training, 1, 2, 2, tmp_path)
    net = small_network()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(ValueError, match=f"`optimizer`: {message}, the run that was saved has SGD of 9 parameters"):
        prunex.DiLoCo(net, made(net.parameters()), sync_every=2).resume(tmp_path)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_run_of_another_network_is_refused(tmp_path):
    with diloco(sync_every=2) as training:
        train(training, 1, 2, 2, tmp_path)
    net = torch.nn.Linear(3, 2)
    with pytest.raises(ValueError, match="state_dict: it is of another network: .* is in one alone"):
        prunex.DiLoCo(net, OPTIMIZERS["sgd"](net.parameters()), sync_every=2).resume(tmp_path)


def test_a_run_of_a_network_that_has_more_is_refused_before_anything_changes(tmp_path):
    def made(bias):
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2, bias=bias))
        optimizer = torch.optim.SGD([net[0].weight, net[0].bias, net[1].weight], 0.1)
        return net, optimizer, prunex.DiLoCo(net, optimizer, sync_every=1)

    net, optimizer, training = made(True)
    with training:
        net(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
        training.save(tmp_path)
    net, optimizer, training = made(False)
    before = training.product()
    with pytest.raises(ValueError, match="it is of another network: 1.bias is in one alone"):
        training.resume(tmp_path)
    assert training.step == 0 and all(torch.equal(value, before[name]) for name, value in training.product().items())


def test_code_in_a_file_is_not_run(tmp_path):
    with diloco(sync_every=2) as training:
        train(training, 1, 2, 2, tmp_path)
    (file,) = tmp_path.glob("*/rank-0.pt")
    torch.save(subprocess.Popen, file)
    with pytest.raises(RuntimeError, match="resume: .*rank-0.pt is damaged"):
        diloco(sync_every=2).resume(tmp_path)


def churn(folder, *arguments, restarts=0):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--log-dir={os.devnull}",
               "--nproc-per-node=2", f"--max-restarts={restarts}", "--monitor-interval=0.1", str(HERE / "restarted.py"),
               str(folder), *arguments]
    # else what begins anew may find the addresses of those that have ended: pytorch/pytorch issue 167288
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **own_store})


def test_ranks_that_torchrun_starts_again_end_as_if_nothing_had_been(tmp_path):
    undisturbed, killed = churn(tmp_path / "a"), churn(tmp_path / "b", "7", "13", restarts=2)
    assert undisturbed.returncode == 0, undisturbed.stderr[-3000:]
    assert killed.returncode == 0, killed.stderr[-3000:]
    assert "resumed after step 6" in killed.stdout and "resumed after step 12" in killed.stdout
    assert undisturbed.stdout.splitlines()[-1].startswith("sum ")
    assert killed.stdout.splitlines()[-1] == undisturbed.stdout.splitlines()[-1]
