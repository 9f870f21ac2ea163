"""What of a network lives and dies together, networks made smaller, and penalties that prepare it."""

from __future__ import annotations

import glob
import io
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from prunex import _arguments, _checked_cut, _cuts, _in_place, _modules
from prunex._library import library

Group = library.Group

Model = nn.Module | ExportedProgram | str | os.PathLike[str]


def _file_of(model: Model, example: Any) -> tuple[bytes, str, bool]:
    """The bytes of a .pt2, what messages call it, and whether it is a module's, which was exported here."""
    if isinstance(model, nn.Module):
        if example is None:
            raise ValueError("`example`: got none; a module wants inputs that it can be exported with")
        return _modules.exported(_modules.plain(model), example), "the exported module", True
    if not isinstance(model, (ExportedProgram, str, os.PathLike)):
        raise ValueError(f"`model`: got a {type(model).__name__}, wanted a torch.nn.Module, an exported program or the "
                         "path of a .pt2")
    if example is not None:
        raise ValueError("`example`: an exported program carries its own inputs")
    if isinstance(model, ExportedProgram):
        return _modules.bytes_of(model), "the exported program", False
    path = Path(model)
    return path.read_bytes(), str(path), False


def groups(model: Model, example: Any = None, *, heads: bool = False, statistics: bool = False) -> list[Group]:
    """The channels of a network that live and die together, in the order of their names: exact, from its graph.

    model: a module with `example`, a tensor or a tuple of positional arguments; or an exported program, or a .pt2 file.
    heads: attention loses whole heads instead of equal positions of all. statistics: units may go, too, that a norm, a
    mean or a maximum is taken over.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.LazyLinear(10))
    >>> x = torch.zeros(1, 3, 8, 8)
    >>> _ = net(x)
    >>> [(group.name, group.size) for group in prunex.groups(net, x) if group.prunable]
    [('0', 8), ('2', 4)]
    """
    return library.Network(*_file_of(model, example), heads, statistics).groups()


@dataclass
class Pruned:
    """What a network has become."""

    model: nn.Module | ExportedProgram
    """The module, which was changed in place; or a new program."""
    parameters: tuple[int, int]
    """Before and after."""
    macs: tuple[int, int]
    """Multiply-accumulates of one input, before and after."""
    groups: list[dict[str, Any]] = field(repr=False)
    """Of every group: units, kept, asked, layers, kind, and the reason why others than asked are kept."""
    layers: list[dict[str, Any]] = field(repr=False)
    """Of every layer with channels in a group: before, after, asked, reason."""
    cut: library.Cut = field(repr=False)
    """What has gone, for tensors of one's own."""

    @property
    def speed_up(self) -> float:
        """Multiply-accumulates before over those after."""
        return self.macs[0] / max(1, self.macs[1])


Scorer = Callable[[Group, Mapping[str, Tensor]], Tensor]
Cut = library.Cut | dict[str, Any] | str | os.PathLike[str]


def _scores_by(importance: Scorer, network: library.Network, tensors: Mapping[str, Tensor]) -> list[list[float]]:
    removable = set(network.removable())
    scores = {}
    for group in network.groups():
        if group.name not in removable:
            continue
        values = torch.as_tensor(importance(group, tensors), dtype=torch.float64, device="cpu")
        if values.shape != (group.size,):
            raise ValueError(f"`importance`: got {tuple(values.shape)} scores for group {group.name}, wanted "
                             f"({group.size},)")
        scores[group.name] = values.tolist()
    return [scores[name] for name in network.removable()]


def _evidence(importance: str, tensors: Mapping[str, Tensor], evidence: Mapping[str, Tensor] | None,
              steps: int) -> dict[str, Tensor]:
    wants = library.needs_evidence(importance)
    if not wants:
        if evidence is not None:
            raise ValueError(f"`evidence`: {importance} looks at none")
        return {}
    if steps > 1:
        raise ValueError(f"`steps`: got {steps}; {importance} looks at gradients of the network as it is: prune once "
                         "for every step, and take new ones")
    if evidence is not None:
        return _of_weights(evidence, tensors, shaped=importance != "activation")
    if importance != "taylor":
        raise ValueError(f"`evidence`: got none, {importance} wants prunex.evidence(model, batches, "
                         f"'{importance}')")
    found = {name: p.grad for name, p in tensors.items() if p.grad is not None}
    if not found:
        raise ValueError("`importance`: taylor looks at gradients, the parameters have none: call backward() first")
    return found


