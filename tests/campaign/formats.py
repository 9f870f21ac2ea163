"""The kinds of files that prunex reads: how they are made, who reads them, and how their structure is changed."""
import dataclasses
import io
import json
import logging
import pathlib
import re
import struct
import subprocess
import warnings
import zipfile
import zlib

LAYER = "layer1.0.conv1"
DEEP, RAW = "@deep@", "@raw@"
NUMBERS = [-1, 0, 1, 2, 3, 0.5, -0.5, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 1e300, float("nan"),
           float("inf"), -float("inf"), RAW + "1e999", RAW + "-0", RAW + "1" * 400]
VALUES = [None, True, False, "", "x", "x" * 100_000, "\u0000", "\ud7ff\n\t\"\\'", "../../x", "/dev/full", [], {}, [[]],
          {"": {}}, [0] * 10_000, DEEP]


@dataclasses.dataclass
class Kind:
    name: str
    files: list  # those that are damaged
    commands: list
    steps: list  # what makes the folder: words for prunex, or functions of the folder
    checked: bool = False  # a changed bit of what is read must be noticed

    def make(self, folder, prunex):
        folder.mkdir()
        for step in self.steps:
            if callable(step):
                step(folder)
            else:
                subprocess.run([prunex, *step], cwd=folder, check=True, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)

    def names(self, file):
        """What an error must hold: the file, or the run's folder that was named; of a configuration, the option."""
        words = [file, *[str(folder) for folder in pathlib.Path(file).parents if str(folder) != "."]]
        if self.name == "compare.json":
            words.append("report: .")
        option = "|--[a-z-]+: got " if file.endswith("config.toml") else ""
        return re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words) + option)

    def writes(self, words):
        """What a command may write when it succeeds."""
        named = [words[i + 1] for i, word in enumerate(words[:-1]) if word in ("--output", "--json", "--run-dir",
                                                                                "--resume")]
        return [*named, "runs"] if words[0] in ("train", "compare") else named

    def products(self, words):
        return {"graph": ["groups.json"], "predict": ["out.safetensors"], "prune": ["small/model.safetensors"],
                "train": ["new/model.safetensors", "run/model.safetensors"]}.get(words[0], [])


# -- changes of structure

