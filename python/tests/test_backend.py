"""Which torch the package is built with."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTHING_INSTALLED = ("-S", "-P")  # but what PYTHONPATH names


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "python/backend")
    monkeypatch.chdir(ROOT)
    import prunex_backend
    monkeypatch.setattr(prunex_backend, "_torch_of_target", lambda: prunex_backend._torch_of(*NOTHING_INSTALLED))
    return prunex_backend


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def installed(version: str) -> Path:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch/__init__.py").touch()
        (tmp_path / "torch-2.dist-info").mkdir()
        (tmp_path / "torch-2.dist-info/METADATA").write_text(
            f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return tmp_path / "torch"

    return installed


@pytest.mark.parametrize("hook", ["get_requires_for_build_wheel", "get_requires_for_build_editable"])
def test_pip_is_asked_for_torch_where_there_is_none(backend, hook: str) -> None:
    assert "torch==2.11.*" in getattr(backend, hook)()


def test_the_torch_of_the_environment_is_taken(backend, torch) -> None:
    folder = torch("2.11.3+cpu")
    assert not [r for r in backend.get_requires_for_build_wheel() if r.startswith("torch")]
    assert backend._with_torch(None) == {"cmake.define.TORCH_ROOT": str(folder)}


def test_one_that_is_named_comes_first(backend, torch) -> None:
    torch("2.11.0")
    named = {"cmake.define.TORCH_ROOT": "/mine"}
    assert not [r for r in backend.get_requires_for_build_wheel(named) if r.startswith("torch")]
    assert backend._with_torch(named) == named


@pytest.mark.parametrize("version", ["2.10.0", "2.12.0+cu130"])
def test_another_version_ends_the_build_in_one_line(backend, torch, version: str) -> None:
    folder = torch(version)
    with pytest.raises(SystemExit) as refused:
        backend.get_requires_for_build_wheel()
    assert str(refused.value) == (f"prunex: got torch {version} in {folder}, wanted torch==2.11.*: "
                                  "install that one first")


def test_jobs_are_bounded_by_cores_and_left_to_who_sets_them(backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CMAKE_BUILD_PARALLEL_LEVEL", raising=False)
    backend._bound_jobs()
    assert 1 <= int(os.environ["CMAKE_BUILD_PARALLEL_LEVEL"]) <= len(os.sched_getaffinity(0))
    monkeypatch.setenv("CMAKE_BUILD_PARALLEL_LEVEL", "77")
    backend._bound_jobs()
    assert os.environ["CMAKE_BUILD_PARALLEL_LEVEL"] == "77"