def _of_weights(evidence: Mapping[str, Tensor], tensors: Mapping[str, Tensor], shaped: bool) -> dict[str, Tensor]:
    """shaped: like its parameter."""
    if not isinstance(evidence, Mapping) or not evidence:
        raise ValueError(f"`evidence`: got {evidence!r}, wanted tensors by parameters' names")
    for name, tensor in evidence.items():
        if name not in tensors:
            raise ValueError(f"`evidence`: {name} is no parameter of the model")
        if not isinstance(tensor, Tensor):
            raise ValueError(f"`evidence`: got a {type(tensor).__name__} for {name}, wanted a tensor")
        if shaped and tensor.shape != tensors[name].shape:
            raise ValueError(f"`evidence`: got {list(tensor.shape)} for {name}, wanted {list(tensors[name].shape)}")
    return dict(evidence)


def prune(model: Model, example: Any = None, *, ratio: float | None = None, macs: float | None = None,
          parameters: float | None = None, speed_up: float | None = None, cut: Cut | None = None,
          importance: str | Scorer = "l2", evidence: Mapping[str, Tensor] | None = None, reduction: str | None = None,
          normalizer: str | None = None, scope: str = "local", steps: int = 1, round_to: int = 1,
          max_ratio: float = 1.0, layer_ratio: Mapping[str, float] | None = None,
          ignore: Sequence[str | nn.Module] = (), heads: bool = False, statistics: bool = False, seed: int = 0,
          optimizer: _modules.Optimizers | None = None) -> Pruned:
    """Makes a network physically smaller: a module in place, with its attributes and, if one is given, or a list of
    them, the optimizer's state; of an exported program or a .pt2 file a new program.

    One target: ratio, the share of the units of every group that goes; macs or parameters, what is left at most, as a
    share or a count; speed_up, multiply-accumulates before over after; or cut, what an equal network has lost, for
    loading its weights: the folder of a run or of `prunex prune`, or its structure.json; or the cut of a `Pruned` or a
    strategy, which can be pickled, or its values(), with `heads` and `statistics` as then. importance: l1, l2,
    bn_scale, lamp, fpgm, random, taylor, hessian, obdc, activation; or a function of (group, tensors by name) with one
    score per unit, of which the lowest go. evidence: by parameter, what taylor (without: `.grad`), hessian, obdc and
    activation look at, as evidence() takes it from batches. scope: local, isomorphic or global, which units are
    compared. steps: scores anew in each. round_to: channels that are left are multiples of it. max_ratio: largest share
    of a group that goes; layer_ratio: another share for layers of these names; ignore: layers whose outputs stay, by
    name, with * and ?, or as modules.

    A module's own code may not follow what its graph allows, such as attention that knows its width: such groups stay
    whole, with a warning. The module is checked against its cut graph on the example.

    Raises ValueError for a target out of reach or an unknown name; the module is then as it was.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    >>> prunex.prune(net, torch.zeros(1, 3, 8, 8), macs=0.5).model[0]
    Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1))
    """
    optimizers = () if optimizer is None else _modules.each_of(optimizer)
    if cut is not None:
        return _prune_as(cut, model, example, optimizers, heads, statistics, ratio=(ratio, None), macs=(macs, None),
                         parameters=(parameters, None), speed_up=(speed_up, None), importance=(importance, "l2"),
                         evidence=(evidence, None), reduction=(reduction, None), normalizer=(normalizer, None),
                         scope=(scope, "local"), steps=(steps, 1), round_to=(round_to, 1), max_ratio=(max_ratio, 1.0),
                         layer_ratio=(layer_ratio, None), ignore=(tuple(ignore), ()), seed=(seed, 0))
    target, value = _the_one(ratio=ratio, macs=macs, parameters=parameters, speed_up=speed_up)
    steps, seed = _arguments.whole("steps", steps), _arguments.whole("seed", seed, least=0)
    _expect_sense(importance, scope, normalizer, steps=(steps, 1), evidence=(evidence, None),
                  reduction=(reduction, None), seed=(seed, 0))
    module = _module_of(model, optimizers)
    file, name, own = _file_of(model, example)
    network, tensors = library.Network(file, name, own, heads, statistics), _tensors(model, module, file)
    limits = _limits(round_to, max_ratio, layer_ratio, _patterns(ignore, module, network))
    named = importance if isinstance(importance, str) else ""
    grounds = (_scores_by(importance, network, tensors) if callable(importance)
               else _evidence(importance, tensors, evidence, steps))

    def plan(whole: list[str]) -> library.PrunedNetwork:
        choice = library.Choice(target, value, named, reduction, normalizer, scope, limits(whole), steps, seed)
        return _planned(network, choice, grounds)

    if module is None:
        pruned = _report(_program_of(result := plan([])), result)
    else:
        with _in_place.watching_optimizers(module):
            pruned = _report(module, _in_place.cut_what_follows(module, network, plan, example, optimizers))
    if pruned.cut.empty():
        warnings.warn(f"prune: nothing was cut{_said_of((g['group'], g['kind'], g['reason']) for g in pruned.groups)}",
                      stacklevel=2)
    return pruned


