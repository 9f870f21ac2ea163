"""Types, stubs and the examples in docstrings."""

import doctest
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import prunex

PACKAGE = Path(prunex.__file__).parent

# What stubtest takes amiss of every extension that nanobind makes.
_OF_NANOBIND = re.compile(r"is a disjoint base at runtime|metaclass differs|is not a function|does not have \*args|"
                          r"stub is a staticmethod|_runs.pandas is not present")


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=PACKAGE.parent,
                          env={**os.environ, "MYPYPATH": str(PACKAGE.parent), "MYPY_CACHE_DIR": os.devnull})
    return done.stdout + done.stderr


def test_the_package_is_typed() -> None:
    pytest.importorskip("mypy")
    assert "Success: no issues found" in (said := run("mypy", "--strict", "-p", "prunex")), said


def test_the_stub_says_what_the_extension_has(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    run("nanobind.stubgen", "-q", "-m", "prunex._prunex", "-o", str(tmp_path / "made.pyi"))
    assert (PACKAGE / "_prunex.pyi").read_text() == (tmp_path / "made.pyi").read_text()
    said = run("mypy.stubtest", "prunex").splitlines()
    assert said[-1].startswith(("Found ", "Success: ")), said
    assert [line for line in said if line.startswith("error: ") and not _OF_NANOBIND.search(line)] == []


def test_a_checker_knows_the_options(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    loop = tmp_path / "loop.py"
    loop.write_text("import prunex, torch\n"
                    "from torch import nn\n"
                    "net = nn.Linear(2, 2)\n"
                    "sgd = torch.optim.SGD(net.parameters())\n"
                    "prunex.train(payload='int2', ranks_per_node=[2, 1], quiet=True, lr='auto')\n"
                    "prunex.DiLoCo(net, sgd, payload='int2', outer_lr=1, overlap=2)\n"
                    "prunex.train(payload='int3')\n"
                    "prunex.train(epoch=3)\n"
                    "prunex.DiLoCo(net, sgd, powersgd_rank=2)\n")
    said = run("mypy", str(loop))
    assert [int(line.split(":")[1]) for line in said.splitlines() if ": error:" in line] == [7, 8, 9], said


@pytest.mark.parametrize("name", [name for name in prunex.__all__ if name != "__version__"])
def test_every_name_is_explained(name: str) -> None:
    assert len(inspect.getdoc(getattr(prunex, name)) or "") > 20


@pytest.mark.parametrize("name", ["DiLoCo", "HSADMM", "LocalSGD", "comm_hook", "groups", "prune", "sparsify", "train"])
def test_its_example_is_true(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.DocTestFinder(recurse=False).find(getattr(prunex, name), name,
                                                      globs={"torch": torch, "nn": torch.nn, "prunex": prunex})
    assert found[0].examples
    torch.manual_seed(0)
    said: list[str] = []
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found[0], out=said.append).failed == 0, "".join(said)
