"""The networks that are compared, by torchvision's name, small enough in the input to be quick."""
import torch
import torchvision

torch.utils._pytree._register_namedtuple(
    torchvision.models.GoogLeNetOutputs, serialized_type_name="torchvision.models.GoogLeNetOutputs")

SIZES = {"googlenet": 64, "inception_v3": 96, "alexnet": 64, "squeezenet1_0": 64, "vit_b_16": 224}


def make(name):
    torch.manual_seed(1)
    options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    return getattr(torchvision.models, name)(num_classes=10, **options)


def images(name, batch, seed):
    size = SIZES.get(name, 32)
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(seed))


def outputs_of(result):
    """The tensors of a result, whatever its structure is."""
    return [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
