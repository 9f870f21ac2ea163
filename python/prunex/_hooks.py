"""Smaller messages for DistributedDataParallel."""

import concurrent.futures
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket

from prunex import _ranks
from prunex._library import library

Hook = Callable[[Any, GradBucket], torch.futures.Future[Tensor]]


def _stream(device: torch.device, ready: torch.cuda.Event | None,
            streams: dict[torch.device, torch.cuda.Stream]) -> AbstractContextManager[Any]:
    """For work on a bucket beside backward: a stream of its own, from the event on at which the bucket is whole. What
    waits for the future then waits for that stream."""
    if ready is None:
        return nullcontext()
    if device not in streams:
        torch.cuda.set_device(device)  # of this thread
        streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    streams[device].wait_event(ready)
    return torch.cuda.stream(streams[device])


def comm_hook(payload: str | None = None, *, density: float | None = None, dgc: bool = False, momentum: float = 0.9,
              warmup_steps: int = 0, process_group: dist.ProcessGroup | None = None,
              ranks_per_node: int | None = None, timeout: float = 1800) -> Hook:
    """A communication hook for DistributedDataParallel, beside backward as its own:

        ddp = DistributedDataParallel(model)
        ddp.register_comm_hook(None, prunex.comm_hook(payload="int4"))

    One of: payload, bf16, fp16, int8, int4, int2 or int1 between nodes, what rounding leaves out being added to the
    next step's gradients; density, the share of the entries of every matrix that a rank sends, the largest ones, the
    others being kept for later. dgc: density as deep gradient compression has it (arXiv 1712.01887); momentum lives in
    the hook then, the optimizer must have none; warmup_steps is its own. The first time that a bucket is seen its
    gradients go whole, since DistributedDataParallel makes its buckets anew after the first step. Collective.

    >>> prunex.comm_hook(payload="int5")
    Traceback (most recent call last):
    ValueError: `payload`: got 'int5', wanted one of bf16, fp16, int8, int4, int2, int1
    """
    if (payload is None) == (density is None):
        raise ValueError("wanted one of `payload` and `density`")
    if density is not None:
        library.check_top_k(density, dgc, momentum, warmup_steps)
    elif dgc:
        raise ValueError("`dgc`: goes with `density`")
    elif payload is not None:
        library.check_payload(payload)
    if not dgc and (momentum, warmup_steps) != (0.9, 0):
        raise ValueError("`momentum`, `warmup_steps`: go with `dgc`")
    ranks = _ranks.join(process_group, ranks_per_node, timeout, apart=True)
    buckets: dict[tuple[int, ...], Any] = {}
    worker = concurrent.futures.ThreadPoolExecutor(1, "prunex-comm-hook")

    def average(bucket: GradBucket) -> None:
        gradients, whole = bucket.gradients(), bucket.buffer()
        key = tuple(id(p) for p in bucket.parameters())
        if key not in buckets:
            buckets[key] = None
            sums = whole if whole.dtype == torch.float64 else whole.float()
            library.average_exactly(sums, ranks)
            whole.copy_(sums)
            return
        wide = [g if g.dtype in (torch.float32, torch.float64) else g.float() for g in gradients]
        if buckets[key] is None:
            if payload is not None:
                buckets[key] = library.RoundedBucket(wide, payload, ranks)
            elif density is not None:
                buckets[key] = library.SparseBucket(wide, density, dgc, momentum, warmup_steps, ranks)
        buckets[key].average(wide)
        for gradient, mean in zip(gradients, wide):
            if mean is not gradient:
                gradient.copy_(mean)

    streams: dict[torch.device, torch.cuda.Stream] = {}

    def run(bucket: GradBucket, ready: torch.cuda.Event | None, done: torch.futures.Future[Tensor]) -> None:
        try:
            with _stream(bucket.buffer().device, ready, streams):
                average(bucket)
                done.set_result(bucket.buffer())
        except Exception as error:
            done.set_exception(error)  # type: ignore[arg-type]

    def hook(state: Any, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        if state is not None:
            raise ValueError(f"`state`: got a {type(state).__name__}, wanted None: prunex.comm_hook has "
                             "`process_group`")
        device = bucket.buffer().device
        on_gpu = device.type == "cuda"
        ready = torch.cuda.current_stream(device).record_event() if on_gpu else None
        done: torch.futures.Future[Tensor] = torch.futures.Future(devices=[device] if on_gpu else None)
        worker.submit(run, bucket, ready, done)
        # an exception that was set is a value for C++, but one that a callback raises is none
        return done.then(lambda result: result.value())

    return hook
