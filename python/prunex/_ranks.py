"""Which ranks there are, and on which nodes."""

import itertools
import os
import socket
from collections.abc import Iterable

import torch.distributed as dist
from torch import Tensor

from prunex._library import library


def _node_of_this_rank() -> str:
    """The same on the ranks of a node: torchrun counts nodes, other launchers leave the machine's name."""
    return os.environ.get("GROUP_RANK") or socket.gethostname()


def _node_sizes(group: dist.ProcessGroup, ranks_per_node: int | None) -> list[int]:
    size = dist.get_world_size(group)
    if ranks_per_node is not None:
        if ranks_per_node < 1 or size % ranks_per_node != 0:
            raise ValueError(f"`ranks_per_node`: got {ranks_per_node}, wanted a divisor of the {size} ranks")
        return [ranks_per_node] * (size // ranks_per_node)
    nodes: list[str | None] = [None] * size
    dist.all_gather_object(nodes, _node_of_this_rank(), group=group)
    runs = [(node, len(list(ranks))) for node, ranks in itertools.groupby(nodes)]
    if len({node for node, _ in runs}) < len(runs):
        raise ValueError(f"`process_group`: the ranks of a node must follow one another, got them on nodes {nodes}")
    return [count for _, count in runs]


def _subgroup(group: dist.ProcessGroup, members: list[int], apart: bool) -> str:
    """The name of a process group of these ranks of `group`; empty for one alone. apart: not `group` itself. It serves
    the CPU, too, where masks, scores and norms are exchanged: NCCL alone does not."""
    if len(members) == 1:
        return ""
    serves_cpu = any(device.type == "cpu" for device in group._device_types)
    if len(members) == dist.get_world_size(group) and not apart and serves_cpu:
        return str(group.group_name)
    everyone = dist.get_process_group_ranks(group)
    made = dist.new_group([everyone[rank] for rank in members], use_local_synchronization=True,
                          backend=None if serves_cpu else "cpu:gloo,cuda:nccl")
    return str(made.group_name)


def broadcast(tensors: Iterable[Tensor], process_group: dist.ProcessGroup | None) -> None:
    """What the first rank has. Collective."""
    if not dist.is_initialized():
        return
    group = process_group if process_group is not None else dist.group.WORLD
    assert group is not None
    for tensor in tensors:
        dist.broadcast(tensor.detach(), dist.get_global_rank(group, 0), group)


def join(process_group: dist.ProcessGroup | None, ranks_per_node: int | None, timeout: float,
         apart: bool = False) -> library.Ranks:
    """The groups of this rank. Collective; a process without torch.distributed is alone. apart: of connections of their
    own, for calls that others' calls do not wait for."""
    if not dist.is_initialized():
        if ranks_per_node not in (None, 1):
            raise ValueError(f"`ranks_per_node`: got {ranks_per_node}, this process is alone: "
                             "call torch.distributed.init_process_group first")
        return library.Ranks([1], 0, "", "", "", timeout)
    group = process_group if process_group is not None else dist.group.WORLD
    assert group is not None
    rank, sizes = dist.get_rank(group), _node_sizes(group, ranks_per_node)
    first = [sum(sizes[:node]) for node in range(len(sizes))]
    node = max(n for n in range(len(sizes)) if first[n] <= rank)
    local = rank - first[node]
    rail = [begin + local for begin in first] if local < min(sizes) else [rank]
    on_node = [first[node] + i for i in range(sizes[node])]
    world, mine, others = (_subgroup(group, members, apart) for members in (list(range(sum(sizes))), on_node, rail))
    return library.Ranks(sizes, rank, world, mine, others, timeout)
