"""train, evaluate, read_run and report: the command's work from Python."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torchvision

import prunex
from prunex import _runs

SMALL = {"dataset": "synthetic", "samples": 320, "model": "resnet8", "batch_size": 16, "local_steps": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    heard = []
    run = prunex.train(**SMALL, nodes=2, exchanges=5, run_dir=tmp_path_factory.mktemp("run") / "one",
                       on_exchange=heard.append)
    assert [event["exchange"] for event in heard] == [1, 2, 3, 4, 5]
    return run


class OwnNetwork(torch.nn.Module):
    """With a norm whose units go only where its statistics may change, and one weight under two names."""

    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 16, 4, stride=4)
        self.norm = torch.nn.LayerNorm(16)
        self.narrow, self.again = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
        self.again.weight = self.narrow.weight
        self.head = torch.nn.Linear(16, 10)

    def forward(self, x):
        x = self.norm(self.stem(x).mean((2, 3))).relu()
        return self.head(self.again(self.narrow(x).relu()))


@pytest.mark.parametrize("more", [[], ["--statistics"]])
def test_a_module_of_ones_own_becomes_what_the_command_made_of_its_program(tmp_path, more):
    x = torch.randn(2, 3, 32, 32)
    net, file = OwnNetwork().eval(), tmp_path / "net.pt2"
    torch.export.save(torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("n", min=1)},)), file)
    out = tmp_path / "pruned"
    words = ["prune", "--model", str(file), "--ratio", "0.5", *more, "--output", str(out), "--quiet"]
    subprocess.run([*_runs._command(), *words], check=True, stdout=subprocess.DEVNULL)
    own = OwnNetwork().eval()
    pruned = prunex.prune(own, x, cut=out)
    own.load_state_dict(torch.export.load(out / "model.pt2").state_dict)
    assert (pruned.parameters[1] < pruned.parameters[0]) == bool(more)
    assert torch.allclose(own(x), torch.export.load(out / "model.pt2").module()(x), atol=1e-6)
    assert json.loads((out / "structure.json").read_text()).get("statistics", False) == bool(more)


class Attention(torch.nn.Module):
    """Its code knows the size of a head."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (torch.nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        q, k, v = (layer(x).view(len(x), -1, 4, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return self.out(mixed.reshape(len(x), -1, mixed.shape[2] * 4))


def test_a_cut_that_the_code_does_not_follow_is_refused_with_what_helps(tmp_path):
    torch.export.save(torch.export.export(Attention().eval(), (torch.randn(2, 5, 16),)), tmp_path / "net.pt2")
    words = ["prune", "--model", str(tmp_path / "net.pt2"), "--ratio", "0.5", "--output", str(tmp_path / "small")]
    subprocess.run([*_runs._command(), *words, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    with pytest.raises(ValueError, match="the code of Attention does not follow.*wants a cut of whole `heads`"):
        prunex.prune(Attention(), torch.randn(2, 5, 16), cut=tmp_path / "small")


def test_a_cut_of_heads_wants_heads():
    x = torch.randn(2, 5, 16)
    program = torch.export.export(Attention().eval(), (x,))
    cut = prunex.prune(program, ratio=0.5, heads=True).cut
    with pytest.raises(ValueError, match="`cut`: .*; wanted `heads` and `statistics` as where it was made"):
        prunex.prune(program, cut=cut)
    assert prunex.prune(program, cut=cut, heads=True).cut.kept() == cut.kept()


def test_a_module_of_ones_own_becomes_the_run_s_product(tmp_path):
    made = lambda: torchvision.models.resnet18(num_classes=10)
    x = torch.randn(2, 3, 32, 32)
    file = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(made().eval(), (x,), dynamic_shapes=({0: torch.export.Dim("n", min=1)},)),
                      file)
    run = prunex.train(**{**SMALL, "samples": 64, "model": file}, exchanges=4, keep=0.5, run_dir=tmp_path / "run")
    own = made()
    prunex.prune(own, x, cut=run.directory)
    own.load_state_dict(run.weights())
    assert torch.allclose(own.eval()(x), run.program().module()(x), atol=1e-5)
    assert sum(p.numel() for p in own.parameters()) == run.summary["parameters_compact"]


def test_a_run_is_what_the_command_wrote(run):
    summary = json.loads((run.directory / "summary.json").read_text())
    assert run.summary == summary and run.accuracy == summary["accuracy_compact"]
    assert [entry["exchange"] for entry in run.metrics] == [1, 2, 3, 4, 5]
    assert run.structure and summary["nodes"] == 2
    assert sum(w.numel() for n, w in run.program().named_parameters()) == summary["parameters_compact"]
    assert run.program().module()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert set(run.weights()) >= {"fc.weight"}
    assert str(run.directory) in run._repr_html_()


def test_its_product_is_evaluated_and_reported(run, tmp_path):
    scored = prunex.evaluate(run.directory / "model.pt2", dataset="synthetic", samples=320)
    assert scored["accuracy"] == pytest.approx(run.accuracy)
    page = prunex.report(run.directory, output=tmp_path / "page.html")
    assert "<html" in page.read_text()[:200] and "resnet8" in page.read_text()


def test_outputs_that_are_no_numbers_have_no_score(tmp_path):
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10)).eval()
    torch.nn.init.constant_(net[1].bias, float("nan"))
    torch.export.save(torch.export.export(net, (torch.zeros(2, 3, 32, 32),),
                                          dynamic_shapes=({0: torch.export.Dim("n", min=1)},)), tmp_path / "net.pt2")
    with pytest.raises(RuntimeError, match="net.pt2: the loss on the test images is not a number"):
        prunex.evaluate(tmp_path / "net.pt2", dataset="synthetic", samples=320)


