"""make_cases.py [NAME...]: writes cases/NAME.pt2, each a small network as torch.export makes it in training form, and
cases.json with what it answers in eval mode. Run with PyTorch 2.11; the files are committed."""
import io
import json
import os
import sys
import zipfile

import torch

import axis_cases
import convolution_cases
import sequence_cases
import shape_cases
from layers import CASES

FOLDER = os.path.dirname(os.path.abspath(__file__))
BATCH = torch.export.Dim("batch")


def export(network, inputs):
    shapes = (tuple({0: BATCH} for _ in inputs),)
    program = torch.export.export(network.train(), inputs, dynamic_shapes=shapes)
    for node in program.graph.nodes:
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node"):
            node.meta.pop(key, None)
    return program


def save(program, path):
    """Compressed, with the time of day left out: small, and the same on every run."""
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    with zipfile.ZipFile(buffer) as stored, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as small:
        for entry in stored.infolist():
            small.writestr(zipfile.ZipInfo(entry.filename), stored.read(entry), zipfile.ZIP_DEFLATED)


def answers(network, inputs):
    with torch.no_grad():
        outputs = network.eval()(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [[round(number, 6) for number in output.flatten().tolist()] for output in outputs]


def main(names):
    os.makedirs(os.path.join(FOLDER, "cases"), exist_ok=True)
    expected = {}
    for name in names or CASES:
        network, inputs = CASES[name]
        torch.manual_seed(0)
        for weight in network.parameters():
            weight.data.uniform_(-0.7, 0.7)
        expected[name] = answers(network, inputs)
        try:
            save(export(network, inputs), os.path.join(FOLDER, "cases", f"{name}.pt2"))
        except Exception as error:
            print(f"{name}: {str(error).strip().splitlines()[0]}")
    if not names:
        with open(os.path.join(FOLDER, "cases.json"), "w") as file:
            file.write("{\n" + ",\n".join(f' "{name}": {json.dumps(expected[name])}' for name in expected) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
