"""export_network.py NAME FOLDER: exports a torchvision network in train and eval form, and what eager PyTorch computes.

Writes train.pt2, eval.pt2, and expected.pt: the input `x`, `eval.output`, and of one training step (seed 7, loss = sum
of the outputs' mean squares) `train.output.I`, `grad.PARAMETER`, `buffer.NAME`."""
import sys

import networks
import torch

name, folder = sys.argv[1:]
model = networks.make(name)
x = networks.images(name, 4, 2)
dynamic = {"x": {0: torch.export.Dim("batch")}}
forward = type(model).forward
if "x" not in forward.__code__.co_varnames[: forward.__code__.co_argcount]:
    dynamic = ({0: torch.export.Dim("batch")},)

for mode in (True, False):
    exported = torch.export.export(model.train(mode), (x,), dynamic_shapes=dynamic)
    torch.export.save(exported, f"{folder}/{'train' if mode else 'eval'}.pt2")

expected = {"x": x}
with torch.no_grad():
    expected["eval.output"] = networks.outputs_of(model.eval()(x))[0]
torch.manual_seed(7)
outputs = networks.outputs_of(model.train()(x))
sum(output.square().mean() for output in outputs).backward()
for i, output in enumerate(outputs):
    expected[f"train.output.{i}"] = output.detach()
for key, parameter in model.named_parameters():
    if parameter.grad is not None:
        expected[f"grad.{key}"] = parameter.grad
for key, buffer in model.named_buffers():
    expected[f"buffer.{key}"] = buffer
torch.save({key: tensor.contiguous() for key, tensor in expected.items()}, f"{folder}/expected.pt")
