"""The training of this process: its replicas, its loops, and where in the script it is.

It begins with the first epoch, or the first loop over an AdaptiveDataLoader outside of epochs, once there is an
AdaptiveDataParallel: then all that belongs to its state exists. Until then a process on a cluster is alone, whoever
else runs the same script; so is one that has no model to train.
"""

import pickle
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import torch
from tidepool import rank_process
from tidepool.env import adaptdl_variable, rank_context
from tidepool.torch.adaptive.adaptation import Adaptive
from tidepool.torch.adaptive.scaling_rules import Rule
from tidepool.torch.comm.gather import gather_bytes
from tidepool.torch.comm.process_group import Group
from tidepool.torch.comm.standalone_group import meet
from tidepool.torch.rank.error_hints import ErrorHints
from tidepool.torch.rank.object_patches import adopt_others, refuse_validation, watch_backward
from tidepool.torch.rank.options import Options
from tidepool.torch.rank.script_loop import ScriptLoop
from tidepool.torch.rank.training_loop import TrainingLoop
from tidepool.torch.rank.unsupported import bare_model
from tidepool.torch.rank.volatile_state import saved

from adaptdl import _standalone
from adaptdl._ledger import OUTSIDE, Kept, Ledger

__all__ = ["Parallel", "Source", "Training", "training"]

_WORDS = ErrorHints(
    outside=(
        "loss.backward() outside of a loop over the AdaptiveDataLoader of the training: take batches from it, while "
        "the model is in train mode"
    ),
    give="Give each learning-rate scheduler to its AdaptiveDataParallel",
    pieces="Give the AdaptiveDataLoader a larger batch_size instead",
)


class Parallel(Protocol):
    """An AdaptiveDataParallel, as far as the training knows it."""

    name: str
    optimizer: torch.optim.Optimizer
    lr_scheduler: Any
    mp_scaler: torch.amp.GradScaler | None

    @property
    def module(self) -> torch.nn.Module: ...

    @property
    def rule(self) -> tuple[Rule, float]:
        """The rule of learning rates, and the samples of its warm-up."""
        ...

    def factors(self) -> Sequence[float] | None:
        """Return factors of learning rates by a rule of the script's own; None: there is none."""
        ...


class Waits(Protocol):
    """A process's turn to prepare files, before its training begins."""

    def take(self) -> None: ...

    def give(self) -> None: ...


class Source(Protocol):
    """The part of an AdaptiveDataLoader that stays when it is not iterated."""

    batch_size: int
    max_batch_size: int | None
    local_bsz_bounds: tuple[int | None, int | None] | None
    accumulates: bool


@dataclass
class _Place:
    """The place of the script in its loops."""

    epoch: int | None = None
    #: Loops begun, and collective calls made between loops, by epoch.
    begun: Counter[str] = field(default_factory=Counter)
    called: Counter[str] = field(default_factory=Counter)
    #: Accumulators made.
    made: Counter[str] = field(default_factory=Counter)
    #: Loader of the loop under way, and whether that loop is one of the training's.
    source: Source | None = None
    trains: bool = False
    #: Work that is left after a loop that the script has left: done at the script's next call.
    left: Callable[[], None] | None = None
    #: The session does not know yet that an epoch of the script is over, or a loop outside of all.
    epoch_is_over: bool = False
    loop_is_over: bool = False

    @property
    def key(self) -> str:
        return OUTSIDE if self.epoch is None else str(self.epoch)


