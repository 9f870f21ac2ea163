"""The command's work from Python: runs on this machine or under a launcher's variables, what they wrote, their page."""

from __future__ import annotations

import contextlib
import html
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor
from torch.export import ExportedProgram

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]

    from prunex._options import TrainOptions

Value = str | int | float | bool | os.PathLike[str] | Sequence[str]

log = logging.getLogger("prunex")

_STARTER = "import _prunex_command; _prunex_command.main()"


def _command() -> list[str]:
    """The program: the package's own; in a build folder, which has none, what PRUNEX_COMMAND names."""
    if (Path(__file__).parent / "bin/prunex").exists():
        return [sys.executable, "-c", _STARTER]
    command = os.environ.get("PRUNEX_COMMAND", "prunex")
    if shutil.which(command) is None:
        raise FileNotFoundError(f"got no program {command}, wanted the command prunex on the PATH, or its name in "
                                "PRUNEX_COMMAND")
    return [command]


def _words(options: Mapping[str, object]) -> Iterator[str]:
    configuration = _configuration_of(options)
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is None:
            continue
        if value is True:
            yield flag
        elif value is False:
            if configuration.get(flag[2:]):  # else it is off, and may have no effect
                yield f"{flag}=false"
        elif isinstance(value, (list, tuple)):
            yield f"{flag}={','.join(str(item) for item in value)}"
        else:
            yield f"{flag}={os.fspath(value) if isinstance(value, os.PathLike) else value}"


