"""Small networks, batches and optimizers that the tests train with. PRUNEX_TEST_DEVICE: where, by default the CPU."""

import os

import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import prunex

DEVICE = os.environ.get("PRUNEX_TEST_DEVICE", "cpu")


def small_network(dtype=torch.float32):
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                         nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(16, 5)).to(DEVICE, dtype)


class Shuffled(nn.Module):
    """Its code knows the width of its first layer."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(4, 8), nn.Linear(8, 6), nn.Linear(6, 3)

    def forward(self, x):
        y = self.a(x)
        return self.head(self.b(torch.cat([y[:, 4:], y[:, :4]], 1).relu()).relu())


class Auxiliary(nn.Module):
    """With a head that no exported graph has."""

    def __init__(self, *behind):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3), nn.Conv2d(16, 4, 3)
        self.aux, self.norm = nn.Sequential(nn.Conv2d(16, 4, 1), *behind), nn.BatchNorm2d(16)

    def forward(self, x):
        y = self.a(x).relu()
        out = self.c(self.norm(self.b(y)).relu())
        return (out, self.aux(y)) if self.training else out


# Behind a head: what wants several images in training mode.
POOLED = (nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(4))


def batch(rank, step, dtype=torch.float32):
    draws = torch.Generator().manual_seed(1000 * rank + step)
    images, labels = torch.randn(6, 3, 8, 8, generator=draws, dtype=dtype), torch.randint(5, (6,), generator=draws)
    return images.to(DEVICE), labels.to(DEVICE)


class InTurn(list):
    """Optimizers that step one after another."""

    def zero_grad(self):
        for optimizer in self:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self:
            optimizer.step()


def divided(params, first="sgd", last="adamw"):
    """One optimizer of the matrices, then one of the vectors."""
    matrices, vectors = [], []
    for p in params:
        (vectors if p.dim() < 2 else matrices).append(p)
    return InTurn([OPTIMIZERS[first](matrices), OPTIMIZERS[last](vectors)])


class ByParameter(torch.optim.Optimizer):
    """Moves each of its parameters by itself."""

    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            self.move(p, self.state[p])


class Mixing(ByParameter):
    """A row's step has a part of the others' gradients, as Shampoo's."""

    def move(self, p, state):
        if not state:
            state["factor"] = torch.eye(len(p)) + 0.1
        p -= 0.02 * (state["factor"] @ p.grad.reshape(len(p), -1)).view_as(p)


class OfTwo(ByParameter):
    """Keeps its means in tensors of a kind of their own, as those with states of few bits do."""

    def move(self, p, state):
        if not state:
            state["mean"] = TwoTensor(torch.zeros_like(p), torch.zeros_like(p))
        p -= 0.02 * state["mean"].a.mul_(0.9).add_(p.grad)


OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, 0.05, momentum=0.9, weight_decay=1e-3),
    "adamw": lambda params: torch.optim.AdamW(params, 0.01),
    "adagrad": lambda params: torch.optim.Adagrad(params, 0.02),
    "several": divided,
}


def train_step(net, optimizer, rank, step, dtype=torch.float32, with_closure=False):
    images, labels = batch(rank, step, dtype)

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        return loss

    if with_closure:
        return optimizer.step(closure)
    loss = closure()
    optimizer.step()
    return loss


def diloco(**options):
    net = small_network()
    return prunex.DiLoCo(net, OPTIMIZERS["sgd"](net.parameters()), **options)


def masked(strategy, net, optimizer, **options):
    return strategy(net, optimizer, sync_every=2, total_steps=40, example=batch(0, 0)[0], groups="coupled", round_to=1,
                    **options)


def admm(net, optimizer, **options):
    return masked(prunex.HSADMM, net, optimizer, **options)