class Training:
    def __init__(self) -> None:
        self.ledger = Ledger()
        self.sums = _Sums(self.ledger)
        self.place = _Place()
        self.parallels: list[Parallel] = []
        #: The first loader that was made, and the one of the training, once it is known.
        self.first: Source | None = None
        self.trained: Source | None = None
        self.training_loop: TrainingLoop | None = None
        self.script_loop: ScriptLoop | None = None
        #: Off a cluster, several processes that have met by an address.
        self.group: Group | None = None
        self._kept_for_group: object = None
        #: States of the script's, by name.
        self.states: dict[str, Kept] = {}
        self.turn: Waits | None = None
        self._put_back: Callable[[], None] | None = None
        self._has_stepped: list[torch.optim.Optimizer] = []
        self._has_warned = False

    # --- membership ------------

    @property
    def rank(self) -> int:
        if self.training_loop is not None:
            return self.training_loop.rank
        if self.group is not None:
            return self.group.rank
        return int(adaptdl_variable("REPLICA_RANK") or 0) if self.is_standalone else 0

    @property
    def size(self) -> int:
        if self.training_loop is not None:
            return self.training_loop.world_size
        if self.group is not None:
            return self.group.size
        return int(adaptdl_variable("NUM_REPLICAS") or 1) if self.is_standalone else 1

    @property
    def hosts(self) -> int:
        if not self.is_standalone:
            return self.training_loop.transitions.hosts if self.training_loop is not None else 1
        return int(adaptdl_variable("NUM_NODES") or self.size)

    @property
    def restarts(self) -> int:
        if not self.is_standalone:
            return self.training_loop.group.generation - 1 if self.training_loop is not None else 0
        return int(adaptdl_variable("NUM_RESTARTS") or 0)

    @property
    def is_standalone(self) -> bool:
        return rank_context() is None

    def meet(self, address: str, port: int, rank: int | None, size: int | None, device: torch.device) -> None:
        """Form a group of so many processes, off a cluster. None: as the variables say."""
        rank = self.rank if rank is None else rank
        size = self.size if size is None else size
        if size > 1 and self.is_standalone and self.group is None:
            host = "127.0.0.1" if address == "0.0.0.0" else address  # noqa: S104 - nothing is bound to it
            self.group, self._kept_for_group = meet(host, port, rank, size, device)

    def wait_for_turn(self) -> None:
        """On a cluster: be the only process that prepares files, if the first one has not come through yet."""
        if self.turn is not None and self.training_loop is None:
            self.turn.take()

    def come_through(self) -> None:
        if self.turn is not None:
            self.turn.give()

    def add(self, parallel: Parallel) -> None:
        if self.training_loop is not None:
            raise RuntimeError("make every AdaptiveDataParallel before the first epoch, or loop over a loader, begins")
        if any(parallel.name == other.name for other in self.parallels):
            raise ValueError(f"there is an AdaptiveDataParallel {parallel.name!r} already: give each a name of its own")
        self.parallels.append(parallel)

    def joins(self) -> bool:
        """Begin the training, if there is one. False: this process is alone and trains nothing."""
        if self.training_loop is None and (self.parallels or self.group is not None):
            self._join()
        return self.training_loop is not None

    def _join(self) -> None:
        self.come_through()
        context = rank_context()
        refuse_validation(context)
        training_loop = TrainingLoop(self._model(), self._optimizers(), self._options())
        schedulers = self._schedulers()
        script_loop = ScriptLoop(training_loop, {**schedulers, "accumulators": self.sums}, _WORDS)
        script_loop.factors = self._factors
        training_loop.total_epochs = None
        training_loop.before_change = self.share
        scalers = [item.mp_scaler for item in self.parallels if item.mp_scaler is not None]
        adopt_others(script_loop, scalers, list(schedulers.values()))
        watch_backward(script_loop)
        if context is None:
            _standalone.begin(training_loop, self.save)
        training_loop.join()
        self.training_loop, self.script_loop = training_loop, script_loop
        self._see_what_is_done(training_loop, script_loop)
        rank_process.at_success(self._finish)

    def _see_what_is_done(self, training_loop: TrainingLoop, script_loop: ScriptLoop) -> None:
        """Others have trained before: what the script does until it comes to where they are is a replay."""
        if not training_loop.position.operation:
            return
        if training_loop.position.has_begun or self.ledger.loops[OUTSIDE]:
            self._put_back = saved(script_loop.registered, training_loop.transitions.state)
        for optimizer in training_loop.optimizers.values():
            optimizer._opt_called = True  # type: ignore[attr-defined]  # else a schedule that follows it complains

    def _model(self) -> torch.nn.Module:
        models = {item.name: bare_model(item.module) for item in self.parallels}
        if not models:  # nothing is trained: the processes share their loops and sums alone
            return torch.nn.ParameterDict({"nothing": torch.nn.Parameter(torch.zeros(1))})
        return next(iter(models.values())) if len(models) == 1 else torch.nn.ModuleDict(models)

    def _optimizers(self) -> dict[str, torch.optim.Optimizer]:
        if not self.parallels:
            return {"nothing": torch.optim.SGD(self._model().parameters(), 0.0)}
        return {item.name: item.optimizer for item in self.parallels}

    def _schedulers(self) -> dict[str, Any]:
        return {f"{item.name}/lr_scheduler": item.lr_scheduler for item in self.parallels if item.lr_scheduler}

    def _options(self) -> Options:
        source = self.trained or self.first
        scaler = next((item.mp_scaler for item in self.parallels if item.mp_scaler is not None), None)
        return Options(
            effective_batch_size=source.batch_size if source else 1,
            registered={**self._schedulers(), "adaptdl": self.ledger},
            scaler=scaler,
            adaptive=self._adaptive(self.trained) if self.trained and self.trained.max_batch_size else None,
            group=self.group,
        )

    def _adaptive(self, source: Source) -> Adaptive:
        assert source.max_batch_size is not None
        low, high = source.local_bsz_bounds or (None, None)
        bounds = (low or 1, high or source.max_batch_size) if source.local_bsz_bounds else None
        rule, warm_up_samples = self.parallels[0].rule if self.parallels else ("auto", 0.0)
        return Adaptive(
            source.max_batch_size,
            bounds,
            source.accumulates,
            rule,
            warm_up_steps=round(warm_up_samples / source.batch_size),
        )

    @property
    def stands_in(self) -> bool:
        """Return whether other replicas compute the batch that this one has: what it adds up would count twice."""
        return self.script_loop is not None and self.script_loop.stands_in

    # --- epochs ---

    def epochs(self, until: int) -> Iterator[int]:
        if self.place.epoch is not None:
            raise RuntimeError("an epoch loop in another one: let the first remaining_epochs_until() end before")
        self.settle()
        self.end_loop_outside()
        if self.joins():
            assert self.training_loop is not None
            self.training_loop.total_epochs = until
        while self.ledger.finished < until:
            self.place.epoch = number = self.ledger.finished
            if self.training_loop is not None:
                self.training_loop.generators.begin_epoch()
            try:
                yield number
            finally:
                self._leave_epoch()
            self.settle()

    def _leave_epoch(self) -> None:
        """The script has come to its end, or to a `break`, where nothing may be raised."""
        self.ledger.end_epoch(self.place.key)
        for counted in (self.place.begun, self.place.called, self.place.made):
            del counted[self.place.key]
        self.place.epoch, self.place.epoch_is_over = None, True
        self._put_back = None

    def settle(self) -> None:
        """The script goes on to the next thing: end what it has left."""
        left, self.place.left = self.place.left, None
        if left is not None:
            left()
        if self.script_loop is not None and self.place.source is None:
            self.script_loop.close()
        if self.place.epoch_is_over:
            self.place.epoch_is_over = False
            self._end_epoch()

    def end_loop_outside(self) -> None:
        """A loop outside of epochs is an epoch of its own, to which belongs what the script does after it."""
        if self.place.loop_is_over:
            self.place.loop_is_over = False
            self._end_epoch()

    def _end_epoch(self) -> None:
        if self.training_loop is not None:
            self.training_loop.end_epoch()

    def _finish(self) -> None:
        """The script has ended without an error: leave together."""
        self.settle()
        training_loop = self.training_loop
        assert training_loop is not None
        if self.place.loop_is_over:
            training_loop.total_epochs = training_loop.position.epoch + 1
            self.end_loop_outside()
        training_loop.finish(lambda folder: training_loop.save_weights("model_epoch_final"))

    # --- loops ---

    def begins_loop(self, source: Source) -> bool:
        """The script begins to iterate over a loader. False: the others have completed this loop."""
        place = self.place
        if place.source is not None:
            raise RuntimeError("a loop over an AdaptiveDataLoader in another one: they would divide no data")
        number = place.begun[place.key]
        place.begun[place.key] += 1
        return number >= self.ledger.loops[place.key]

    def begin_training_loop(self) -> None:
        training_loop, script_loop = self.training_loop, self.script_loop
        assert training_loop is not None
        assert script_loop is not None
        self.end_loop_outside()
        put_back, self._put_back = self._put_back, None
        if put_back is not None:  # the script changed this while it caught up
            put_back()
        if training_loop.transitions.state.carried:
            script_loop.carry_on()
        if self.place.epoch is None:
            training_loop.generators.begin_epoch()
        training_loop.generators.begin_steps()
        training_loop.position.has_begun = self.place.epoch is not None

    def end_loop(self, key: str, *, has_trained: bool) -> None:
        """All of it has been done. key: of its epoch."""
        self.ledger.loops[key] += 1
        if not has_trained:
            return
        if key == OUTSIDE:
            self.place.loop_is_over = True
        elif self.training_loop is not None:
            self.training_loop.position.passes, self.training_loop.position.cursor = (
                self.training_loop.position.passes + 1,
                0,
            )

    # --- steps ---

    def step(self, optimizer: torch.optim.Optimizer, name: str, real: Callable[[], Any]) -> Any:
        """The script calls an optimizer's step."""
        if self.script_loop is None:
            return self._step_alone(real)
        result = self.script_loop.step(name, real)
        if self.script_loop.is_whole:  # after a death the gradients are summed anew, so this step is in vain
            self._has_stepped.append(optimizer)
        return result

    def zero(self) -> None:
        """Begin the next batch without the gradients that a step has used, whatever the script does about them."""
        for optimizer in self._has_stepped:
            optimizer.zero_grad()
        self._has_stepped = []

    def _step_alone(self, real: Callable[[], Any]) -> Any:
        sentence = "optimizer.step() for a batch that came from no AdaptiveDataLoader"
        if self.size > 1 or not self.is_standalone:
            raise RuntimeError(
                f"{sentence}: the replicas would train apart. Take the batches from an AdaptiveDataLoader"
            )
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(f"{sentence}: on more replicas than one this is an error", stacklevel=5)
        return real()

    def _factors(self) -> Sequence[float]:
        own = next((one for one in (item.factors() for item in self.parallels) if one is not None), None)
        if own is not None:
            return own
        assert self.training_loop is not None
        return self.training_loop.adaptation.factors if self.training_loop.adaptation else ()

    # --- collective calls between replicas ---

    def gathered(self, value: object, kind: str) -> list[Any]:
        """Return the values of all replicas, in order. Between loops, the ledger answers calls made before.

        kind: of the call, in words.
        """
        content = pickle.dumps(value)
        self.join_for_sums()
        key = self.place.key
        if self.place.source is not None or self.training_loop is None:
            return _loaded(self._gather(lambda: content, kind))
        calls, number = self.ledger.calls.setdefault(key, []), self.place.called[key]
        self.place.called[key] += 1
        if number >= len(calls):
            calls.append(pickle.dumps(self._gather(lambda: content, kind)))
        return _loaded(pickle.loads(calls[number]))  # noqa: S301 - of this training's own processes

    def summed_up(self, give: Callable[[], Any], kind: str) -> list[Any]:
        """Return what each replica gives; `give` is asked again after a failure. kind: of the call, in words."""
        self.join_for_sums()
        return _loaded(self._gather(lambda: pickle.dumps(give()), kind))

    def join_for_sums(self) -> None:
        if self.parallels:  # else there may be one later, and who sums now needs none
            self.joins()
        self.settle()

    def _gather(self, give: Callable[[], bytes], kind: str) -> list[bytes]:
        if self.training_loop is not None:
            return self.training_loop.gathered(give, kind)
        return [give()] if self.group is None else gather_bytes(self.group, give(), kind)

    def save(self) -> str | None:
        """Write a checkpoint off a cluster, on replica 0. Called on all."""
        for state in self.states.values():
            state.prepare()
        self.share()
        if self.rank:
            return None
        return _standalone.save(
            self.restarts, {name: state.pack() for name, state in self.states.items()}, self.training_loop
        )

    def share(self) -> None:
        """Before ranks go: what only they have counts for all, and for those who come."""
        for item in self.ledger.named().values():
            item.prepare()
        self.agreed([], "a change of replicas")

    def agreed(self, done: Sequence[bool], kind: str) -> list[int]:
        """The places of what none of those who are left has done, by what each says of itself. kind: of the call.

        In the same message goes what each has added to accumulators: of who dies later, it is done and counted; of who
        dies before, neither.
        """
        gathered = _loaded(self._gather(lambda: pickle.dumps((bytes(done), self._updates())), kind))
        items = self.ledger.named()
        for _, updates in gathered:
            for name in updates.keys() & items.keys():
                items[name].add(updates[name])
        for item in items.values():
            item.clear_updates()
        return [place for place in range(len(done)) if not any(others[place] for others, _ in gathered)]

    def _updates(self) -> dict[str, Any]:
        return {name: item.updates() for name, item in self.ledger.named().items() if item.updates()}


class _Sums:
    """The contents of accumulators, put back to a boundary when the steps behind it are done again."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def state_dict(self) -> dict[str, Any]:
        return {name: item.held() for name, item in self._ledger.named().items() if item.held()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, item in self._ledger.named().items():
            item.hold(state.get(name))


def _loaded(contents: Sequence[bytes]) -> list[Any]:
    return [pickle.loads(content) for content in contents]  # noqa: S301 - of this training's own processes


@cache
def training() -> Training:
    return Training()
