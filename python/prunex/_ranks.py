"""Which ranks there are, and on which nodes."""

import datetime
import itertools
import os
import socket
from collections.abc import Iterable
from typing import Any

import torch.distributed as dist
from torch import Tensor

from prunex._library import library


def _all_of(process_group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """The group that is meant: without one, that of all ranks."""
    group = process_group if process_group is not None else dist.group.WORLD
    assert group is not None
    return group


def gathered(value: Any, process_group: dist.ProcessGroup | None) -> list[Any]:
    """Of every rank. Collective; a process without torch.distributed is alone."""
    if not dist.is_initialized():
        return [value]
    group = _all_of(process_group)
    values: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def rank_in(process_group: dist.ProcessGroup | None) -> int:
    return dist.get_rank(process_group) if dist.is_initialized() else 0


def first_difference(settings: dict[str, str], others: dict[str, str]) -> tuple[str, str, str] | None:
    """A name, and what both have of it."""
    for name in [*settings, *others]:
        one, other = settings.get(name, "none"), others.get(name, "none")
        if one != other:
            return name, one, other
    return None


def expect_equal(settings: dict[str, str], process_group: dist.ProcessGroup | None) -> None:
    """Of all ranks. Collective. Raises ValueError, on all of them, that names what differs."""
    everyone = gathered(settings, process_group)
    for rank, other in enumerate(everyone):
        if differs := first_difference(everyone[0], other):
            name, first, its = differs
            raise ValueError(f"`{name}`: rank 0 has {first}, rank {rank} {its}; wanted the same on all ranks")


def _node_of_this_rank() -> str:
    """The same on the ranks of a node: torchrun counts nodes, other launchers leave the machine's name."""
    return os.environ.get("GROUP_RANK") or socket.gethostname()


def _node_sizes(group: dist.ProcessGroup, ranks_per_node: int | None) -> list[int]:
    size = dist.get_world_size(group)
    if ranks_per_node is not None:
        if ranks_per_node < 1 or size % ranks_per_node != 0:
            raise ValueError(f"`ranks_per_node`: got {ranks_per_node}, wanted a divisor of the {size} ranks")
        return [ranks_per_node] * (size // ranks_per_node)
    nodes = gathered(_node_of_this_rank(), group)
    runs = [(node, len(list(ranks))) for node, ranks in itertools.groupby(nodes)]
    if len({node for node, _ in runs}) < len(runs):
        raise ValueError(f"`process_group`: the ranks of a node must follow one another, got them on nodes {nodes}")
    return [count for _, count in runs]


def _serves_cpu(group: dist.ProcessGroup) -> bool:
    return any(device.type == "cpu" for device in group._device_types)


class _Groups:
    """Process groups of some ranks of `group`, which serve the CPU, too, where masks, scores and norms are exchanged:
    NCCL alone does not."""

    def __init__(self, group: dist.ProcessGroup, timeout: float) -> None:
        self._group, self._everyone = group, dist.get_process_group_ranks(group)
        self._options: dict[str, Any] = {
            "backend": dist.get_backend_config(group) if _serves_cpu(group) else "cpu:gloo,cuda:nccl",
            "timeout": datetime.timedelta(seconds=timeout + 60)}  # ours names the rank that is missing before
        # torch.distributed names groups by how many were made: all ranks make all of them, in one order. Of a part of
        # the ranks only members may make one, and the name counts what a rank is in: as much on all after some of its own
        self._of_all = dist.get_world_size(group) == dist.get_world_size()
        if not self._of_all:
            counts = gathered(len(dist.distributed_c10d._world.pg_names), group)
            for _ in range(max(counts) - counts[dist.get_rank(group)]):
                dist.new_group([dist.get_rank()], use_local_synchronization=True, **self._options)

    def make(self, lists: list[list[int]]) -> str:
        """The name of the group that this rank is in, of these without common ranks; empty if it is alone there."""
        mine, name = dist.get_rank(self._group), ""
        for members in lists:
            if self._of_all and len(members) == 1:
                continue
            ranks = [self._everyone[rank] for rank in members]
            made = dist.new_group(ranks, use_local_synchronization=not self._of_all, **self._options)
            if mine in members and len(members) > 1:
                name = str(made.group_name)
        return name


def broadcast(tensors: Iterable[Tensor], process_group: dist.ProcessGroup | None) -> None:
    """What the first rank has. Collective."""
    if not dist.is_initialized():
        return
    group = _all_of(process_group)
    for tensor in tensors:
        dist.broadcast(tensor.detach(), dist.get_global_rank(group, 0), group)


def join(process_group: dist.ProcessGroup | None, ranks_per_node: int | None, timeout: float,
         apart: bool = False) -> library.Ranks:
    """The groups of this rank. Collective; a process without torch.distributed is alone. apart: of connections of their
    own, for calls that others' calls do not wait for."""
    if not dist.is_initialized():
        if os.environ.get("WORLD_SIZE", "1") != "1" and "RANK" in os.environ:
            raise ValueError(f"torch.distributed: this is rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}, which "
                             "know nothing of each other: call torch.distributed.init_process_group first")
        if ranks_per_node not in (None, 1):
            raise ValueError(f"`ranks_per_node`: got {ranks_per_node}, this process is alone: "
                             "call torch.distributed.init_process_group first")
        return library.Ranks([1], 0, "", "", "", timeout)
    group = _all_of(process_group)
    rank, sizes = dist.get_rank(group), _node_sizes(group, ranks_per_node)
    if sizes == [1]:
        return library.Ranks(sizes, 0, "", "", "", timeout)
    first = [sum(sizes[:node]) for node in range(len(sizes))]
    nodes = [[first[node] + i for i in range(sizes[node])] for node in range(len(sizes))]
    # ranks that not every node has talk to no other node by themselves
    rails = [[begin + i for begin in first] for i in range(min(sizes))]
    rails += [[rank] for ranks in nodes for rank in ranks[min(sizes):]]
    groups, everyone = _Groups(group, timeout), list(range(sum(sizes)))
    as_it_is = str(group.group_name) if _serves_cpu(group) and not apart else ""
    world = as_it_is or groups.make([everyone])
    mine, others = (world if lists == [everyone] else groups.make(lists) for lists in (nodes, rails))
    return library.Ranks(sizes, rank, world, mine, others, timeout)
