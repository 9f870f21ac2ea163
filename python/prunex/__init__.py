"""Trains across machines over slow links, and prunes while it trains.

    with prunex.DiLoCo(model, optimizer, sync_every=40, payload="int2", outer_lr=1, outer_momentum=0.5):
        for images, labels in loader:                # the loop stays as it is
            optimizer.zero_grad()
            criterion(model(images), labels).backward()
            optimizer.step()

Everything is computed by the C++ library that the command `prunex` is made of. https://arxiv.org/abs/2512.14628
"""

from prunex._evidence import evidence
from prunex._hooks import comm_hook
from prunex._library import __version__
from prunex._pruning import Group, Pruned, Sparsifier, groups, prune, sparsify
from prunex._runs import Run, evaluate, read_run, report, train
from prunex._strategies import DiLoCo, Exchange, HSADMM, LocalSGD

__all__ = ["DiLoCo", "Exchange", "Group", "HSADMM", "LocalSGD", "Pruned", "Run", "Sparsifier", "__version__",
           "comm_hook", "evaluate", "evidence", "groups", "prune", "read_run", "report", "sparsify", "train"]