def places(tree, path=()):
    """Of everything below a tree of lists and dictionaries."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(items):
        yield path + (key,)
        yield from places(value, path + (key,))


def change_tree(tree, draw):
    """One change: returns the tree and what was done."""
    all_places = list(places(tree))
    if not all_places:
        return draw.choice(NUMBERS + VALUES), "replaced"
    *path, key = draw.choice(all_places)
    parent = tree
    for step in path:
        parent = parent[step]
    way = draw.choice(["number", "number", "value", "delete", "duplicate", "swap"])
    keys = list(parent) if isinstance(parent, dict) else range(len(parent))
    other = draw.choice(list(keys))
    if way == "number":
        parent[key] = draw.choice(NUMBERS)
    elif way == "value":
        parent[key] = draw.choice(VALUES)
    elif way == "delete":
        del parent[key]
    elif way == "swap":
        parent[key], parent[other] = parent[other], parent[key]
    elif isinstance(parent, dict):
        parent[draw.choice([f"{key}2", "", "__metadata__"])] = parent[key]
    else:
        parent.insert(other, parent[key])
    return tree, f"{way} {'.'.join(map(str, [*path, key]))}"


def to_json(tree):
    text = re.sub(rf'"{RAW}([^"]*)"', r"\1", json.dumps(tree))
    return text.replace(f'"{DEEP}"', "[" * 20_000 + "]" * 20_000).encode()


def change_json(text, draw):
    tree, whats = json.loads(text), []
    for _ in range(draw.choice([1, 1, 2, 3])):
        tree, what = change_tree(tree, draw)
        whats.append(what)
    return to_json(tree), "; ".join(whats)


def change_lines(text, draw, change_one):
    """One of: a line removed, repeated, moved, cut in two, changed by change_one."""
    lines = text.split(b"\n")
    i, j = draw.randrange(len(lines)), draw.randrange(len(lines))
    way = draw.choice(["delete", "duplicate", "swap", "cut", "change", "change", "change"])
    if way == "delete":
        del lines[i]
    elif way == "duplicate":
        lines.insert(j, lines[i])
    elif way == "swap":
        lines[i], lines[j] = lines[j], lines[i]
    elif way == "cut":
        lines[i] = lines[i][: draw.randrange(len(lines[i]) + 1)] + b"\n" + lines[i][-3:]
    elif lines[i]:
        lines[i], what = change_one(lines[i], draw)
        way = f"{way}: {what}"
    return b"\n".join(lines), f"line {i + 1}: {way}"


def change_setting(line, draw):
    """NAME = VALUE with another value or another name."""
    hostile = [str(n).replace(RAW, "") for n in NUMBERS]
    hostile += ['""', '"x"', "'" + "x" * 100_000 + "'", '"\\u0000"', "[" * 20_000, "[]", "{}", "{a=1}", "true",
                "''''''", '"""\n"""', "1979-05-27T07:32:00Z", "0xffffffffffffffff", '["a", 1]', "# x", '"\\"', "\xff",
                "", '"../x"', '"/dev/full"', '"/"', '"/proc/self/mem"']
    name, sign, value = line.partition(b"=")
    way = draw.choice(["value", "value", "value", "name", "sign", "table"])
    if way == "value" and sign:
        value = draw.choice(hostile).encode("latin1")
        return name + b"= " + value, f"{name.decode('latin1')}= {value[:40]!r}"
    if way == "name":
        return draw.choice([b"", b"a.b", b'""', b"x" * 100_000, b"\xff", b"[a]\nb"]) + b" =" + value, "name"
    if way == "sign":
        return name + draw.choice([b"", b"==", b":", b"= =", b"\0"]) + value, "sign"
    return draw.choice([b"[", b"[[", b"[[x]]\n", b"[x]\n", b"]"]) + line, "table"


def change_bytes(content, draw):
    """A piece removed, repeated, moved or overwritten."""
    place, length = draw.randrange(len(content)), draw.choice([1, 2, 7, 100, 3072, 3073, 9000])
    piece, to = content[place : place + length], draw.randrange(len(content))
    way = draw.choice(["delete", "duplicate", "move", "fill"])
    if way == "delete":
        changed = content[:place] + content[place + length :]
    elif way == "duplicate":
        changed = content[:to] + piece + content[to:]
    elif way == "move":
        rest = content[:place] + content[place + length :]
        changed = rest[:to] + piece + rest[to:]
    else:
        changed = content[:place] + bytes([draw.choice([0, 1, 127, 128, 255])]) * len(piece) + content[place + length :]
    return changed, f"{way} {length} bytes at {place}"


# -- safetensors

def read_safetensors(content):
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def with_header(header, data):
    return struct.pack("<Q", len(header)) + header + data


def with_checksums(header, data):
    """The header with checksums that fit, as docs/design.md defines them."""
    metadata, sums = header.get("__metadata__", {}), {}
    for name, entry in header.items():
        if name != "__metadata__":
            shape = ",".join(map(str, entry["shape"]))
            begin, end = entry["data_offsets"]
            line = f"{name} {entry['dtype']} [{shape}]\n".encode()
            sums[name] = f"{zlib.crc32(line + data[begin:end]):08x}"
    rest = {key: value for key, value in metadata.items() if key != "prunex.crc32"}
    lines = "".join(f"{key}={rest[key]}\n" for key in sorted(rest)).encode()
    sums["__metadata__"] = f"{zlib.crc32(lines):08x}"
    return header | {"__metadata__": rest | {"prunex.crc32": json.dumps(sums)}}


def change_tensors(content, draw):
    """Header and data of a file that is as consistent as it can be, checksums included."""
    header, data = read_safetensors(content)
    names = [name for name in header if name != "__metadata__"]
    name = draw.choice(names)
    way = draw.choice(["header", "header", "rename", "drop", "flat", "shape", "type", "values", "metadata", "length"])
    if way == "header":
        without = {key: value for key, value in header.items() if key != "__metadata__" or draw.random() < 0.3}
        changed, what = change_json(json.dumps(without), draw)
        return with_header(changed, data), what
    if way == "length":
        return struct.pack("<Q", draw.choice([0, 1, 2**31, 2**62, 2**63, 2**64 - 1, len(content)])) + content[8:], way
    if way == "metadata":
        metadata, what = change_tree(header.get("__metadata__", {}), draw)
        header["__metadata__"] = metadata
        return with_header(to_json(header), data), what
    entry = header[name]
    begin, end = entry["data_offsets"]
    if way == "rename":
        header[draw.choice(["x", "", name + ".x", "input", "images"])] = header.pop(name)
    elif way == "drop" and len(names) > 1:
        header.pop(name)
        data = data[:begin] + data[end:]
        for other in header.values():
            if other.get("data_offsets", [0])[0] >= end:
                other["data_offsets"] = [place - (end - begin) for place in other["data_offsets"]]
    elif way == "flat":
        entry["shape"] = draw.choice([[], [1], [-1]]) if end - begin == 4 else [max(sum(entry["shape"]), 1)]
    elif way == "shape" and entry["shape"]:
        entry["shape"] = draw.choice([entry["shape"][::-1], entry["shape"] + [1], [1] + entry["shape"], [0]])
    elif way == "type":
        entry["dtype"] = draw.choice({"F32": ["I32", "U32"], "I64": ["F64", "U64"]}.get(entry["dtype"], ["BOOL", "I8"]))
    elif way == "values":
        pattern = draw.choice([b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\x7f\x7f",
                               b"\0\0\0\x80"])
        data = data[:begin] + (pattern * ((end - begin) // 4 + 1))[: end - begin] + data[end:]
    try:
        header = with_checksums(header, data)
    except (TypeError, ValueError, KeyError):
        pass
    return with_header(to_json(header), data), f"{way} {name}"


# -- .pt2

def change_program(content, draw):
    """A record of the archive changed, its checksum with it."""
    source = zipfile.ZipFile(io.BytesIO(content))
    records = [(info, source.read(info)) for info in source.infolist()]
    documents = [i for i, (info, _) in enumerate(records) if info.filename.endswith(".json")]
    models = [i for i in documents if records[i][0].filename.endswith("models/model.json")]
    i = draw.choice(models + models + documents + [draw.randrange(len(records))])
    info, old = records[i]
    way = draw.choice(["delete", "twice", "rename", "bytes"] + ["document"] * 12) if i in documents else draw.choice(
        ["delete", "twice", "rename", "bytes", "empty"])
    what = ""
    if way == "delete":
        del records[i]
    elif way == "twice":
        records.append((info, old))
    elif way == "rename":
        info.filename = draw.choice([info.filename + "x", "x", "../../x", "/x", info.filename.upper(), "a" * 60_000])
    elif way == "document":
        new, what = change_json(old, draw)
        records[i] = (info, new)
    elif way == "empty" or not old:
        records[i] = (info, b"")
    else:
        records[i] = (info, change_bytes(old, draw)[0])
    packed = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(packed, "w") as archive:  # of a name that is twice
        for info, data in records:
            archive.writestr(zipfile.ZipInfo(info.filename), data)
    return packed.getvalue(), f"{way} {info.filename[:60]} {what}"


def mutate(file, content, draw):
    """What was done, and the changed bytes."""
    if file.suffix == ".pt2":
        changed, what = change_program(content, draw)
    elif file.suffix == ".safetensors":
        changed, what = change_tensors(content, draw)
    elif file.suffix == ".json":
        changed, what = change_json(content, draw)
    elif file.suffix == ".jsonl":
        changed, what = change_lines(content, draw, change_json)
    elif file.suffix in (".toml", ".txt"):
        changed, what = change_lines(content, draw, change_setting)
    else:
        changed, what = change_bytes(content, draw)
    return what, changed


# -- the kinds

def export_network(folder):
    import torch
    torch.manual_seed(0)
    logging.disable(logging.WARNING)  # of the export, about packages that it does not need
    n = torch.nn
    net = n.Sequential(n.Conv2d(3, 6, 3), n.BatchNorm2d(6), n.ReLU(), n.Conv2d(6, 8, 3, 2), n.BatchNorm2d(8), n.ReLU(),
                       n.AdaptiveAvgPool2d(1), n.Flatten(), n.Linear(8, 10))
    batch = {0: torch.export.Dim("batch")}
    torch.export.save(torch.export.export(net, (torch.randn(2, 3, 32, 32),), dynamic_shapes=(batch,)),
                      folder / "net.pt2")


def save(path, **tensors):
    """A file as strangers write it, without checksums: (type, shape, bytes) by name."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    path.write_bytes(with_header(json.dumps(header).encode(), data))


