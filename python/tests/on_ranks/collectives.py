"""What the ranks of a test say to one another."""

import torch.distributed as dist


def mean(tensor):
    total = tensor.detach().clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


def gathered(value):
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def hash_of(tensors):
    return [t.detach().double().sum().item() for t in tensors]


def expect_equal_on_all_ranks(tensors):
    hashes = gathered(hash_of(tensors))
    assert all(other == hashes[0] for other in hashes), hashes
