"""LocalSGD, DiLoCo and HSADMM under a training loop of one's own."""

from __future__ import annotations

import contextlib
import datetime
import functools
import warnings
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import torch
import torch.distributed as dist
from torch import Tensor, nn

from prunex import (_arguments, _before_exchange, _checked_cut, _checkpoints, _in_place, _modules, _pull, _ranks,
                    _steps)
from prunex._library import library
from prunex._resuming import Resumable

if TYPE_CHECKING:
    from prunex._options import StrategyOptions

Exchange = library.Exchange


def _in_words_of_loops(message: str) -> str:
    """The command has another name for the interval."""
    return message.replace("`local_steps`", "`sync_every`").replace("more `epochs`", "a larger `total_steps`")


def _made(name: str, model: nn.Module, *arguments: Any) -> library.Strategy:
    try:
        return library.Strategy(name, *_modules.weights(model), *arguments)
    except ValueError as error:
        raise ValueError(_in_words_of_loops(str(error))) from None


def _versions(model: nn.Module) -> list[int]:
    """How often the weights have been changed in place."""
    return [p._version for p in _modules.trained(model).values()]


def _are_equal(own: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> bool:
    return all(name in own and torch.equal(own[name], value) for name, value in values.items())


class _Strategy(Resumable):
    _name = ""
    _pulls = False  # weights towards an anchor, as hard as the learning rates let it
    _masks_unless_told = False  # what `groups` means by "auto"

    _follows = True  # the module's code can do without what goes
    _counted: _steps.CountedSteps | None = None
    _finished = False
    _finished_after: int | None = None  # the step; None: since then the loop was entered again
    _frozen: dict[str, tuple[int, int]] | None = None  # parameters without gradients: which tensor, and its version
    _begun: tuple[int, list[int]] = (0, [])  # steps, and versions of the weights
    _mixes_rows: bool | None = None  # an optimizer does, in a state that no mask reaches

    def __init__(self, model: nn.Module, optimizer: _modules.Optimizers, sync_every: int = 50, *,
                 total_steps: int | None = None, example: Any = None,
                 learning_rate: float | Callable[[int], float] | None = None,
                 process_group: dist.ProcessGroup | None = None, ranks_per_node: int | None = None,
                 timeout: float | datetime.timedelta = 1800, **options: Unpack[StrategyOptions]) -> None:
        """Broadcasts rank 0's weights; collective, with the same arguments on all ranks.

        model: any module with parameters of float32 or of float64, on one device. optimizer: any, of its parameters;
        or several in the order in which they step, of which the last one's steps count. sync_every: optimizer steps
        between exchanges. total_steps: of the run; masks want it. example: a tensor, or a tuple of positional
        arguments, that the model can be exported with; masks want it. learning_rate: of the optimizer, the largest of
        its groups, as a number or a function of step 1, 2, …, which the pull of ADMM follows; without, that of the
        optimizer now. process_group: its ranks, node by node; without, all of torch.distributed,
        or this process alone. ranks_per_node: without, as the launcher says. timeout: seconds, or a timedelta, to wait
        for another rank in an exchange.
        options: as the command's of these names, docs/options.md: `payload="int2"`, `groups="coupled-inner"`,
        `keep="macs=0.5"`, `outer_lr=1`, …

        Raises ValueError that names the option, what was got and what was wanted; in the loop, RuntimeError if a rank
        is lost, FloatingPointError before an exchange of numbers that are not finite.
        """
        super().__init__()
        if total_steps is None and options.get("overlap"):
            raise ValueError("`overlap`: wants `total_steps`, to wait for the last exchange")
        self.model = _modules.plain(model, ": a strategy takes the place of averaging gradients in every step, which "
                                           "prunex.comm_hook makes smaller")
        self.optimizers = _modules.each_of(optimizer)
        self.optimizer = self.optimizers[-1]
        """Whose steps count."""
        self.sync_every, timeout = _arguments.whole("sync_every", sync_every), _arguments.seconds(timeout)
        self.total_steps = None if total_steps is None else _arguments.whole("total_steps", total_steps)
        self.step = 0
        """Optimizer steps so far."""
        self.exchange: Exchange | None = None
        """What the last exchange did."""
        self._example, self._process_group = example, process_group
        self._options = {name: _arguments.word(name, value) for name, value in options.items()}
        self._pulls = self._pulls and self._options.get("kappa") not in ("0", "0.0")
        self._wants_all = self._pulls or example is not None
        _modules.expect_trained(self.model, self.optimizers, whole=self._wants_all)
        _modules.expect_exchangeable(self.model)
        self._trained = frozenset(_modules.trained(self.model))
        self._has_masks = self._check_masks()
        self._pull = self._pull_of(learning_rate)
        program = None if example is None else _modules.exported(self.model, example)
        self._settings = self._settings_of_run()
        _ranks.expect_equal({**self._settings, "total_steps": str(self.total_steps),
                             "example": str(example is not None), "ranks_per_node": str(ranks_per_node),
                             "timeout": str(timeout)}, process_group)
        self._ranks = _ranks.join(process_group, ranks_per_node, timeout)
        self._make: Callable[[], library.Strategy] | None = self._maker(program)  # until the loop begins
        self._strategy = self._make()
        self._expect_channels()
        self._overlap = int(self._options.get("overlap", 0))
        self._share_frozen()
        self._on_gpu = any(p.is_cuda for p in self.model.parameters())
        for doubt in self._doubts(program):
            warnings.warn(doubt, stacklevel=2)
        self._outside = _steps.warn_of_steps_outside(self, self.optimizer)

    def _check_masks(self) -> bool:
        """Whether there will be masks. Raises ValueError unless they have what they want."""
        groups, has_example = self._options.get("groups", "auto"), self._example is not None
        wanted = self._masks_unless_told if groups == "auto" else groups != "none"
        if has_example and not wanted:
            without = " without `groups`" if groups == "auto" else f" with `groups` {groups}"
            raise ValueError(f"`example`: {self._name} masks nothing{without}")
        if wanted and not has_example:
            raise ValueError("`example`: got none; masks want inputs of the model, to find which channels live and die "
                             "together")
        if has_example and self.total_steps is None and ({"prune_end", "freeze_after"} - self._options.keys()):
            raise ValueError("`total_steps`: got none; masks want it, or `prune_end` and `freeze_after`")
        return wanted

    def _expect_channels(self) -> None:
        if not self._has_masks or self._strategy.masks():
            return
        none = (f"`groups`: got {self._options.get('groups', 'auto')}, in which {type(self.model).__name__} has no "
                "channels that can go")
        if self._pulls:
            raise ValueError(f"{none}, so ADMM has nothing to agree on; prunex.groups(model, example) says why")
        warnings.warn(f"{none}: nothing is masked; prunex.groups(model, example) says why", stacklevel=3)

    def _pull_of(self, learning_rate: float | Callable[[int], float] | None) -> _pull.Pull | None:
        if not self._pulls and learning_rate is not None:
            raise ValueError(f"`learning_rate`: {self._name} has no pull that follows it")
        if not self._pulls:
            return None
        if self.total_steps is None:
            raise ValueError("`total_steps`: got none; ADMM wants it, as its pull follows the learning rates to come")
        if len(self.optimizers) > 1:
            raise ValueError(f"`optimizer`: got {len(self.optimizers)}; the pull of ADMM follows the rates of one, "
                             "wanted one, or `kappa=0`, which goes without")
        return _pull.Pull(self.optimizers[0], learning_rate, self.total_steps)

    def _settings_of_run(self) -> dict[str, str]:
        """What a state goes on under: the same on all ranks and where it is loaded."""
        settings = {"strategy": self._name, "sync_every": str(self.sync_every), **self._options}
        if self._has_masks or self._pulls or settings.get("overlap", "0") != "0":
            settings["total_steps"] = str(self.total_steps)
        return settings if self._pull is None else settings | self._pull.settings()

    def _maker(self, program: bytes | None) -> Callable[[], library.Strategy]:
        """Of a strategy that begins from the weights which the module has then."""
        rates = [1.0] if self._pull is None else self._pull.rates
        return functools.partial(_made, self._name, self.model, list(self._options.items()), self.sync_every,
                                 self.total_steps or 0, _pull.momentum_of(self.optimizers), rates, self._ranks, program)

    def _doubts(self, program: bytes | None) -> list[str]:
        """What may be other than was meant."""
        doubts = self._ranks.doubts_of(self._options.get("payload"))
        if self._on_gpu and dist.is_initialized() and "cuda:gloo" in dist.get_backend_config(self._process_group):
            doubts.append("`process_group`: what lies on GPUs goes by way of the host in Gloo; wanted "
                          'init_process_group("cpu:gloo,cuda:nccl")')
        doubts += map(_in_words_of_loops, self._strategy.doubts())
        if others := _modules.moved_elsewhere(self.model, self.optimizers):
            doubts.append(f"`optimizer`: it also moves {others} parameters that are not of `model`: no exchange has "
                          "them, so they differ between ranks; wanted one module that holds them all")
        if self._has_masks and program is not None:
            doubts += self._doubts_of_code(program)
        return doubts

    def _doubts_of_code(self, program: bytes) -> list[str]:
        """That cut() will not do."""
        heads = self._options.get("heads") == "true"
        network, masked = library.Network(program, "the exported module", True, heads), self._strategy.masks()
        spared = network.ignored([pattern for pattern in self._options.get("ignore", "").split(",") if pattern])
        groups = [name for name in network.removable() if name in masked and name not in spared]
        if not groups or not (fixed := _in_place.not_followed(self.model, network, groups, self._example)):
            return []
        return [f"`groups`: {_in_place.does_not_follow(self.model, fixed)}: cut() will leave the module whole, under its masks; "
                f"`ignore` spares layers{_checked_cut.cure_of_heads(heads)}"]

    def __repr__(self) -> str:
        return (f"<prunex.{type(self).__name__} of {type(self.model).__name__}: every {self.sync_every} steps, after "
                f"step {self.step}>")

    def __enter__(self) -> Self:
        steps = _steps.CountedSteps(type(self).__name__, self.model, self.optimizers, self._before_update,
                                    self._after_update)
        try:
            with self._as_made():
                self._begin()
                self._begun = (self.step, _versions(self.model))
                self._frozen = _modules.frozen(self.model)
        except BaseException:
            steps.end()
            raise
        self._outside.remove()
        self._counted, self._entered, self._finished_after = steps, True, None
        return self

    def _begin(self) -> None:
        """What the module has become since the strategy was made, by load_state_dict() say, is what it begins from;
        after the end of a training there is no more beginning. Collective."""
        if self._make is None and not self._finished:
            return
        params, buffers = self._strategy.product()
        if self._make is None:
            buffers = {}  # statistics may have been estimated anew
        own, own_buffers = _modules.weights(self.model)
        changed = not _are_equal(own, params) or not _are_equal(own_buffers, buffers)
        changed |= self._make is not None and _before_exchange.moved(params | buffers, own | own_buffers) is not None
        changed = any(_ranks.gathered(changed, self._process_group))
        if self._make is None and changed:
            raise ValueError("`model`: its weights were changed after the end of the training, which a strategy would "
                             f"take for a step of its own; wanted a new {type(self).__name__}")
        if self._make is not None:
            self._share_frozen()
            if changed:
                self._strategy = self._make()
        self._make = None

    def _share_frozen(self) -> None:
        """No exchange has them: the ranks begin with those of the first one."""
        _ranks.make_equal([p for p in self.model.parameters() if not p.requires_grad], self._process_group)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._counted is not None:
            self._counted.end()
        if kind is None:
            if self._finished_after != self.step:  # what came after it, such as statistics estimated anew, stays
                self.finish()
        elif self._on_its_way():
            self._ranks.give_up()  # whether it ends well nobody hears

    def _before_update(self) -> None:
        if self._on_gpu and torch.cuda.is_current_stream_capturing():
            raise ValueError("`optimizer`: its step() is recorded in a CUDA graph, whose replays would exchange "
                             "nothing; wanted forward and backward in the graph, step() behind it")
        if self._pull is not None and (doubt := self._pull.doubt()):
            warnings.warn(doubt, stacklevel=4)
        rates = None if self._pull is None else self._pull.rates_beside(self.model)
        self._strategy.before_update(rates)

    def _after_update(self) -> None:
        self.step += 1
        if self._masked and self._cut is None and self._do_rows_mix():
            self._strategy.mask(dict(_modules.trained(self.model)))
        ends_interval = self.step % self.sync_every == 0 or self.step == self.total_steps
        exchanges = ends_interval or self.step % self.sync_every == self._overlap
        with self._as_made() if exchanges else contextlib.nullcontext():
            if exchanges:
                self._look_again()
            if ends_interval:
                self._meet(ends=False)
            self._note(self._strategy.after_update(self.step))

    def _do_rows_mix(self) -> bool:
        if self._mixes_rows is None:
            self._mixes_rows = _modules.mixes_rows(self.model, self.optimizers)
        return self._mixes_rows

    def _note(self, exchange: Exchange | None) -> None:
        if exchange is None:
            return
        self.exchange, self._mixes_rows = exchange, None
        self._synced, self._landed = self._on_its_way() or self.step, self.step
        if exchange.frozen and not self._masked:
            self._mask_optimizer()

    def _meet(self, ends: bool) -> list[_before_exchange.Standing]:
        """Before an exchange: where every rank stands."""
        return _before_exchange.meet(self._ranks, self.model, self.step, ends, has_news=self.step > self._synced)

    def _on_its_way(self) -> int:
        """The step after which the exchange began that runs beside the loop (`overlap`); 0: there is none."""
        begun = self.step - self.step % self.sync_every
        return begun if self._synced < begun else 0

    def _look_again(self) -> None:
        """The module's tensors may be other objects by now."""
        own = _modules.weights(self.model)
        was = self._strategy.product()
        _before_exchange.expect_same_tensors(was, own)
        if self._has_masks and self._cut is None:
            _before_exchange.expect_same_layout(was[0] | was[1], own[0] | own[1])
        _modules.expect_trained(self.model, self.optimizers, whole=self._wants_all)
        self._strategy.set_weights(*own)
        self._doubt_frozen()

    def _doubt_frozen(self) -> None:
        """Warns, once, of what moves and is never exchanged."""
        if self._frozen is None:
            return
        now = _modules.frozen(self.model)
        if moved := sorted(name for name, seen in self._frozen.items() if now.get(name, seen) != seen):
            self._frozen = None
            warnings.warn(f"`model`: {moved[0]} takes no gradients, but the loop changes it: no exchange has it, so it "
                          "differs between ranks; wanted a buffer, which is averaged", stacklevel=5)

    def _mask_optimizer(self) -> None:
        for state in _modules.optimizer_state(self.model, self.optimizers).values():
            self._strategy.mask(state)
        self._masked = True

    def finish(self) -> None:
        """Ends the training: exchanges what the last steps have changed, makes the masks final if they are not, and
        leaves z in the module, the same on all ranks. Collective; leaving the context calls it, unless that has been
        done after the last step."""
        if not self._entered:
            raise ValueError(f"finish: no step was counted, wanted `with` this {type(self).__name__} around the loop")
        with self._as_made():
            self._finish()

    def _finish(self) -> None:
        uncounted = self._begun[0] == self.step and self._begun[1] != _versions(self.model)
        self._look_again()
        if (on_its_way := self._on_its_way()) and self.total_steps is not None:
            self._note(self._strategy.after_update(min(on_its_way + self._overlap, self.total_steps - 1)))
        everyone = self._meet(ends=True)
        if any(rank.has_news for rank in everyone):
            intervals = max(-(-rank.step // self.sync_every) for rank in everyone)
            end = self.total_steps if self._overlap else None
            self._note(self._strategy.after_update(end or intervals * self.sync_every))
        self._strategy.finish()
        if uncounted:
            raise ValueError("`optimizer`: no step of it was counted, though the weights of the model have changed; "
                             "wanted the optimizer whose step() the loop calls")
        _modules.copy_weights(self.model, *self._strategy.product())
        self._finished, self._finished_after = True, self.step
        if self._has_masks and not self._masked:
            of = "" if self.total_steps is None else f" of {self.total_steps}"
            warnings.warn(f"{type(self).__name__}: ended after step {self.step}{of}, before its masks were final: what "
                          "they had still to lose is gone untrained", stacklevel=4)
            self._mask_optimizer()

    def product(self) -> dict[str, Tensor]:
        """A copy of z, what the ranks agree on: parameters and buffers by their names in the module. Buffers are each
        rank's own before the end where `payload` rounds."""
        params, buffers = self._strategy.product()
        return {name: tensor.clone() for name, tensor in (params | buffers).items()}

    def masks(self) -> dict[str, Tensor]:
        """bool[units] by group: the units that are alive."""
        return self._strategy.masks()

    @property
    def sent_bytes(self) -> int:
        """What the exchanges of this rank have sent so far, bytes."""
        return self._strategy.sent_bytes()

    @property
    def sent_bytes_between_nodes(self) -> int:
        """Of those, to ranks on other nodes."""
        return self._strategy.sent_to_nodes()

    def cut(self) -> library.Cut | None:
        """Makes module, optimizer state and strategy physically smaller, in place, once the masks are final: from the
        next step on computing, memory and messages are those of the small network. Call it on all ranks after the same
        exchange. The module's parameters are new objects afterwards. Returns what has gone; later calls, also after
        resume(), return it again and do nothing. None before the masks are final, while an exchange is on its way
        (`overlap`), if nothing can go, or, with a warning, if the module's own code does not follow: it trains on with
        masks then."""
        if not self._has_masks:
            raise ValueError("cut: there are no masks, wanted `example` and `groups`")
        if self._cut is not None or not self._masked or not self._follows or self._on_its_way():
            return self._cut
        removable = self._strategy.removable()
        if removable.empty():
            return None
        with self._as_made():
            return self._cut_off(removable)

    def _cut_off(self, removable: library.Cut) -> library.Cut | None:
        undo: Callable[[], None] | None = None

        def apply() -> str:
            nonlocal undo
            try:
                undo = self._apply(removable)
            except _checked_cut.Differs as error:
                return str(error)
            return ""

        def go_back() -> None:
            if undo is not None:
                undo()

        why = _checkpoints.all_or_none(apply, self._process_group, go_back)
        whys = [said for said in _ranks.gathered(why, self._process_group) if said]
        if whys:
            self._follows = False
            go_back()
            cure = _checked_cut.cure_of_heads(self._options.get("heads") == "true")
            warnings.warn(f"cut: the code of {type(self.model).__name__} does not follow ({whys[0]}): the module stays "
                          f"whole, under its masks; prunex.prune can cut it when it is exported{cure}", stacklevel=3)
            return None
        self._cut = removable
        self._strategy.cut(removable, *_modules.weights(self.model))
        if self._frozen is not None:
            self._frozen = _modules.frozen(self.model)
        return removable

    def _apply(self, cut: library.Cut) -> Callable[[], None]:
        """Returns what undoes it. Raises Differs, with everything as it was, if the module computes something else
        without what is masked."""
        example = _modules.arguments_of(self._example)
        arguments = _checked_cut.probes(self.model, example)
        training = _checked_cut.trains_with(self.model, example, stacklevel=7)
        own = _modules.trained(self.model)

        def wanted(values: Mapping[str, Tensor]) -> list[Tensor]:
            self._strategy.mask({name: value for name, value in values.items() if name in own})
            with _modules.holding(self.model, values):
                return _checked_cut.evaluated(self.model, arguments)

        return _checked_cut.cut_checked(self.model, cut, self.optimizers, self._strategy.layer_groups(cut), arguments,
                                        wanted, training)


class LocalSGD(_Strategy):
    """Averages the weights of all ranks after every `sync_every` optimizer steps.

    >>> net = nn.Linear(4, 2)
    >>> optimizer = torch.optim.SGD(net.parameters(), 0.1)
    >>> with prunex.LocalSGD(net, optimizer, sync_every=5) as local:
    ...     for _ in range(12):
    ...         optimizer.zero_grad()
    ...         net(torch.randn(8, 4)).square().mean().backward()
    ...         optimizer.step()
    >>> local.exchange.index  # after steps 5, 10 and the last one
    3
    """

    _name = "local_sgd"


class DiLoCo(_Strategy):
    """Local steps, then an outer Nesterov step with the mean change of all ranks (arXiv 2311.08105). `outer_lr` and
    `outer_momentum` are 0.7 and 0.9 unless told; with rounded payloads our runs use 1 and 0.5.

    >>> net = nn.Linear(4, 2)
    >>> optimizer = torch.optim.AdamW(net.parameters(), 0.01)
    >>> with prunex.DiLoCo(net, optimizer, sync_every=40, payload="int2", outer_lr=1, outer_momentum=0.5) as diloco:
    ...     for _ in range(80):
    ...         optimizer.zero_grad()
    ...         net(torch.randn(8, 4)).square().mean().backward()
    ...         optimizer.step()
    >>> diloco.exchange.index, diloco.sent_bytes  # there are no other ranks
    (2, 0)
    """

    _name = "diloco"


class HSADMM(_Strategy):
    """Hierarchical structured ADMM (arXiv 2512.14628, corrected): nodes agree on masks while they train. Wants
    `total_steps` and, unless `groups` is "none", `example`.

    >>> net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> optimizer = torch.optim.SGD(net.parameters(), 0.1)
    >>> with prunex.HSADMM(net, optimizer, 5, total_steps=100, example=torch.randn(8, 4), keep=0.5) as training:
    ...     for _ in range(100):
    ...         optimizer.zero_grad()
    ...         net(torch.randn(8, 4)).square().mean().backward()
    ...         optimizer.step()
    ...         cut = training.cut()
    >>> net[0]
    Linear(in_features=4, out_features=8, bias=True)
    """

    _name = "hsadmm"
    _pulls = True
    _masks_unless_told = True
