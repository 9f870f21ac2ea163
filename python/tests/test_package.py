"""The package beside torch: its version, and the Gloo that libtorch_cpu.so brings along."""

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import prunex
from prunex import _built_for
from prunex._library import library

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("version", ["2.10.1", "2.12.0+cpu", "2.110.0", "3.11.0a0+git1234567"])
def test_another_torch_is_refused_in_one_line(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.delitem(sys.modules, "prunex._library")
    with pytest.raises(ImportError) as refused:
        importlib.import_module("prunex._library")
    assert f"built for torch {_built_for.TORCH}, this is torch {version}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_patch_release_or_another_build_of_the_same_torch_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", f"{_built_for.TORCH}.9+cpu")
    importlib.reload(sys.modules["prunex._library"])


def test_the_torch_of_the_compiler_is_the_one_that_pip_is_asked_for() -> None:
    assert library.torch_version.startswith(f"{_built_for.TORCH}.")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"torch=={_built_for.TORCH}.*" in project["dependencies"]


def test_the_version_is_that_of_the_library() -> None:
    header = (ROOT / "prunex/version.h").read_text()
    assert f'"{prunex.__version__}"' in header


def test_the_extension_needs_no_gloo_and_calls_none() -> None:
    dynamic = subprocess.run(["readelf", "--dynamic", "--dyn-syms", "--wide", library.__file__],
                             capture_output=True, text=True, check=True).stdout
    assert "libtorch_cpu.so" in dynamic
    assert re.findall(r".*gloo.*", dynamic) == []


def test_no_gloo_is_loaded_beside_that_of_torch() -> None:
    loaded = Path("/proc/self/maps").read_text()
    assert Path(library.__file__).name in loaded
    assert "libgloo" not in loaded
