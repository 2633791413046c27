"""Optimizers and schedules that a script makes while it trains, and optimizers that `prepare` was not given.

Fine-tuning goes in phases: a frozen part is thawed, and another optimizer updates the whole model. What is made over
the model's own parameters belongs to the training from then on. What was made before `prepare` and not given to it, or
updates parameters of another model, is refused when it steps: no other process would learn of it.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Protocol
from weakref import WeakSet

import torch
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tidepool.live_objects import instances_of
from tidepool.refusal import Refusal
from tidepool.torch.rank.object_patches import adopt_groups, adopt_optimizer, adopt_schedule
from tidepool.torch.rank.script_loop import ScriptLoop
from tidepool.torch.rank.unsupported import check_kind
from tidepool.torch.state.update import optimized

__all__ = ["LaterObjects", "Watcher", "noticing", "watch"]


class Watcher(Protocol):
    def made(self, item: Any) -> None: ...

    def steps(self, optimizer: torch.optim.Optimizer, *_: Any) -> None: ...


def watch(watcher: Watcher) -> None:
    """Show the watcher each optimizer and schedule that is made, and each optimizer that steps."""
    for kind in _kinds():
        kind.__init__ = noticing(kind.__init__, watcher.made)
    register_optimizer_step_pre_hook(watcher.steps)


def _kinds() -> list[Any]:
    """Classes whose own `__init__` makes an optimizer or a schedule: some schedules do not call that of their base."""
    every = [each for each in vars(lr_scheduler).values() if isinstance(each, type)]
    schedules = [each for each in every if issubclass(each, lr_scheduler.LRScheduler) and "__init__" in vars(each)]
    return [torch.optim.Optimizer, *schedules]


def noticing(init: Callable[..., None], notice: Callable[[Any], None]) -> Callable[..., None]:
    @wraps(init)
    def __init__(self: Any, *args: Any, **keywords: Any) -> None:
        init(self, *args, **keywords)
        notice(self)

    return __init__


def schedules_of(optimizers: Sequence[torch.optim.Optimizer], known: Sequence[Any]) -> list[Any]:
    """Return the schedules of these optimizers that are neither known nor a part of another one, in their order."""
    if not any(hasattr(optimizer.step, "_wrapped_by_lr_sched") for optimizer in optimizers):
        return []  # each schedule marks its optimizer, and to look for one takes time
    every = [one for one in instances_of(lr_scheduler.LRScheduler) if hasattr(one, "optimizer")]
    parts = {id(part) for one in every for part in getattr(one, "_schedulers", [])} | {id(one) for one in known}
    return [one for optimizer in optimizers for one in every if one.optimizer is optimizer and id(one) not in parts]


class LaterObjects:
    """What the script makes after `prepare`. `on_new` is called when something has become a part of the training."""

    def __init__(self, script_loop: ScriptLoop, on_new: Callable[[], None]) -> None:
        self._script_loop, self._on_new = script_loop, on_new
        training_loop = script_loop.training_loop
        self._known: WeakSet[Any] = WeakSet(training_loop.optimizers.values())
        self._own = {id(parameter) for parameter in training_loop.model.parameters()}
        self._count = 0

    def made(self, item: Any) -> None:
        """Take along what updates the model. Raises Refusal for a kind of optimizer that cannot be trained with."""
        if item in self._known:
            return
        if isinstance(item, torch.optim.Optimizer):
            if self._updates_model(item):
                self._add_optimizer(item)
        elif getattr(item, "optimizer", None) in self._known:
            self._known.add(item)
            adopt_schedule(self._script_loop, item)
            name, state = self._name(item), self._script_loop.training_loop.transitions.state
            self._script_loop.registered[name] = state.registered[name] = item
            self._on_new()

    def _updates_model(self, optimizer: torch.optim.Optimizer) -> bool:
        return any(id(parameter) in self._own for parameter in optimized({"": optimizer}))

    def _add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        name = self._name(optimizer)
        check_kind(name, optimizer)
        if not all(id(parameter) in self._own for parameter in optimized({"": optimizer})):
            raise Refusal(
                f"the optimizer {type(optimizer).__name__} updates parameters that are in no model given to "
                "tidepool.torch.prepare, beside some that are: no other process would learn of them. Give all models"
            )
        self._known.add(optimizer)
        self._script_loop.add_optimizer(name, optimizer)
        adopt_optimizer(lambda real: self._script_loop.step(name, real), optimizer)
        adopt_groups(self._script_loop, optimizer)
        self._on_new()

    def _name(self, item: Any) -> str:
        self._count += 1
        return f"{type(item).__name__}-made-{self._count}"

    def steps(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Raises Refusal for an optimizer that is no part of the training and should be."""
        if optimizer in self._known:
            return
        if self._updates_model(optimizer):
            raise Refusal(
                f"the optimizer {type(optimizer).__name__} updates the prepared model and was not given to "
                "tidepool.torch.prepare: give it, with the model and the other optimizers; an optimizer that only "
                "calls it (sharpness-aware minimization) is not given then"
            )
        if self._script_loop.foreign.has(optimized({"": optimizer})):
            raise Refusal(
                f"the optimizer {type(optimizer).__name__} updates parameters that the loss of the training depends on "
                "and that are in no model given to tidepool.torch.prepare: give that model and this optimizer, too"
            )