def _planned(network: library.Network, choice: library.Choice,
             grounds: dict[str, Tensor] | list[list[float]]) -> library.PrunedNetwork:
    """grounds: evidence by tensor, for an importance that has a name, or the scores of one that has none."""
    try:
        return network.prune(choice, grounds) if isinstance(grounds, dict) else network.prune_by(choice, grounds)
    except ValueError as error:
        out_of_reach = "are left, wanted" in str(error)
        why = _said_of((group.name, group.kind, group.reason) for group in network.groups()) if out_of_reach else ""
        raise ValueError(f"{error}{why}") from None


def _said_of(groups: Iterable[tuple[str, str, str]]) -> str:
    """Why some stay, of (name, kind, reason); the model's input and output always do."""
    whys = [f"{name}: {reason}" for name, kind, reason in groups if reason and kind not in ("input", "output")]
    return f" ({'; '.join(whys[:3])}{'; …' if len(whys) > 3 else ''})" if whys else ""


def _cut_of(cut: Cut, heads: bool, statistics: bool) -> tuple[library.Cut, bool, bool]:
    """The cut, and how the network was analysed for it: a file says this by itself."""
    if isinstance(cut, library.Cut):
        return cut, heads, statistics
    if isinstance(cut, dict):
        return library.Cut.of_values(cut), heads, statistics
    if not isinstance(cut, (str, os.PathLike)):
        raise ValueError(f"`cut`: got a {type(cut).__name__}, wanted that of a Pruned or of a strategy, its values(), or "
                         "the path of a structure.json")
    path = Path(cut, "structure.json") if Path(cut).is_dir() else Path(cut)
    _arguments.expect_unused(f"beside `cut` {path}, which says it by itself", heads=(heads, False),
                             statistics=(statistics, False))
    try:
        return library.Cut.of_structure(path.read_text())
    except ValueError as error:
        raise ValueError(f"`cut` {path}: {error}") from None


def _prune_as(cut: Cut, model: Model, example: Any, optimizers: Sequence[torch.optim.Optimizer], heads: bool,
              statistics: bool, **idle: tuple[Any, Any]) -> Pruned:
    """idle: what says how to choose, and what it is unless told."""
    _arguments.expect_unused("beside `cut`", **idle)
    cut, *how = _cut_of(cut, heads, statistics)
    module = _module_of(model, optimizers)
    network = library.Network(*_file_of(model, example), *how)
    try:
        result = network.prune_as(cut)
    except RuntimeError as error:
        raise ValueError(f"`cut`: {error}; wanted `heads` and `statistics` as where it was made") from error
    if module is None:
        return _report(_program_of(result), result)
    try:
        with _in_place.watching_optimizers(module):
            _in_place.cut_as(module, result, example, optimizers)
    except _checked_cut.Differs as error:
        cure = _checked_cut.cure_of_heads(how[0])
        if any(isinstance(m, nn.MultiheadAttention) for m in module.modules()):
            cure = "; nn.MultiheadAttention follows none: prune the exported program, torch.export.export(model, …)"
        raise ValueError(f"`cut`: the code of {type(module).__name__} does not follow ({error}){cure}") from error
    return _report(module, result)


