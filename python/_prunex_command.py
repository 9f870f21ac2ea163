"""Starts the command `prunex` of the package. A module of its own: importing the package would load torch first."""

import importlib.metadata
import importlib.util
import os
import runpy
import signal
import sys
from pathlib import Path

_PACKAGE = Path(__file__).parent / "prunex"


def _torch_libraries() -> str:
    """The folder of the libraries of the environment's torch, which must be the one that prunex was built for."""
    wanted = runpy.run_path(str(_PACKAGE / "_built_for.py"))["TORCH"]
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        sys.exit(f"prunex: torch is not installed here: pip install 'torch=={wanted}.*'")
    version = importlib.metadata.version("torch")
    if version.split(".")[:2] != wanted.split("."):
        sys.exit(f"prunex: built for torch {wanted}, got torch {version}: pip install 'torch=={wanted}.*'")
    return str(Path(found.origin).parent / "lib")


def main() -> None:
    """Becomes the command: its exit code and signals are those of this process."""
    libraries = _torch_libraries()
    if not (_PACKAGE.parent / "torch").exists():  # where its run path points
        path = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = f"{libraries}:{path}" if path else libraries
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    command = _PACKAGE / "bin" / "prunex"
    os.execv(command, [str(command), *sys.argv[1:]])