def pixels(count):
    import random
    return random.Random(count).randbytes(count * 3072)


def write_images(folder):
    for name, count in (("train", 40), ("test", 20)):
        save(folder / f"{name}.safetensors", images=("U8", [count, 3, 32, 32], pixels(count)),
             labels=("I64", [count], b"".join(struct.pack("<q", i % 4) for i in range(count))))


def write_input(folder):
    save(folder / "input.safetensors", input=("U8", [2, 3, 32, 32], pixels(2)))


def write_cifar(folder):
    data = folder / "data" / "cifar-10-batches-bin"
    data.mkdir(parents=True)
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        data.joinpath(name).write_bytes(b"".join(bytes([i]) + pixels(10)[3072 * i : 3072 * (i + 1)] for i in range(10)))
    data.joinpath("batches.meta.txt").write_text("".join(f"kind {i}\n" for i in range(10)))


def interrupt(folder):
    """As if the run had ended after the checkpoint of its second exchange."""
    for name in ("model.pt2", "model.safetensors", "structure.json", "summary.json", "trace.json"):
        (folder / "run" / name).unlink(missing_ok=True)
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "run" / "metrics.jsonl").write_text("".join(lines[:3]))
    import shutil
    shutil.rmtree(folder / "run" / "checkpoint" / "3")


