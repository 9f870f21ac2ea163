"""Runs tests' scripts, each in a fork of this process: PyTorch takes seconds to import, and is imported once.

Standard input is a socket. A line of JSON {"script": FILE, "arguments": [...]} asks; {"status": N, "output": TEXT} answers,
with status 77 where PyTorch or torchvision cannot be imported.
"""
import json
import os
import runpy
import sys
import warnings

CANNOT_IMPORT = 77

warnings.filterwarnings("ignore")
missing = None
try:
    import torch
    import torchvision  # noqa: F401

    torch.set_num_threads(1)
except (ImportError, OSError) as error:
    missing = f"PyTorch and torchvision cannot be imported: {error}"


def become(script, arguments, output):
    """In the fork: what the script sees is what it would see had it been started alone."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(output)
    os.close(nothing)
    sys.stdin = open(0, closefd=False)
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))


def answers(questions):
    """Answers until nothing more is asked. In a fork it returns the script to run instead."""
    for question in questions:
        asked = json.loads(question)
        answer = {"status": CANNOT_IMPORT, "output": missing}
        if not missing:
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reading)
                become(asked["script"], asked["arguments"], writing)
                return asked["script"]
            os.close(writing)
            with open(reading, errors="replace") as printed:
                output = printed.read()
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            answer = {"status": status, "output": output}
        replies.write(json.dumps(answer) + "\n")
        replies.flush()
    return None


replies = os.fdopen(os.dup(0), "w")
script = answers(os.fdopen(os.dup(0), "r"))
if script:
    runpy.run_path(script, run_name="__main__")
