"""The loop of PyTorch's CIFAR-10 tutorial on several nodes: its network, loss, optimizer and epochs, and five more lines.

    torchrun --nproc-per-node 2 examples/python/cifar10.py --data-dir DIR --method diloco

DIR or DIR/cifar-10-batches-bin holds CIFAR-10 in its binary layout. Each rank stands for a node. --method hsadmm
removes half of each layer's channels during training.
"""

import argparse
import contextlib
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import prunex


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1, self.fc2, self.fc3 = nn.Linear(16 * 5 * 5, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(functional.relu(self.conv1(x)))
        x = self.pool(functional.relu(self.conv2(x)))
        x = functional.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(functional.relu(self.fc2(x)))


def read(files: list[Path]) -> TensorDataset:
    """Records: a byte with the label, then the image, 3 x 32 x 32 bytes."""
    rows = torch.cat([torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8) for file in files]).view(-1, 3073)
    images = rows[:, 1:].reshape(-1, 3, 32, 32).float().div_(127.5).sub_(1)
    return TensorDataset(images, rows[:, 0].long())


@torch.no_grad()
def accuracy(net: nn.Module, images: TensorDataset) -> float:
    right = sum((net(x).argmax(1) == y).sum().item() for x, y in DataLoader(images, 500))
    return right / len(images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--method", choices=["ddp", "diloco", "hsadmm"], default="diloco")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    inner = arguments.data_dir / "cifar-10-batches-bin"
    folder = inner if inner.exists() else arguments.data_dir
    trainset = read(sorted(folder.glob("data_batch_*.bin")))
    sampler = DistributedSampler(trainset, seed=arguments.seed, drop_last=True)
    trainloader = DataLoader(trainset, arguments.batch_size, sampler=sampler, drop_last=True)
    torch.manual_seed(arguments.seed)
    net = Net()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=arguments.lr, momentum=0.9)
    steps = arguments.epochs * len(trainloader)

    trained: nn.Module = net
    strategy: contextlib.AbstractContextManager = contextlib.nullcontext()
    # ranks_per_node=1: every process stands for a machine; without it the launcher says which ranks share one
    if arguments.method == "ddp":
        trained = nn.parallel.DistributedDataParallel(net)
    elif arguments.method == "diloco":
        strategy = prunex.DiLoCo(net, optimizer, sync_every=50, payload="int2", outer_lr=1, outer_momentum=0.5,
                                 ranks_per_node=1)
    else:
        strategy = prunex.HSADMM(net, optimizer, sync_every=50, total_steps=steps, payload="int2",
                                 example=trainset[:1][0], round_to=1, ranks_per_node=1)
    with strategy:
        for epoch in range(arguments.epochs):
            sampler.set_epoch(epoch)
            running_loss = 0.0
            for inputs, labels in trainloader:
                optimizer.zero_grad()
                loss = criterion(trained(inputs), labels)
                loss.backward()
                optimizer.step()
                if arguments.method == "hsadmm":
                    strategy.cut()
                running_loss += loss.item()
            if rank == 0:
                print(f"epoch {epoch + 1}  loss {running_loss / len(trainloader):.3f}", flush=True)

    size = sum(p.numel() for p in net.parameters())
    sent = steps * 4 * size * 2 * (ranks - 1) // ranks if arguments.method == "ddp" else strategy.sent_bytes
    if rank == 0:
        print(json.dumps({"method": arguments.method, "steps": steps, "parameters": size,
                          "accuracy": accuracy(net, read([folder / "test_batch.bin"])),
                          "sent_megabytes": round(sent / 1e6, 3)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
