"""compile_written.py FOLDER: everything stock PyTorch does with our program.pt2; writes expected.pt (`x`, `output`)."""
import sys

import torch

folder = sys.argv[1]
program = torch.export.load(f"{folder}/program.pt2")
(example,), keywords = program.example_inputs
assert example.shape == (2, 2, 5, 5) and not keywords, (example.shape, keywords)


def check(run, what):
    for batch in (1, 2, 7):
        x = torch.randn(batch, 2, 5, 5, generator=torch.Generator().manual_seed(batch))
        with torch.no_grad():
            wanted = program.module()(x)
            error = (run(x) - wanted).abs().max() / wanted.abs().max()
        assert error <= 1e-5, f"{what}, batch {batch}: relative difference {error}"


check(program.run_decompositions().module(), "decomposed")
check(torch.export.unflatten(program), "unflattened")
exported = torch.export.export(program.module(), (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
check(exported.module(), "exported again")
package = torch._inductor.aoti_compile_and_package(program, package_path=f"{folder}/compiled.pt2")
check(torch._inductor.aoti_load_package(package), "compiled by AOTInductor")

x = torch.randn(3, 2, 5, 5, generator=torch.Generator().manual_seed(3))
with torch.no_grad():
    torch.save({"x": x, "output": program.module()(x)}, f"{folder}/expected.pt")
