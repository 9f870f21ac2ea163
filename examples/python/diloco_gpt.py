"""A small GPT on the texts of Python's own help, trained with DistributedDataParallel or with DiLoCo in two bits:

    torchrun --nproc-per-node 2 examples/python/diloco_gpt.py --method ddp
    torchrun --nproc-per-node 2 examples/python/diloco_gpt.py --method diloco

Prints the loss on held-out text and what a rank has sent. Each rank stands for a node. With --checkpoints DIR a loop
that is started again, on as many nodes, fewer or more, goes on from the last checkpoint:

    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --nnodes 1:8 --max-restarts 100 --rdzv-backend c10d \\
        --rdzv-endpoint HOST:29400 examples/python/diloco_gpt.py --checkpoints checkpoints
"""

import argparse
import contextlib
import json
import math
import pathlib
import pydoc_data.topics

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import prunex

CONTEXT = 64  # letters from which a letter is predicted


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).chunk(3, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, letters: int, width: int = 128, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.letter(x) + self.place(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.blocks(x)))


def read_text() -> tuple[torch.Tensor, torch.Tensor, int]:
    """The letters as numbers: nine tenths to train on, one to test on."""
    text = "\n".join(pydoc_data.topics.topics.values())
    letters = {letter: number for number, letter in enumerate(sorted(set(text)))}
    numbers = torch.tensor([letters[letter] for letter in text])
    split = len(numbers) * 9 // 10
    return numbers[:split], numbers[split:], len(letters)


def draw(text: torch.Tensor, batch: int, draws: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    begins = torch.randint(len(text) - CONTEXT - 1, (batch, 1), generator=draws)
    rows = text[begins + torch.arange(CONTEXT + 1)]
    return rows[:, :-1], rows[:, 1:]


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def test(model: nn.Module, text: torch.Tensor) -> float:
    draws = torch.Generator().manual_seed(0)
    return sum(loss_of(model, *draw(text, 64, draws)).item() for _ in range(20)) / 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=["ddp", "diloco"], default="diloco")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--sync-every", type=int, default=40)
    parser.add_argument("--payload", default="int2")
    parser.add_argument("--outer-lr", type=float, default=1.0)
    parser.add_argument("--outer-momentum", type=float, default=0.5)
    parser.add_argument("--batch", type=int, default=12, help="texts per rank and step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoints", type=pathlib.Path, metavar="DIR",
                        help="with diloco: a checkpoint every ten exchanges, from the last of which a loop goes on")
    arguments = parser.parse_args()
    if arguments.checkpoints and arguments.method == "ddp":
        parser.error("--checkpoints: wanted --method diloco")

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    training, held_out, letters = read_text()
    torch.manual_seed(arguments.seed)
    model = Gpt(letters)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.1, betas=(0.9, 0.99))
    warmup = 50
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, 0.55 + 0.45 * math.cos(math.pi * step / arguments.steps)))
    size = sum(p.numel() for p in model.parameters())

    trained: nn.Module = model
    strategy: prunex.DiLoCo | None = None
    if arguments.method == "ddp":
        trained = nn.parallel.DistributedDataParallel(model)
    else:
        # ranks_per_node=1: every process stands for a machine; without it the launcher says which ranks share one
        strategy = prunex.DiLoCo(model, optimizer, arguments.sync_every, payload=arguments.payload,
                                 outer_lr=arguments.outer_lr, outer_momentum=arguments.outer_momentum, ranks_per_node=1)
    begin = 0
    if strategy and arguments.checkpoints and (saved := strategy.resume(arguments.checkpoints)):
        schedule.load_state_dict(saved["schedule"])
        begin = strategy.step
        if rank == 0:
            print(f"goes on from step {begin}", flush=True)
    with strategy or contextlib.nullcontext():
        for step in range(begin + 1, arguments.steps + 1):
            # by step and rank, so that a loop that goes on sees the texts it would have seen
            draws = torch.Generator().manual_seed((arguments.seed * arguments.steps + step) * ranks + rank)
            optimizer.zero_grad()
            loss = loss_of(trained, *draw(training, arguments.batch, draws))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if strategy and arguments.checkpoints and step % (10 * arguments.sync_every) == 0:
                strategy.save(arguments.checkpoints, {"schedule": schedule.state_dict()})
            if rank == 0 and step % 100 == 0:
                print(f"step {step}  loss {loss.item():.3f}", flush=True)

    # a ring sends every gradient of four bytes 2 (n - 1) / n times
    sent = strategy.sent_bytes if strategy else arguments.steps * 4 * size * 2 * (ranks - 1) // ranks
    if rank == 0:
        print(json.dumps({"method": arguments.method, "parameters": size, "steps": arguments.steps,
                          "test_loss": round(test(model, held_out), 4), "sent_megabytes": round(sent / 1e6, 3)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
