"""What sets up and builds: scripts/ and cmake/, on stand-ins for pip and for repositories."""

import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "scripts/requirements"

Result = subprocess.CompletedProcess[str]


def pins(name: str) -> list[Requirement]:
    return [Requirement(line) for line in (REQUIREMENTS / f"{name}.txt").read_text().splitlines() if line[0] != "#"]


# Left out: what twine only uploads with.
@pytest.mark.parametrize("name, beside, left_out", [
    ("python", [], set()), ("wheel", ["python"], {"keyring"}), ("pytest", ["python", "comparison"], set())])
def test_what_is_installed_without_its_dependencies_has_them(name: str, beside: list[str], left_out: set[str]) -> None:
    there = {canonicalize_name(pin.name) for file in [name, *beside] for pin in pins(file)}
    for pin in pins(name):
        try:
            needed = importlib.metadata.requires(pin.name) or []
        except importlib.metadata.PackageNotFoundError:  # wheel.txt is for `make wheel` alone
            assert name == "wheel"
            continue
        wanted = {canonicalize_name(needs.name) for needs in map(Requirement, needed)
                  if not needs.marker or needs.marker.evaluate({"extra": ""})}
        assert wanted - there <= left_out, pin


def test_a_package_has_one_version() -> None:
    versions: dict[tuple[str, str], set[str]] = {}
    for file in REQUIREMENTS.iterdir():
        for pin in pins(file.stem):
            versions.setdefault((canonicalize_name(pin.name), str(pin.marker)), set()).add(str(pin.specifier))
    assert {pin: found for pin, found in versions.items() if len(found) > 1} == {}


# Python and its pip: the commands of the latter go to pip.log; where there is a file `offline` it installs nothing.
PYTHON = """#!/bin/bash
case "$1 $2" in
  "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip") echo "$@" >>pip.log; [[ ! -e offline || $* != *requirements* ]] ;;
esac
"""


@pytest.fixture
def set_up(tmp_path: Path) -> Callable[..., Result]:
    """Runs setup.sh in tmp_path, where no package is missing."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "bin").mkdir()
    for name, text in {"python": PYTHON, "apt-get": "", "dpkg-query": "#!/bin/sh\nprintf installed\n"}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "PYTHON": f"{tmp_path}/bin/python"}

    def run(*options: str) -> Result:
        (tmp_path / "pip.log").write_text("")
        return subprocess.run([tmp_path / "scripts/setup.sh", *options], capture_output=True, text=True,
                              env=environment)

    return run


def test_what_is_installed_stays_when_more_is_cut_short(set_up: Callable[..., Result], tmp_path: Path) -> None:
    log = tmp_path / "pip.log"
    assert set_up().returncode == 0 and "requirements/libtorch.txt" in log.read_text()
    kept = tmp_path / ".venv/kept"
    kept.touch()
    (tmp_path / "offline").touch()
    assert set_up("--python").returncode != 0 and "requirements/python.txt" in log.read_text()
    assert set_up().returncode == 0 and log.read_text() == ""
    (tmp_path / "offline").unlink()
    assert set_up("--python").returncode == 0 and kept.exists()
    assert [line.split()[-1] for line in log.read_text().splitlines() if "--force-reinstall" in line] == [
        "scripts/requirements/python.txt"]
    assert set_up("--python").returncode == 0 and log.read_text() == ""


def unusable(tmp_path: Path) -> Path:
    (tmp_path / ".venv/bin").mkdir(parents=True, exist_ok=True)
    (tmp_path / ".venv/bin/python").unlink(missing_ok=True)
    (tmp_path / ".venv/bin/python").symlink_to("/bin/false")
    file = tmp_path / ".venv/file"
    file.touch()
    return file


def test_an_environment_of_somebody_else_stays(set_up: Callable[..., Result], tmp_path: Path) -> None:
    file = unusable(tmp_path)
    for _ in range(2):
        done = set_up()
        assert done.returncode == 1 and file.exists()
        assert done.stderr == ("[setup] .venv is not of this script, and has no Python 3.10 to 3.13 with pip: move it "
                               "away\n")


def test_its_own_environment_is_made_anew_where_python_has_gone(set_up: Callable[..., Result], tmp_path: Path) -> None:
    assert set_up().returncode == 0
    file = unusable(tmp_path)
    assert set_up().returncode == 0 and not file.exists()


def test_an_environment_that_was_begun_is_made_anew(set_up: Callable[..., Result], tmp_path: Path) -> None:
    file = unusable(tmp_path)
    (tmp_path / ".venv/stamp-begun").touch()
    assert set_up().returncode == 0 and not file.exists()
    assert set_up().stderr == ""


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True,
                          capture_output=True, text=True).stdout


@pytest.fixture
def commit_of(tmp_path: Path) -> Callable[[Path], str]:
    """What a build of the sources in a folder writes."""
    template, written = tmp_path / "template", tmp_path / "written"
    template.write_text("@COMMIT@")

    def build(source: Path) -> str:
        subprocess.run(["cmake", f"-DSOURCE={source}", f"-DTEMPLATE={template}", f"-DFILE={written}",
                        "-DWITHOUT_GIT=none", "-P", ROOT / "cmake/write_commit.cmake"], check=True)
        return written.read_text().strip()

    return build


def test_the_commit_is_a_hash_also_where_it_has_a_tag(commit_of: Callable[[Path], str], tmp_path: Path) -> None:
    clone = tmp_path / "a clone"
    shutil.copytree(ROOT / "scripts", clone / "scripts")
    assert commit_of(clone) == "none"
    git(clone, "init", "-q")
    git(clone, "add", ".")
    git(clone, "commit", "-q", "-m", "first")
    git(clone, "tag", "-a", "v0.1.0", "-m", "a release")
    commit = git(clone, "rev-parse", "HEAD")[:10]
    assert commit_of(clone) == commit
    (clone / "scripts/setup.sh").write_text("")
    assert commit_of(clone) == f"{commit}-dirty"


def test_a_copy_in_another_repository_has_not_its_commit(commit_of: Callable[[Path], str], tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "somebody else's")
    shutil.copytree(ROOT / "scripts", tmp_path / "prunex/scripts")
    assert commit_of(tmp_path / "prunex") == "none"
