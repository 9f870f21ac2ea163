"""Smaller messages for DistributedDataParallel."""

import concurrent.futures
import datetime
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket

from prunex import _arguments, _ranks
from prunex._library import library

_Exchange = library.RoundedBucket | library.SparseBucket


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


def _names_of(module: nn.Module) -> dict[int, str]:
    """Of its parameters, by their ids; a DistributedDataParallel's are those of the module in it."""
    if isinstance(module, nn.parallel.DistributedDataParallel):
        module = module.module
    return {id(p): name for name, p in module.named_parameters()}


class Hook:
    """What `comm_hook` returns, to be registered with `register_comm_hook(None, hook)`."""

    def __init__(self, ranks: _ranks.Ranks, process_group: dist.ProcessGroup | None, payload: str | None,
                 top_k: tuple[float, bool, float, int] | None) -> None:
        self.__name__ = self.__qualname__ = "prunex.comm_hook"  # which DistributedDataParallel asks for
        self._ranks, self._process_group, self._payload, self._top_k = ranks, process_group, payload, top_k
        self._seen: dict[tuple[int, ...], _Exchange | None] = {}  # by the ids of a bucket's parameters
        self._saved: dict[tuple[int, ...], dict[str, Tensor]] = {}
        self._worker = concurrent.futures.ThreadPoolExecutor(1, "prunex-comm-hook")
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def __call__(self, state: Any, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """The mean of the bucket's gradients over all ranks, once it is there."""
        if state is not None:
            raise ValueError(f"`state`: got a {type(state).__name__}, wanted None: prunex.comm_hook has "
                             "`process_group`")
        if bucket.buffer().layout != torch.strided:
            shapes = ", ".join(str(list(p.shape)) for p in bucket.parameters())
            raise ValueError(f"`model`: its parameter of {shapes} has sparse gradients, which prunex.comm_hook does "
                             "not send; wanted sparse=False")
        device = bucket.buffer().device
        on_gpu = device.type == "cuda"
        ready = torch.cuda.current_stream(device).record_event() if on_gpu else None
        done: torch.futures.Future[Tensor] = torch.futures.Future(devices=[device] if on_gpu else None)
        self._worker.submit(self._run, bucket, ready, done)
        # an exception that was set is a value for C++, but one that a callback raises is none
        return done.then(lambda result: result.value())

    def state_dict(self, module: nn.Module) -> dict[str, Any]:
        """What the hook keeps of this rank's gradients for later steps, by the names of the module's parameters; to be
        taken between steps. Every rank has its own."""
        names = _names_of(module)
        if any(p not in names for key in self._seen for p in key):
            raise ValueError("`module`: it has not the parameters whose gradients the hook has seen")
        kept = {tuple(names[p] for p in key): exchange.state() for key, exchange in self._seen.items() if exchange}
        kept |= {tuple(names[p] for p in key): state for key, state in self._saved.items()}
        return {"settings": self._settings(), **self._ranks.place(),
                "buckets": [(list(of), {name: tensor.detach().clone() for name, tensor in state.items()})
                            for of, state in kept.items()]}

    def load_state_dict(self, state: Mapping[str, Any], module: nn.Module) -> None:
        """Of a hook with the same options; what it has kept itself goes. A bucket goes on with what was saved of it
        once DistributedDataParallel makes it of the same parameters again, which is after its first step.
        Collective."""
        _ranks.expect_saved(state, {"settings", "of_rank", "nodes", "buckets"}, self._settings(), "hook")
        self._ranks.expect_place(state)
        ids = {name: p for p, name in _names_of(module).items()}
        for names, _ in state["buckets"]:
            if lost := [name for name in names if name not in ids]:
                raise ValueError(f"state_dict: the module has no parameter {lost[0]}")
        _ranks.expect_equal({"state_dict": str([names for names, _ in state["buckets"]])}, self._process_group)
        self._seen = dict.fromkeys(self._seen)
        self._saved = {tuple(ids[name] for name in names): dict(kept) for names, kept in state["buckets"]}

    def _settings(self) -> dict[str, str]:
        top_k = zip(("density", "dgc", "momentum", "warmup_steps"), self._top_k or ())
        return {"payload": str(self._payload), **{name: str(value) for name, value in top_k}}

    def _exchange_of(self, gradients: list[Tensor], key: tuple[int, ...]) -> _Exchange:
        made: _Exchange
        if self._top_k is not None:
            made = library.SparseBucket(gradients, *self._top_k, self._ranks)
        else:
            made = library.RoundedBucket(gradients, self._payload or "", self._ranks)
        if key in self._saved:
            saved = self._saved.pop(key)
            made.load(saved)
            for tensor in saved.values():  # its memory is nobody's before this stream has copied it
                if tensor.is_cuda:
                    tensor.record_stream(torch.cuda.current_stream(tensor.device))
        return made

    def _average(self, bucket: GradBucket) -> None:
        gradients, whole = bucket.gradients(), bucket.buffer()
        key = tuple(id(p) for p in bucket.parameters())
        if key not in self._seen and key not in self._saved:
            self._seen[key] = None
            sums = whole if whole.dtype == torch.float64 else whole.float()
            library.average_exactly(sums, self._ranks)
            whole.copy_(sums)
            return
        wide = [g if g.dtype in (torch.float32, torch.float64) else g.float() for g in gradients]
        if (exchange := self._seen.get(key)) is None:
            exchange = self._seen[key] = self._exchange_of(wide, key)
        exchange.average(wide)
        for gradient, mean in zip(gradients, wide):
            if mean is not gradient:
                gradient.copy_(mean)

    def _run(self, bucket: GradBucket, ready: torch.cuda.Event | None, done: torch.futures.Future[Tensor]) -> None:
        try:
            with _stream(bucket.buffer().device, ready, self._streams):
                self._average(bucket)
                done.set_result(bucket.buffer())
        except Exception as error:
            self._ranks.give_up()
            done.set_exception(error)  # type: ignore[arg-type]


def comm_hook(payload: str | None = None, *, density: float | None = None, dgc: bool = False, momentum: float = 0.9,
              warmup_steps: int = 0, process_group: dist.ProcessGroup | None = None,
              ranks_per_node: int | None = None, timeout: float | datetime.timedelta = 1800) -> Hook:
    """A communication hook for DistributedDataParallel, beside backward as its own:

        ddp = DistributedDataParallel(model)
        ddp.register_comm_hook(None, prunex.comm_hook(payload="int4"))

    One of: payload, bf16, fp16, int8, int4, int2 or int1 between nodes, what rounding leaves out being added to the
    next step's gradients; density, the share of the entries of every matrix that a rank sends, the largest ones,
    the others being kept for later. dgc: density as deep gradient compression has it (arXiv 1712.01887); momentum
    lives in the hook then, the optimizer must have none, and weight decay divided by 1 - momentum for the same
    effect; gradients come back with momentum in them, not to be clipped; warmup_steps is its own. The first time
    that a bucket is seen its gradients go whole, since DistributedDataParallel makes its buckets anew after the
    first step. timeout: seconds, or a timedelta. Collective, with the same arguments on all ranks.

    What it keeps for later steps is `hook.state_dict(ddp)`, of every rank; `hook.load_state_dict(state, ddp)` goes on
    from there.

    >>> prunex.comm_hook(payload="int5")
    Traceback (most recent call last):
    ValueError: `payload`: got 'int5', wanted one of bf16, fp16, int8, int4, int2, int1; did you mean 'int8'?
    """
    if (payload is None) == (density is None):
        raise ValueError("wanted one of `payload` and `density`")
    timeout, warmup_steps = _arguments.seconds(timeout), _arguments.whole("warmup_steps", warmup_steps, least=0)
    if _arguments.number("momentum", momentum) >= 1:
        raise ValueError(f"`momentum`: got {momentum}, wanted 0 or more, below 1")
    if density is not None:
        library.check_density(_arguments.number("density", density), warmup_steps)
    elif dgc:
        raise ValueError("`dgc`: goes with `density`")
    elif payload is not None:
        library.check_payload(str(payload))
    if not dgc and (momentum, warmup_steps) != (0.9, 0):
        raise ValueError("`momentum`, `warmup_steps`: go with `dgc`")
    said = {"payload": payload, "density": density, "dgc": dgc, "momentum": momentum, "warmup_steps": warmup_steps,
            "ranks_per_node": ranks_per_node, "timeout": timeout}
    _ranks.expect_equal({name: str(value) for name, value in said.items()}, process_group)
    ranks = _ranks.join(process_group, ranks_per_node, timeout)
    for doubt in ranks.doubts_of(payload):
        warnings.warn(doubt, stacklevel=2)
    return Hook(ranks, process_group, payload, None if density is None else (density, dgc, momentum, warmup_steps))