def test_progress_is_printed_and_logged(tmp_path, capsys, caplog):
    with caplog.at_level(logging.INFO, "prunex"):
        prunex.train(**SMALL, strategy="local_sgd", exchanges=2, run_dir=tmp_path / "a")
    printed = capsys.readouterr().out
    assert "exchange 2/2  loss" in printed and "exchange 2/2  loss" in caplog.text
    prunex.train(**SMALL, strategy="local_sgd", exchanges=1, run_dir=tmp_path / "b", quiet=True)
    assert capsys.readouterr().out == ""


def test_metrics_are_a_table(run):
    pytest.importorskip("pandas")
    assert list(run.frame.index) == [1, 2, 3, 4, 5]
    assert list(run.frame["loss"]) == [entry["loss"] for entry in run.metrics]


def test_a_table_wants_pandas(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'prunex\[pandas\]'"):
        run.frame


@pytest.mark.parametrize("options, message", [
    ({"payload": "int3"}, "`payload`: got 'int3', wanted one of fp32"),
    ({"local_step": 3}, "`local_step`"),
    ({"strategy": "ddp", "keep": 0.5}, "`keep`: "),
    ({"batch_size": 10**6}, "`batch_size`: got 1000000"),
])
def test_options_have_pythons_names_in_messages(options, message, tmp_path):
    with pytest.raises(ValueError) as error:
        prunex.train(**{**SMALL, "run_dir": tmp_path / "run", **options}, quiet=True)
    assert message in str(error.value) and "--" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_what_a_configuration_turns_on_may_be_turned_off(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('dataset = "synthetic"\nsamples = 320\nmodel = "resnet8"\nbatch-size = 16\ntensorboard = true\n')
    options = {"config": file, "exchanges": 1, "local_steps": 2, "strategy": "local_sgd", "quiet": True}
    run = prunex.train(**options, run_dir=tmp_path / "off", tensorboard=False, dgc=False)
    assert "tensorboard = false" in (run.directory / "config.toml").read_text()
    with pytest.raises(ValueError, match="`config`: .*none.toml: cannot be read"):
        prunex.train(config=tmp_path / "none.toml", tensorboard=False)


def test_a_run_that_fails_is_a_runtime_error(run, tmp_path):
    with pytest.raises(RuntimeError, match="the training loss is .*: try a lower `lr`"):
        prunex.train(**SMALL, exchanges=5, lr=1e9, run_dir=tmp_path / "run", quiet=True)
    with pytest.raises(ValueError, match="`run_dir` .*: is not empty"):
        prunex.train(**SMALL, exchanges=1, run_dir=run.directory, quiet=True)


def running_in(folder):
    """The processes whose command lines name it."""
    pids = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            if str(folder).encode() in file.read_bytes():
                pids.append(int(file.parent.name))
    return pids


def test_an_interrupt_ends_the_run_with_a_checkpoint(tmp_path):
    script = textwrap.dedent(f"""
        import prunex
        try:
            prunex.train(**{SMALL!r}, exchanges=100000, checkpoint_every=90000, run_dir={str(tmp_path / "run")!r})
        except KeyboardInterrupt:
            print("stopped", flush=True)
    """)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("exchange 1/")
        assert len(running_in(tmp_path)) > 1  # the script and the command
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=120)[0]
        assert running_in(tmp_path) == []
    finally:
        for pid in running_in(tmp_path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
    assert f"prunex.train(resume={str(tmp_path / 'run')!r}) goes on\nstopped\n" in said
    stopped = prunex.read_run(tmp_path / "run")
    assert stopped.summary == {} and stopped.metrics
    assert list((tmp_path / "run/checkpoint").glob("*/z.safetensors"))


def test_a_line_that_is_half_written_is_not_read(tmp_path):
    (tmp_path / "config.toml").write_text("")
    metrics = tmp_path / "metrics.jsonl"
    for text, exchanges in [('{"exchange": 1}\n{"exchange": 2}', [1, 2]), ('{"exchange": 1}\n{"exchange": 2, "lo', [1]),
                            ('{"exch', [])]:
        metrics.write_text(text)
        assert [entry["exchange"] for entry in prunex.read_run(tmp_path).metrics] == exchanges
    metrics.write_text('{"exch\n{"exchange": 2}\n')
    with pytest.raises(json.JSONDecodeError):
        prunex.read_run(tmp_path)


def test_no_run_is_said_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run directory"):
        prunex.read_run(tmp_path)
    with pytest.raises(ValueError, match="`directories`: got none"):
        prunex.report()


def test_what_is_no_run_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="`check`: prunex.train trains"):
        prunex.train(check=True)
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ValueError, match="`run_dir`: got none; under a launcher"):
        prunex.train(dataset="synthetic")


@pytest.mark.parametrize(("said", "means"), [
    (["prunex: warning: few exchanges", "[rank 1] prunex: --resume: got a"], "`resume`: got a"),
    (["prunex: --local-steps: got 0", "prunex: warning: no checkpoint"], "`local_steps`: got 0"),
    (["[rank 1] Killed"], "Killed"),
    ([], "")])
def test_an_error_is_what_a_rank_said_last_that_is_no_warning(said, means):
    assert str(_runs._failed(2, said)) == means


def test_what_a_run_says_is_shown_as_text(tmp_path):
    run = tmp_path / "a<b>"
    run.mkdir()
    (run / "config.toml").write_text("")
    (run / "summary.json").write_text(json.dumps({"strategy": "<img src=x>"}))
    shown = prunex.read_run(run)._repr_html_()
    assert "<img" not in shown and "&lt;img src=x&gt;" in shown and "a&lt;b&gt;" in shown
