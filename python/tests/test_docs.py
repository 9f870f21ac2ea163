"""The Python in README.md, docs/python.md and the notebook runs as it stands there, on small data."""

import contextlib
import json
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

import prunex
from prunex import _runs
from training import small_network

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    return [block for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
            if "prunex" in block and all(word not in block for word in ("prunex.json", "zlib", "cuda"))]


ALL = [(page, number) for page in ("README.md", "docs/python.md") for number in range(len(blocks(page)))]


def write_cifar10(folder: Path) -> None:
    """Seventy images a file, in the binary layout."""
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        rows = torch.randint(256, (70, 3073), dtype=torch.uint8)
        rows[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(rows.numpy().tobytes())
    names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    (folder / "batches.meta.txt").write_text("\n".join(names) + "\n")


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    """What the texts take for granted."""
    monkeypatch.chdir(tmp_path)
    write_cifar10(tmp_path / "data/cifar-10-batches-bin")
    net = small_network()
    torch.manual_seed(0)
    batches = [(torch.randn(4, 3, 8, 8), torch.randint(5, (4,))) for _ in range(100)]
    torch.export.save(torch.export.export(small_network().eval(), (batches[0][0],)), "net.pt2")
    subprocess.run([*_runs._command(), "prune", "--model", "net.pt2", "--ratio", "0.5", "--output", "small", "--quiet"],
                   check=True)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield {"torch": torch, "prunex": prunex, "net": net, "loader": batches, "steps": 2000, "images": batches[0][0],
           "optimizer": torch.optim.SGD(net.parameters(), 0.05), "criterion": nn.CrossEntropyLoss(),
           "MyNetwork": small_network, "DistributedDataParallel": nn.parallel.DistributedDataParallel}
    dist.destroy_process_group()


@pytest.mark.parametrize("page, number", ALL, ids=[f"{page}-{number}" for page, number in ALL])
def test_a_block_runs(stand_ins, page, number):
    code = blocks(page)[number]
    if "frame" in code:
        pytest.importorskip("pandas")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(code, f"{page}, block {number}", "exec"), stand_ins)


def test_the_diff_is_the_example_that_stands_beside_it():
    page, example = (ROOT / "docs/python.md").read_text(), (ROOT / "examples/python/cifar10.py").read_text()
    added = re.findall(r"^\+(.*)", re.search(r"```diff\n(.*?)```", page, re.S)[1], re.M)
    assert len(added) == 4
    for line in added[:3]:
        assert line in example
    assert re.search(r"prunex\.DiLoCo\(net, optimizer, sync_every=50, payload=\"int2\", outer_lr=1, "
                     r"outer_momentum=0\.5", added[3]) and added[3].split("prunex.")[1].split(")")[0] in example


@pytest.mark.parametrize("method", ["ddp", "diloco", "hsadmm"])
def test_the_tutorials_loop_trains(examples, method, tmp_path):
    if method == "diloco":  # in either folder
        (tmp_path / "data").rename(tmp_path / "cifar-10-batches-bin")
        (tmp_path / "data").mkdir()
        (tmp_path / "cifar-10-batches-bin").rename(tmp_path / "data/cifar-10-batches-bin")
    said = examples("cifar10.py", "--method", method, "--batch-size", "4", "--epochs", "7")
    assert said["steps"] == 7 * 43
    assert said["parameters"] == 62006 if method != "hsadmm" else said["parameters"] < 20000
    assert said["sent_megabytes"] > 50 if method == "ddp" else said["sent_megabytes"] < 0.2


def test_the_language_model_trains(examples):
    said = examples("diloco_gpt.py", "--steps", "3", "--sync-every", "2")
    assert said["parameters"] > 800_000 and 0.4 < said["sent_megabytes"] < 0.5 and said["test_loss"] < 4.7


def test_the_language_model_goes_on_from_a_checkpoint(examples, tmp_path):
    folder = tmp_path / "checkpoints"
    arguments = ["diloco_gpt.py", "--steps", "20", "--sync-every", "1", "--batch", "2", "--checkpoints", str(folder)]
    whole = examples(*arguments)
    shutil.rmtree(*folder.glob("20-*"))
    assert whole["test_loss"] < 4.6 and examples(*arguments)["test_loss"] == whole["test_loss"]
    assert sorted(path.name.partition("-")[0] for path in folder.iterdir()) == ["10", "20"]
    assert examples(*arguments)["sent_megabytes"] == 0


@pytest.fixture
def examples(torchrun_file, tmp_path):
    write_cifar10(tmp_path / "data")

    def run(name: str, *arguments: str):
        data = ["--data-dir", str(tmp_path / "data")] if name == "cifar10.py" else []
        done = torchrun_file(ROOT / "examples/python" / name, 2, *arguments, *data)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "examples/prunex.ipynb").read_text())["cells"]
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(open(tmp_path / "said", "w")):
        for number, cell in enumerate(cells):
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    assert "accuracy" in (tmp_path / "said").read_text()
