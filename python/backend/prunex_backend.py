"""The build backend of pyproject.toml: scikit-build-core's, beside the torch that the environment has.

torch is large. Where pip builds, its isolated environment does not show the one it installs into, so that interpreter
is asked; only where it has no torch, torch is a requirement of the build."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from scikit_build_core import build as _skbuild
from scikit_build_core.build import (build_sdist, get_requires_for_build_sdist, prepare_metadata_for_build_editable,
                                     prepare_metadata_for_build_wheel)

if sys.version_info < (3, 11):
    raise SystemExit(f"prunex: got Python {sys.version_info.major}.{sys.version_info.minor}, wanted 3.11 or newer")

import tomllib  # noqa: E402

__all__ = ["build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable",
           "get_requires_for_build_sdist", "get_requires_for_build_wheel", "prepare_metadata_for_build_editable",
           "prepare_metadata_for_build_wheel"]

Settings = dict[str, list[str] | str] | None

_TORCH_ROOT = "cmake.define.TORCH_ROOT"
_FIND_TORCH = """
import importlib.metadata, importlib.util, json
found = importlib.util.find_spec("torch")
if found and found.origin:
    print(json.dumps([found.submodule_search_locations[0], importlib.metadata.version("torch")]))
"""


def _wanted() -> str:
    """torch==2.11.*, as pyproject.toml has it."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    return next(str(requirement) for requirement in project["dependencies"] if requirement.startswith("torch=="))


def _torch_of(*flags: str) -> str | None:
    """The folder of this interpreter's torch, started with these flags. One of another version ends the build."""
    asked = subprocess.run([sys.executable, *flags, "-c", _FIND_TORCH], capture_output=True, text=True, check=True)
    if not asked.stdout:
        return None
    folder, version = (str(word) for word in json.loads(asked.stdout))
    if version.split(".")[:2] != _wanted().removeprefix("torch==").split(".")[:2]:
        raise SystemExit(f"prunex: got torch {version} in {folder}, wanted {_wanted()}: install that one first")
    return folder


def _torch_of_target() -> str | None:
    """Of the environment that is installed into: without PYTHONPATH, by which pip isolates."""
    return _torch_of("-E", "-P")


def _names_torch(settings: Settings) -> bool:
    return _TORCH_ROOT in (settings or {})


def _requirements(of_backend: Callable[[Settings], list[str]], settings: Settings) -> list[str]:
    known = _names_torch(settings) or _torch_of_target() is not None
    return of_backend(settings) + ([] if known else [_wanted()])


def _with_torch(settings: Settings) -> Settings:
    root = None if _names_torch(settings) else _torch_of_target() or _torch_of("-P")
    return {**(settings or {}), _TORCH_ROOT: root} if root else settings


def _bound_jobs() -> None:
    """As the Makefile: LibTorch's headers want about 1.5 GB per compiler."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    by_memory = int(fields["MemAvailable"].split()[0]) // 1_500_000
    jobs = max(1, min(len(os.sched_getaffinity(0)), by_memory))
    os.environ.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(jobs))


# The hooks, with the parameters that PEP 517 and 660 name.


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return _requirements(_skbuild.get_requires_for_build_wheel, config_settings)


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return _requirements(_skbuild.get_requires_for_build_editable, config_settings)


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    _bound_jobs()
    return _skbuild.build_wheel(wheel_directory, _with_torch(config_settings), metadata_directory)


def build_editable(wheel_directory: str, config_settings: Settings = None,
                   metadata_directory: str | None = None) -> str:
    _bound_jobs()
    return _skbuild.build_editable(wheel_directory, _with_torch(config_settings), metadata_directory)
