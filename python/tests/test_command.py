"""How the package starts its command, with a script in the command's place."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "_prunex_command.py"


class Installed:
    """Folders as pip makes them: one with the package, one with torch."""

    def __init__(self, folder: Path, torch: Path, version: str = "2.11.0+cpu") -> None:
        self.folder, self.torch = folder, torch
        (folder / "prunex/bin").mkdir(parents=True)
        shutil.copy(SOURCE, folder)
        (folder / "prunex/__init__.py").write_text("raise AssertionError('the package is imported')\n")
        (folder / "prunex/_built_for.py").write_text('TORCH = "2.11"\n')
        (torch / "torch/lib").mkdir(parents=True)
        (torch / "torch/__init__.py").write_text("raise AssertionError('torch is imported')\n")
        (torch / "torch-2.dist-info").mkdir()
        (torch / "torch-2.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")

    def start(self, command: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        program = self.folder / "prunex/bin/prunex"
        program.write_text(f"#!/bin/bash\n{command}\n")
        program.chmod(0o755)
        paths = {"PYTHONPATH": f"{self.folder}:{self.torch}", "PATH": os.environ["PATH"]}
        starter = [sys.executable, "-S", "-c", "import _prunex_command; _prunex_command.main()"]
        return subprocess.run([*starter, *arguments], env={**paths, **environment}, capture_output=True, text=True,
                              cwd=self.folder)


@pytest.fixture
def together(tmp_path: Path) -> Installed:
    return Installed(tmp_path / "site", tmp_path / "site")


def test_arguments_and_the_exit_code_are_the_commands(together: Installed) -> None:
    ran = together.start('printf "%s|" "$@"; exit 37', "train", "--run-dir", "two words", "")
    assert ran.stdout == "train|--run-dir|two words||"
    assert (ran.returncode, ran.stderr) == (37, "")


def test_so_is_the_signal_that_ends_it(together: Installed) -> None:
    assert together.start("kill -TERM $$").returncode == -signal.SIGTERM


def test_signals_that_python_ignores_are_as_they_were(together: Installed) -> None:
    ignored = int(together.start("awk '/SigIgn/ { print $2 }' /proc/self/status").stdout, 16)
    assert ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)) == 0


def test_torch_beside_the_package_is_found_by_the_commands_own_path(together: Installed) -> None:
    assert together.start('echo "$LD_LIBRARY_PATH"', LD_LIBRARY_PATH="/mine").stdout == "/mine\n"


def test_torch_in_another_folder_comes_first(tmp_path: Path) -> None:
    apart = Installed(tmp_path / "site", tmp_path / "other")
    libraries = tmp_path / "other/torch/lib"
    assert apart.start('echo "$LD_LIBRARY_PATH"').stdout == f"{libraries}\n"
    assert apart.start('echo "$LD_LIBRARY_PATH"', LD_LIBRARY_PATH="/mine").stdout == f"{libraries}:/mine\n"


def test_another_torch_is_refused_in_one_line(tmp_path: Path) -> None:
    ran = Installed(tmp_path / "site", tmp_path / "site", "2.12.0").start("echo started")
    assert ran.stderr == "prunex: built for torch 2.11, got torch 2.12.0: pip install 'torch==2.11.*'\n"
    assert (ran.returncode, ran.stdout) == (1, "")


def test_no_torch_is_one_line_too(together: Installed) -> None:
    shutil.rmtree(together.torch / "torch")
    ran = together.start("echo started")
    assert ran.stderr == "prunex: torch is not installed here: pip install 'torch==2.11.*'\n"
    assert (ran.returncode, ran.stdout) == (1, "")
