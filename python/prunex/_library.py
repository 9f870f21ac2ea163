"""The extension module, under the torch that it was built for."""

import torch

from prunex._built_for import TORCH


def _expect_torch() -> None:
    if torch.__version__.split(".")[:2] != TORCH.split("."):
        raise ImportError(f"prunex was built for torch {TORCH}, this is torch {torch.__version__}: "
                          f"pip install 'torch=={TORCH}.*', or build prunex anew beside this one")


_expect_torch()

from prunex import _prunex as library  # noqa: E402

__all__ = ["library"]

__version__: str = library.version