def write_record(folder):
    run = {"name": "a", "seed": 0, "directory": "a/0", "state": "done", "options": {"strategy": '"ddp"'}}
    gone = run | {"name": "b", "directory": "b/0", "summary": json.loads((folder / "a/0/summary.json").read_text())}
    record = {"command": "prunex compare plan.toml", "pilots": [{"name": "a", "rate": 0.1, "summary": {
        "validation_accuracy": 0.5}}], "timings": [], "runs": [run, gone]}
    (folder / "compare.json").write_text(json.dumps(record))
    (folder / "verify.json").write_text(json.dumps([{"name": "a", "mbit": 100, "computed_seconds": 2,
                                                     "measured_seconds": 3, "seed": 0}]))


def write_plan(folder):
    (folder / "plan.toml").write_text(
        '# two runs\nseeds = [0, 1]\n\n[common]\nmodel = "resnet8"\nsamples = 64\nbatch-size = 16\nepochs = 1.5\n'
        'nodes = 2\n\n[pilot]\nepochs = 1\nseed = 1000\nvalidation = 16\n\n[[run]]\nname = "ddp"\n'
        'strategy = "ddp"\nrates = [0.1, 0.05]\n\n[[run]]\nname = "masks"\nkeep = 0.5\nlr = 0.05\n')


def kinds(train):
    """Of all files; `train` starts a run of moments in the folder `new`."""
    network = ["train", "--model", "resnet8", "--width", "0.25", *train[1:-1]]
    small = ["--samples", "64"]
    on_files = [word for word in train if word not in small]

    def programs(name, *more):
        return [["graph", "--model", name, "--json", "groups.json"], ["eval", "--model", name, *small],
                ["predict", "--model", name, "--input", "input.safetensors", "--output", "out.safetensors", *more],
                ["prune", "--model", name, "--ratio", "0.5", "--output", "small"], [*train, "--model", name]]

    run = [*network, "run", "--exchanges", "3", "--eval-every", "1", "--trace", "--checkpoint-every", "1"]
    weights = ["--model", "resnet8", "--width", "0.25", "--weights", "run/model.safetensors"]
    whole = [*network, "run", "--strategy", "local_sgd"]
    predict = ["predict", "--input", "input.safetensors", "--output", "out.safetensors"]
    resume, report = ["train", "--resume", "run"], ["report", "run", "--output", "page.html", "--json", "page.json"]
    images = ["--dataset", "train.safetensors", "--test", "test.safetensors"]
    small_net = ["--model", "resnet8", "--width", "0.25"]
    cifar = ["--dataset", "cifar10", "--data-dir", "data"]
    compare = ["compare", "plan.toml", "--output", "runs", "--dry-run"]
    state = [f"run/checkpoint/2/{name}-0.safetensors".replace("z-0", "z") for name in ("rank", "node", "z")]
    return [
        Kind("prunex.pt2", ["run/model.pt2"], programs("run/model.pt2"), [write_input, [*network, "run"]], True),
        Kind("export.pt2", ["net.pt2"], programs("net.pt2", "--mean", "0.5,0.5,0.5", "--std", "1,1,1"),
             [write_input, export_network], True),
        Kind("model.safetensors", ["run/model.safetensors"],
             [[*predict, *weights], [*train, *weights], ["prune", *weights, "--ratio", "0.5", "--output", "small"]],
             [write_input, whole], True),
        Kind("input.safetensors", ["input.safetensors"], [[*predict, "--model", "run/model.pt2"]],
             [write_input, [*network, "run"]]),
        Kind("images.safetensors", ["train.safetensors", "test.safetensors"], [[*on_files, *small_net, *images]],
             [write_images]),
        Kind("checkpoint", state, [resume], [run, interrupt], True),
        Kind("metrics.jsonl", ["run/metrics.jsonl"], [report, resume], [run, interrupt]),
        Kind("summary.json", ["run/summary.json"], [report, resume], [run]),
        Kind("config.toml", ["run/config.toml"], [report, resume, ["train", "--config", "run/config.toml", "--run-dir",
                                                                   "new"]], [run, interrupt]),
        Kind("structure.json", ["run/structure.json"], [report], [run]),
        Kind("trace.json", ["run/trace.json"], [report], [run]),
        Kind("compare.json", ["compare.json", "verify.json"], [["report", ".", "--output", "page.html"]],
             [[*network, "a/0"], write_record]),
        Kind("plan.toml", ["plan.toml"], [compare], [write_plan]),
        Kind("cifar", ["data/cifar-10-batches-bin/data_batch_2.bin", "data/cifar-10-batches-bin/test_batch.bin",
                       "data/cifar-10-batches-bin/batches.meta.txt"], [[*on_files, *small_net, *cifar]], [write_cifar]),
    ]
