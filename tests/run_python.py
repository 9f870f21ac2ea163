"""Runs a test's script; exit status 77 says that PyTorch or torchvision cannot be imported."""
import os
import runpy
import sys
import warnings

warnings.filterwarnings("ignore")
try:
    import torch
    import torchvision  # noqa: F401
except (ImportError, OSError) as error:
    print(f"PyTorch and torchvision cannot be imported: {error}")
    sys.exit(77)

torch.set_num_threads(1)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
runpy.run_path(sys.argv[0], run_name="__main__")