def _module_of(model: Model, optimizers: Sequence[torch.optim.Optimizer]) -> nn.Module | None:
    """Nothing for programs, with which no optimizer goes."""
    module = _modules.plain(model) if isinstance(model, nn.Module) else None
    for optimizer in optimizers:
        if module is None:
            raise ValueError("`optimizer`: goes with a module")
        _modules.expect_optimizer(optimizer, module.parameters())
        _modules.expect_followable(optimizer)
    return module


def _the_one(**targets: float | None) -> tuple[str, float]:
    given = [(name, _arguments.number(name, value)) for name, value in targets.items() if value is not None]
    if len(given) != 1:
        raise ValueError(f"wanted one of {', '.join(f'`{name}`' for name in targets)}, got {len(given)}")
    return given[0]


def _expect_sense(importance: str | Scorer, scope: str, normalizer: str | None, **for_names: tuple[Any, Any]) -> None:
    """for_names: what goes with importances that have a name, and what it is unless told."""
    if not isinstance(importance, str) and not callable(importance):
        raise ValueError(f"`importance`: got {importance!r}, wanted a name or a function")
    if normalizer is not None and scope == "local":
        raise ValueError("`normalizer`: with `scope` local groups are not compared; wanted isomorphic or global")
    idle, why = {**for_names, "normalizer": (normalizer, None)}, "beside an `importance` of one's own"
    if importance == "random":
        idle, why = {name: idle[name] for name in ("reduction", "normalizer")}, "beside random scores"
    elif isinstance(importance, str):
        idle, why = {"seed": idle["seed"]}, f"with {importance}, which draws nothing"
    _arguments.expect_unused(why, **idle)


def _limits(round_to: int, max_ratio: float, layer_ratio: Mapping[str, float] | None,
            ignored: list[str]) -> Callable[[list[str]], library.Limits]:
    """Of a plan that leaves groups of these names as they are: the module cannot lose them."""
    if not isinstance(layer_ratio or {}, Mapping) or not all(isinstance(name, str) for name in layer_ratio or {}):
        raise ValueError(f"`layer_ratio`: got {layer_ratio!r}, wanted a dictionary of shares by layers' names")
    shares = [(name, _arguments.number(f"layer_ratio` of `{name}", share, most=1))
              for name, share in (layer_ratio or {}).items()]
    multiple, largest = _arguments.whole("round_to", round_to), _arguments.number("max_ratio", max_ratio, most=1)
    why = "the module's code does not follow its cut"
    return lambda whole: library.Limits(multiple, largest, shares, ignored, dict.fromkeys(whole, why))


def _report(model: nn.Module | ExportedProgram, result: library.PrunedNetwork) -> Pruned:
    return Pruned(model=model, parameters=(result.before[0], result.after[0]),
                  macs=(result.before[1], result.after[1]), groups=result.groups, layers=result.layers, cut=result.cut)


def _patterns(ignore: Sequence[str | nn.Module], module: nn.Module | None, network: library.Network) -> list[str]:
    """Layers by name; a module stands for all layers in it whose outputs can be removed."""
    if isinstance(ignore, str):
        raise ValueError(f"`ignore`: got '{ignore}', wanted a list of names or modules")
    names = {id(m): name for name, m in module.named_modules()} if module is not None else {}
    makers = network.makers()
    patterns = []
    for entry in ignore:
        if isinstance(entry, str):
            patterns.append(entry)
            continue
        if id(entry) not in names:
            raise ValueError(f"`ignore`: got a {type(entry).__name__} that is no part of the model")
        inside = makers.intersection(f"{names[id(entry)]}.{name}".strip(".") for name, _ in entry.named_modules())
        if not inside:
            weighs = any(True for _ in entry.parameters())
            why = "makes no channels; wanted the layer that does" if weighs else "has no weights"
            raise ValueError(f"`ignore`: got a {type(entry).__name__}, {names[id(entry)]}, which {why}")
        patterns += map(glob.escape, sorted(inside))
    return patterns


