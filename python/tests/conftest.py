"""What the tests share: ranks that a real torchrun starts."""

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def _unless_it_may_skip(report):
    """Where PRUNEX_NO_SKIP is set nothing is skipped but what needs a GPU."""
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped and "PRUNEX_NO_SKIP" in os.environ and "test_gpu.py" not in report.nodeid:
        report.outcome, report.longrepr = "failed", f"PRUNEX_NO_SKIP: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return _unless_it_may_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return _unless_it_may_skip((yield))


def free_port() -> int:
    for port in range(20000 + os.getpid() % 10000, 32768):  # from 32768 on the kernel may give it to others meanwhile
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


def torchrun_file(file: Path, ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--log-dir={os.devnull}",
               f"--nproc-per-node={ranks}", str(file), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})


def torchrun(ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return torchrun_file(HERE / "ranks.py", ranks, *arguments)


@functools.cache
def _all_on(ranks: int) -> subprocess.CompletedProcess[str]:
    return torchrun(ranks)


@pytest.fixture
def all_on():
    """All cases of ranks.py of so many ranks, under one torchrun."""
    return _all_on


@pytest.fixture
def passed(all_on):
    """Whether a case of ranks.py has."""

    def look(ranks: int, case: str) -> None:
        done = all_on(ranks)
        if f"passed {case}\n" not in done.stdout:
            pytest.fail(f"{case} on {ranks} ranks:\n{done.stdout}\n{done.stderr[-6000:]}")

    return look


@pytest.fixture(name="torchrun", scope="session")
def _torchrun():
    return torchrun


@pytest.fixture(name="torchrun_file")
def _torchrun_file():
    return torchrun_file


@pytest.fixture
def by_hand():
    """Ranks without a launcher, which would end the others when one has failed. `interrupt`: the rank that gets a
    SIGINT once it has printed a line; the others are killed when it has ended."""

    def start(ranks: int, *arguments: str, interrupt: int | None = None) -> list[subprocess.CompletedProcess[str]]:
        port = free_port()
        processes = [subprocess.Popen([sys.executable, str(HERE / "ranks.py"), *arguments], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      env={**os.environ, "OMP_NUM_THREADS": "1", "RANK": str(rank),
                                           "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                                           "MASTER_PORT": str(port)}) for rank in range(ranks)]
        try:
            if interrupt is not None:
                first = processes[interrupt].stdout.readline()
                processes[interrupt].send_signal(signal.SIGINT)
                out, err = processes[interrupt].communicate(timeout=120)
                return [subprocess.CompletedProcess(p.args, p.poll(), first + out if i == interrupt else "", err)
                        for i, p in enumerate(processes)]
            texts = [process.communicate(timeout=120) for process in processes]
            return [subprocess.CompletedProcess(p.args, p.returncode, *t) for p, t in zip(processes, texts)]
        finally:
            for process in processes:
                process.kill()
                process.wait()

    return start


@pytest.fixture(name="free_port")
def _free_port():
    return free_port()


@pytest.fixture
def command():
    """The command `prunex`; PRUNEX_COMMAND says where, as CTest does."""
    return os.environ.get("PRUNEX_COMMAND", "prunex")