def _configuration_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the file says that the command takes beside the options; of one that cannot be read the command says so."""
    try:
        if options.get("resume"):
            return tomllib.loads(Path(options["resume"], "config.toml").read_text())
        return tomllib.loads(Path(options["config"]).read_text()) if options.get("config") else {}
    except (OSError, TypeError, ValueError):
        return {}


def _failed(status: int, said: list[str]) -> Exception:
    """What the command's last words mean: options have Python's names in it."""
    lines = [re.sub(r"^\[rank \d+\] ", "", line) for line in said]  # which of the ranks tells is chance
    errors = [line for line in lines if line.startswith("prunex: ") and not line.startswith("prunex: warning: ")]
    text = (errors or lines or [""])[-1].removeprefix("prunex: ")
    text = re.sub(r"--([a-z][a-z0-9-]*)", lambda flag: f"`{flag[1].replace('-', '_')}`", text)
    if status == 2:
        return ValueError(text)
    return RuntimeError(text or f"prunex ended with status {status}")


def _run(words: list[str], hear: Callable[[str], None]) -> str:
    """Runs the command to its end and returns its standard output; `hear` gets the lines of its standard error. An
    interrupt is handed on, so that the command saves what it has; a second one kills it."""
    said: list[str] = []
    with tempfile.TemporaryFile("w+") as output:
        # in a session of its own, so that it hears of an interrupt once, and from here alone
        with subprocess.Popen([*_command(), *words], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE,
                              text=True, start_new_session=True) as process:
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    said.append(line.rstrip("\n"))
                    hear(said[-1])
                process.wait()
            except BaseException as error:
                process.send_signal(signal.SIGINT)
                try:
                    if isinstance(error, KeyboardInterrupt):  # until the next exchange, and the checkpoint after it
                        for line in process.stderr:
                            log.info(line.rstrip("\n").removeprefix("prunex: "))
                    else:
                        process.wait(60)
                except subprocess.TimeoutExpired:
                    pass
                finally:
                    process.kill()
                raise
        if process.returncode != 0:
            raise _failed(process.returncode, said)
        output.seek(0)
        return output.read()


@dataclass
class Run:
    """What a run wrote, and what came of it."""

    directory: Path
    summary: dict[str, Any] = field(repr=False)
    """summary.json; empty while the run goes on."""
    metrics: list[dict[str, Any]] = field(repr=False)
    """An entry for every exchange: loss, accuracy, keep, bytes, seconds, …"""
    structure: dict[str, Any] = field(repr=False)
    """structure.json: what was cut; empty if the run is not over."""

    @property
    def accuracy(self) -> float | None:
        """Of the product on the test images, 0 … 1."""
        return self.summary.get("accuracy_compact")

    def program(self) -> ExportedProgram:
        """model.pt2: the product as torch.export has it."""
        return torch.export.load(self.directory / "model.pt2")

    def weights(self) -> dict[str, Tensor]:
        """The product's parameters and buffers by name."""
        return dict(self.program().state_dict)

    @property
    def frame(self) -> pandas.DataFrame:
        """`metrics` as a table; wants pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("Run.frame: wants pandas: pip install 'prunex[pandas]'") from error
        return pandas.json_normalize(self.metrics).set_index("exchange") if self.metrics else pandas.DataFrame()

    def _repr_html_(self) -> str:
        rows = {"directory": self.directory}
        for name in ("strategy", "model", "dataset", "nodes", "ranks_per_node", "exchanges", "accuracy_compact",
                     "parameters_dense", "parameters_compact", "macs_dense", "macs_compact", "inter_node_bytes"):
            if name in self.summary:
                rows[name] = self.summary[name]
        cells = (f"<tr><th>{name}</th><td>{html.escape(str(value))}</td></tr>" for name, value in rows.items())
        return "<table>" + "".join(cells) + "</table>"


def read_run(directory: str | os.PathLike[str]) -> Run:
    """What a run has written so far; of one that is over, everything. FileNotFoundError if it is no run."""
    folder = Path(directory)
    if not (folder / "config.toml").exists():
        raise FileNotFoundError(f"{folder}: no run directory, it has no config.toml")

    def read(name: str) -> dict[str, Any]:
        path = folder / name
        values: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return values

    path = folder / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    *lines, last = text.split("\n")  # of a run that goes on the last one may be written half
    metrics = [json.loads(line) for line in lines]
    with contextlib.suppress(json.JSONDecodeError):
        metrics.append(json.loads(last))
    return Run(folder, read("summary.json"), metrics, read("structure.json"))


def _progress(event: dict[str, Any]) -> str:
    text = f"exchange {event['exchange']}/{event['exchanges']}  loss {event['loss']:.4f}"
    if event.get("accuracy") is not None:
        text += f"  accuracy {100 * event['accuracy']:.2f} %"
    if event.get("keep", 1) < 1:
        text += f"  keep {event['keep']:.2f}"
    left = event.get("seconds_left")
    return text if left is None else f"{text}  {left:.0f} s left"


def train(*, on_exchange: Callable[[dict[str, Any]], None] | None = None, quiet: bool = False,
          **options: Unpack[TrainOptions]) -> Run:
    """`prunex train`, with its options as keywords (docs/options.md): `train(dataset="cifar10", data_dir="data",
    nodes=2, payload="int2")`. Its ranks are processes on this machine, unless a launcher's variables say otherwise.

    Progress is printed, unless `quiet`, and logged (logger `prunex`, level INFO); on_exchange gets every exchange as a
    dictionary. An interrupt, as by the stop button of a notebook, ends the run after its next exchange with a
    checkpoint, and it is printed how `train(resume=directory)` goes on; a second interrupt ends it at once. ValueError
    for an option, RuntimeError for a run that failed.

    >>> run = prunex.train(dataset="synthetic", samples=200, model="resnet8", nodes=2, batch_size=10, local_steps=2,
    ...                    exchanges=5, quiet=True)
    >>> [entry["exchange"] for entry in run.metrics], run.summary["nodes"]
    ([1, 2, 3, 4, 5], 2)
    """
    for name in ("check", "help", "help_all"):
        if options.get(name):
            raise ValueError(f"`{name}`: prunex.train trains; wanted the command, prunex train --{name}")
    directory = options.get("run_dir") or options.get("resume")
    if directory is None and os.environ.get("RANK", "0") != "0":
        raise ValueError("`run_dir`: got none; under a launcher every rank wants it, to read the run")

    def hear(line: str) -> None:
        nonlocal directory
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            (log.warning if "warning" in line else log.info)(line.removeprefix("prunex: "))
            return
        if event["event"] == "start":
            directory = event["run_directory"]
        elif event["event"] == "exchange":
            log.info(_progress(event))
            if not quiet:
                print(_progress(event), flush=True)
            if on_exchange is not None:
                on_exchange(event)

    try:
        _run(["train", "--log=json", *_words(options)], hear)
    except KeyboardInterrupt:
        if directory is not None and Path(str(directory), "checkpoint").exists():
            print(f"prunex.train(resume={str(directory)!r}) goes on", flush=True)
        raise
    return read_run(os.fspath(directory))  # type: ignore[arg-type]


def evaluate(model: str | os.PathLike[str], **options: Value) -> dict[str, Any]:
    """`prunex eval`: accuracy, loss and more of a .pt2 on a test set, as a dictionary. Options as keywords."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "evaluation.json")
        _run(["eval", f"--model={os.fspath(model)}", f"--json={path}", *_words(options)], log.info)
        result: dict[str, Any] = json.loads(Path(path).read_text())
        return result


def report(*directories: str | os.PathLike[str], output: str | os.PathLike[str] = "report.html") -> Path:
    """`prunex report`: figures and a table of runs, in one HTML file; returns its path."""
    if not directories:
        raise ValueError("`directories`: got none, wanted run directories, comparisons, or folders of such")
    _run(["report", f"--output={os.fspath(output)}", *(os.fspath(d) for d in directories)], log.info)
    return Path(output)
