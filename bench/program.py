"""program.py: a training step of bench_program's networks in eager Python; smallest CPU time per step."""
import time

import torch

from eager import make

torch.set_num_threads(1)


def measure(model, size, steps):
    x = torch.randn(2, 3, size, size)
    times = []
    for _ in range(20):
        start = time.process_time()
        for _ in range(steps):
            model(x).sum().backward()
            model.zero_grad(set_to_none=True)
        times.append((time.process_time() - start) / steps)
    return min(times)


print(f"resnet20 {measure(make('resnet20'), 8, 20) * 1e3:.3f} ms")
print(f"resnet18 {measure(make('resnet18'), 32, 3) * 1e3:.3f} ms")
