"""run_cut.py FOLDER: what stock PyTorch makes of cut.pt2: writes expected.pt, x and y for batches of 1 and 3."""
import sys

import torch

folder = sys.argv[1]
program = torch.export.load(f"{folder}/cut.pt2")
(example,), _ = program.example_inputs
generator = torch.Generator().manual_seed(0)
results = {}
for batch in (1, 3):
    x = torch.randn(batch, *example.shape[1:], generator=generator)
    with torch.no_grad():
        results |= {f"x{batch}": x, f"y{batch}": program.module()(x)}
torch.save(results, f"{folder}/expected.pt")
