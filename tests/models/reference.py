"""reference.py NAME NORM FOLDER: PyTorch's network with the weights of FOLDER/model.pt2.

Checks that the state dicts list the same tensors, and writes expected.pt: the input `x`, `eval`, and of one training
step (seed 7, loss = the mean square of the logits) `train`, `grad.PARAMETER` and `buffer.NAME`, thinned out."""
import os
import sys

import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench"))
from eager import make  # noqa: E402


def thin(tensor):
    return tensor.flatten()[:: max(1, tensor.numel() // 1000)].clone()


name, norm, folder = sys.argv[1:]
program = torch.export.load(f"{folder}/model.pt2")
size = program.example_inputs[0][0].shape[-1]
network = make(name, size, norm)
ours = {key: tensor.detach().clone() for key, tensor in program.state_dict.items()}
theirs = [key for key, _ in network.named_parameters()] + [key for key, _ in network.named_buffers()]
assert list(ours) == theirs, f"other tensors, or in another order: {list(ours)} {theirs}"
network.load_state_dict(ours)

x = torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(1))
expected = {"x": x}
with torch.no_grad():
    expected["eval"] = network.eval()(x)
    loaded = program.module()(x)
assert (loaded - expected["eval"]).abs().max() <= 1e-5 * expected["eval"].abs().max(), "the loaded program differs"

torch.manual_seed(7)
logits = network.train()(x)
logits.square().mean().backward()
expected["train"] = logits.detach()
for key, parameter in network.named_parameters():
    expected[f"grad.{key}"] = thin(parameter.grad)
for key, buffer in network.named_buffers():
    if not key.endswith("num_batches_tracked"):
        expected[f"buffer.{key}"] = thin(buffer)
torch.save(expected, f"{folder}/expected.pt")
