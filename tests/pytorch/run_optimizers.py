"""run_optimizers.py IN OUT: parameters after the gradients of IN, by torch.optim's own loops.

IN (safetensors) has theta/NAME, and grad/NAME with one gradient per step in front. OUT (torch.save) has NAME of
optimizer/TYPE for fp32 and double. Filters are flattened, as torch.optim.Muon wants matrices; LAMB, which PyTorch lacks,
is algorithm 2 of arXiv 1904.00962v5, written out.
"""
import sys

import torch
from safetensors.torch import load_file

RATE, DECAY, MOMENTUM, BETAS = 0.01, 0.02, 0.9, (0.9, 0.99)


class Lamb:
    def __init__(self, params):
        self.params, self.t, self.m, self.v = params, 0, {}, {}

    def step(self):
        self.t += 1
        for p in self.params:
            m, v = self.m.get(p, torch.zeros_like(p)), self.v.get(p, torch.zeros_like(p))
            self.m[p] = m = BETAS[0] * m + (1 - BETAS[0]) * p.grad
            self.v[p] = v = BETAS[1] * v + (1 - BETAS[1]) * p.grad ** 2
            m_hat, v_hat = m / (1 - BETAS[0] ** self.t), v / (1 - BETAS[1] ** self.t)
            update = m_hat / (v_hat.sqrt() + 1e-6) + DECAY * p.detach()
            weight = p.detach().norm()
            ratio = weight / update.norm() if weight > 0 and update.norm() > 0 else 1
            p.data.sub_(RATE * ratio * update)


def optimizers(params):
    adamw = lambda some: torch.optim.AdamW(some, lr=RATE, betas=BETAS, eps=1e-8, weight_decay=DECAY, foreach=False)
    sgd = dict(lr=RATE, momentum=MOMENTUM, weight_decay=DECAY, foreach=False)
    every = list(params.values())
    matrices = [p for name, p in params.items() if p.dim() == 2 and name != "head"]
    rest = [p for name, p in params.items() if p.dim() < 2 or name == "head"]
    return {
        "sgd": lambda: [torch.optim.SGD(every, **sgd)],
        "nesterov": lambda: [torch.optim.SGD(every, **sgd, nesterov=True)],
        "adamw": lambda: [adamw(every)],
        "lamb": lambda: [Lamb(every)],
        "muon": lambda: [torch.optim.Muon(matrices, lr=RATE, weight_decay=DECAY, momentum=MOMENTUM,
                                          adjust_lr_fn="match_rms_adamw"), adamw(rest)],
    }


def run(file, name, dtype):
    params = {key[6:]: value.to(dtype).flatten(1) if value.dim() > 1 else value.to(dtype)
              for key, value in file.items() if key.startswith("theta/")}
    params = {key: value.clone().requires_grad_(True) for key, value in sorted(params.items())}
    chosen = optimizers(params)[name]()
    for step in range(next(value for key, value in file.items() if key.startswith("grad/")).size(0)):
        for key, p in params.items():
            p.grad = file["grad/" + key][step].to(dtype).reshape(p.shape)
        for optimizer in chosen:
            optimizer.step()
    return {key: p.detach() for key, p in params.items()}


file = load_file(sys.argv[1])
out = {}
for name in ("sgd", "nesterov", "adamw", "lamb", "muon"):
    for dtype, word in ((torch.float32, "fp32"), (torch.float64, "double")):
        for key, value in run(file, name, dtype).items():
            out[f"{name}/{word}/{key}"] = value.contiguous()
torch.save(out, sys.argv[2])
