"""Prints the summaries of finished runs side by side: demo_table.py RUN_DIR…"""

import json
import pathlib
import sys


def megabytes(count):
    return f"{count / 1e6:.1f} MB"


def fewer(summary):
    return f"{summary['inter_node_bytes_ddp'] / max(summary['inter_node_bytes'], 1):.0f}x"


ROWS = [
    ("accuracy", lambda s: f"{100 * s['accuracy']:.2f} %"),
    ("parameters", lambda s: f"{s['parameters_compact']:,}"),
    ("MACs per image", lambda s: f"{s['macs_compact']:,}"),
    ("sent between nodes", lambda s: megabytes(s["inter_node_bytes"])),
    ("the same steps with DDP", lambda s: megabytes(s["inter_node_bytes_ddp"])),
    ("fewer bytes than DDP", fewer),
    ("wall time", lambda s: f"{s['wall_seconds']:.0f} s"),
]


def table(runs):
    summaries = [json.loads((run / "summary.json").read_text()) for run in runs]
    yield ["", *(run.name for run in runs)]
    for name, cell in ROWS:
        yield [name, *(cell(summary) for summary in summaries)]


def main():
    for name, *cells in table([pathlib.Path(argument) for argument in sys.argv[1:]]):
        print(f"{name:<24}" + "".join(f"{cell:>16}" for cell in cells))


main()
