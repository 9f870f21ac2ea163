"""Folders of results that later calls of a script go on with."""
import json
import os
import sys


def one_set(output, **options):
    """Makes the folder `output`, or ends the script if what it holds was made with other `options`."""
    path = os.path.join(output, "options.json")
    if os.path.exists(path):
        with open(path) as file:
            there = json.load(file)
        for name in options.keys() | there.keys():
            if (kept := there.get(name)) != (got := options.get(name)):
                sys.exit(f"{output}: --{name.replace('_', '-')} was {kept} there, got {got}; wanted another folder")
        return
    os.makedirs(output, exist_ok=True)
    with open(path, "w") as file:
        json.dump(options, file)
