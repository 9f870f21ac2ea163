from collections.abc import Mapping, Sequence

import torch


version: str = '0.1.0'

torch_version: str = '2.11.0'

class Cut:
    """What is removed for good: the same for module, optimizer and strategy."""

    def empty(self) -> bool:
        """Whether nothing is removed."""

    def kept(self) -> dict[str, dict[int, list[int]]]:
        """Of tensors that lose something: the positions that stay, by axis."""

    def apply(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """What is left of a tensor of this name, or of its likeness: a new one."""

    def values(self) -> dict[str, dict[str, tuple[object, ...]]]:
        """As plain values, for torch.save."""

    def __getstate__(self) -> dict[str, dict[str, tuple[object, ...]]]: ...

    def __setstate__(self, values: dict[str, dict[str, tuple[object, ...]]]) -> None: ...

    def __repr__(self) -> str: ...

    @staticmethod
    def of_values(values: dict[str, dict[str, tuple[object, ...]]]) -> Cut: ...

    @staticmethod
    def of_structure(text: str) -> tuple[Cut, bool, bool]:
        """Of the text of a structure.json; and its `heads` and `statistics`."""

class RoundedBucket:
    def __init__(self, gradients: Sequence[torch.Tensor], payload: str, ranks: Ranks) -> None: ...

    def average(self, gradients: Sequence[torch.Tensor]) -> None: ...

    def state(self) -> dict[str, torch.Tensor]: ...

    def load(self, state: dict[str, torch.Tensor]) -> None: ...

class SparseBucket:
    def __init__(self, gradients: Sequence[torch.Tensor], density: float, dgc: bool, momentum: float, warmup_steps: int, ranks: Ranks) -> None: ...

    def average(self, gradients: Sequence[torch.Tensor]) -> None: ...

    def state(self) -> dict[str, torch.Tensor]: ...

    def load(self, state: dict[str, torch.Tensor]) -> None: ...

def average_exactly(gradients: torch.Tensor, ranks: Ranks) -> None: ...

def check_payload(arg: str, /) -> None: ...

def check_density(arg0: float, arg1: int, /) -> None: ...

class Loader:
    def __init__(self, dataset: str, data_dir: str, samples: int, batch_size: int, rank: int, ranks: int, seed: int) -> None: ...

    def steps_per_epoch(self) -> int: ...

    def batch(self, epoch: int, step: int) -> tuple[torch.Tensor, torch.Tensor]: ...

class Slice:
    """Where the units of a group lie in one tensor."""

    @property
    def tensor(self) -> str:
        """Its name in the state dict."""

    @property
    def axis(self) -> int:
        """Its dimension."""

class Group:
    """Channels that live and die together."""

    @property
    def name(self) -> str:
        """The first layer that makes the channels."""

    @property
    def size(self) -> int:
        """Units."""

    @property
    def kind(self) -> str:
        """
        inner: one layer makes them; stream: several do, as in a residual stream; input or output of the model.
        """

    @property
    def prunable(self) -> bool:
        """Whether units can be removed."""

    @property
    def reason(self) -> str:
        """Why not."""

    @property
    def inexact(self) -> str:
        """Which statistics change with its units; empty: none."""

    @property
    def slices(self) -> list[Slice]:
        """Where the units lie."""

    def positions(self, slice: Slice) -> list[int]:
        """Along the axis of the slice: as many for every unit, unit by unit."""

    def __repr__(self) -> str: ...

class Limits:
    def __init__(self, round_to: int, max_ratio: float, ratios: Sequence[tuple[str, float]], ignore: Sequence[str], whole: Mapping[str, str]) -> None: ...

class Choice:
    def __init__(self, target: str, value: float, importance: str, reduction: str | None, normalizer: str | None, scope: str, limits: Limits, steps: int, seed: int) -> None: ...

class Network:
    def __init__(self, file: bytes, name: str, own: bool, heads: bool = False, statistics: bool = False) -> None: ...

    def groups(self) -> list[Group]: ...

    def makers(self) -> set[str]: ...

    def removable(self) -> list[str]: ...

    def prune(self, choice: Choice, evidence: dict[str, torch.Tensor]) -> PrunedNetwork: ...

    def prune_by(self, arg0: Choice, arg1: Sequence[Sequence[float]], /) -> PrunedNetwork: ...

    def prune_as(self, arg: Cut, /) -> PrunedNetwork: ...

    def ignored(self, arg: Sequence[str], /) -> set[str]: ...

    def without_units(self, arg0: Sequence[str], arg1: int, /) -> PrunedNetwork: ...

class PrunedNetwork:
    @property
    def cut(self) -> Cut: ...

    @property
    def before(self) -> tuple[int, int]: ...

    @property
    def after(self) -> tuple[int, int]: ...

    @property
    def groups(self) -> list[dict[str, object]]: ...

    @property
    def layers(self) -> list[dict[str, object]]: ...

    def layer_groups(self) -> dict[str, int]: ...

    def run(self, inputs: Sequence[torch.Tensor], values: dict[str, torch.Tensor]) -> list[torch.Tensor]: ...

    def write(self, arg: str, /) -> None: ...

class Penalties:
    def __init__(self, network: Network, penalty: str, strength: float | None, growth: float, ignore: Sequence[str]) -> None: ...

    def refresh(self, params: dict[str, torch.Tensor], epochs: float) -> None: ...

    def add_to_gradients(self, params: dict[str, torch.Tensor], factor: float) -> None: ...

    def state(self) -> dict[str, torch.Tensor]: ...

    def load(self, state: dict[str, torch.Tensor]) -> None: ...

def penalties() -> list[str]: ...

def needs_evidence(arg: str, /) -> bool: ...

class Ranks:
    def __init__(self, arg0: Sequence[int], arg1: int, arg2: str, arg3: str, arg4: str, arg5: float, /) -> None: ...

    def gathered(self, arg: Sequence[int], /) -> list[list[int]]: ...

    def sound(self) -> bool: ...

    def give_up(self) -> None: ...

class Exchange:
    """What an exchange has done."""

    @property
    def index(self) -> int:
        """Its number, from 1."""

    @property
    def frozen(self) -> bool:
        """Whether the masks are final."""

    @property
    def converged(self) -> bool:
        """Whether the residuals are below the tolerance."""

    @property
    def keep(self) -> float:
        """Kept units / all units of the groups."""

    @property
    def mask_changes(self) -> int:
        """Units whose mask has changed."""

    @property
    def rho1(self) -> float:
        """Pull towards the node's model, mean over tensors."""

    @property
    def rho2(self) -> float:
        """Pull of the nodes towards each other, mean over tensors."""

    @property
    def overlapped(self) -> int:
        """Local steps that ran beside it."""

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of its phases, waiting included, by name."""

    def __repr__(self) -> str: ...

class Strategy:
    def __init__(self, name: str, params: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor], settings: list[tuple[str, str]], local_steps: int, total_steps: int, momentum: float, learning_rates: list[float], ranks: Ranks, program: bytes | None) -> None: ...

    def before_update(self, rates: Mapping[str, float] | None) -> None: ...

    def after_update(self, arg: int, /) -> Exchange | None: ...

    def finish(self) -> None: ...

    def product(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]: ...

    def masks(self) -> dict[str, torch.Tensor]: ...

    def mask(self, state: dict[str, torch.Tensor]) -> None: ...

    def removable(self) -> Cut: ...

    def layer_groups(self, arg: Cut, /) -> dict[str, int]: ...

    def cut(self, cut: Cut, params: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor]) -> None: ...

    def set_weights(self, params: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor]) -> None: ...

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], dict[str, torch.Tensor]]: ...

    def load(self, everyone: dict[str, torch.Tensor], node: dict[str, torch.Tensor], rank: dict[str, torch.Tensor], cut: Cut | None, own: bool, lost: bool) -> None: ...

    def doubts(self) -> list[str]: ...

    def sent_bytes(self) -> int: ...

    def sent_to_nodes(self) -> int: ...