def _tensors(model: Model, module: nn.Module | None, file: bytes) -> dict[str, Tensor]:
    if module is not None:
        return dict(module.named_parameters())
    program = model if isinstance(model, ExportedProgram) else torch.export.load(io.BytesIO(file))
    return dict(program.named_parameters())


def _program_of(result: library.PrunedNetwork) -> ExportedProgram:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pruned.pt2")
        result.write(path)
        return torch.export.load(path)


class Sparsifier:
    """Adds a penalty's gradients to those of a module's parameters: call it after backward()."""

    def __init__(self, model: nn.Module, penalty: str, penalties: library.Penalties) -> None:
        self._model = model
        self._penalty = penalty
        self._penalties = penalties
        self.refresh(0.0)

    def __call__(self, factor: float = 1.0) -> None:
        """After backward(), before the optimizer's step. factor: scales the strength, as for a warm-up."""
        factor = _arguments.number("factor", factor)
        self._penalties.add_to_gradients(_modules.trained(self._model), factor)

    def refresh(self, epochs: float = 1.0) -> None:
        """New coefficients from the weights as they are; of ranks that hold the same. epochs: passed since the last
        call."""
        self._penalties.refresh(dict(self._model.named_parameters()), epochs)

    def state_dict(self) -> dict[str, Any]:
        """The coefficients, which growing alone does not find again in the weights."""
        return {"penalty": self._penalty, **self._penalties.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Of the same penalty on a module of the same shapes; else ValueError."""
        coefficients, own = {name: state[name] for name in state if name != "penalty"}, self._penalties.state()
        if (penalty := state.get("penalty")) != self._penalty:
            raise ValueError(f"load_state_dict: got a state of {penalty!r}, wanted one of {self._penalty!r}")
        for name in sorted(coefficients.keys() | own.keys()):
            if name not in coefficients or name not in own or coefficients[name].shape != own[name].shape:
                raise ValueError(f"load_state_dict: got a state of another module: {name} differs")
        self._penalties.load(coefficients)


def sparsify(model: nn.Module, example: Any, penalty: str = "group_norm", *, strength: float | None = None,
             growth: float | None = None, ignore: Sequence[str | nn.Module] = ()) -> Sparsifier:
    """Sparse training: drives whole units towards zero, so that prune() costs little afterwards.

        penalties = prunex.sparsify(model, images[:1])
        for epoch in range(epochs):
            for images, labels in loader:
                criterion(model(images), labels).backward()
                penalties()
                optimizer.step()
            penalties.refresh()  # by the weights of now; growing grows here alone
        prunex.prune(model, images[:1], macs=0.5)

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    >>> x = torch.randn(2, 3, 8, 8)
    >>> penalties = prunex.sparsify(net, x, "group_lasso", strength=0.1)
    >>> net(x).square().mean().backward()
    >>> before = net[0].weight.grad.clone()
    >>> penalties()
    >>> bool(((net[0].weight.grad - before) * net[0].weight > 0).all())
    True

    penalty: bn_scale, group_bn_scale, group_norm, growing or group_lasso (docs/pruning.md); strength: without, what is
    usual for it; growth: of growing, with each refresh(), 1e-4 unless told; ignore: layers whose outputs get no
    penalty, as prune() has it.
    """
    if penalty not in (known := library.penalties()):
        raise ValueError(f"`penalty`: got {penalty!r}, wanted one of {', '.join(known)}")
    strength = None if strength is None else _arguments.number("strength", strength)
    if strength == 0 and (penalty != "growing" or growth == 0):
        raise ValueError("`strength`: got 0, which adds nothing; wanted more")
    if growth is not None and penalty != "growing":
        raise ValueError(f"`growth`: has no effect with {penalty}; it is of growing")
    growth = _arguments.number("growth", 1e-4 if growth is None else growth)
    plain = _modules.plain(model)
    _modules.trained(plain)
    network = library.Network(*_file_of(model, example))
    ignored = _patterns(ignore, plain, network)
    try:
        return Sparsifier(plain, penalty, library.Penalties(network, penalty, strength, growth, ignored))
    except ValueError as error:
        raise ValueError(str(error).replace("`sparse`", "`penalty`")) from None
