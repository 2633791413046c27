"""Patches of the script's objects that route their calls through the loop: optimizers, schedules, scalers, and
backward."""

from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel

from tidepool.env import RankContext
from tidepool.refusal import Refusal
from tidepool.torch.rank.script_loop import ScriptLoop

__all__ = [
    "adopt",
    "adopt_groups",
    "adopt_optimizer",
    "adopt_others",
    "adopt_schedule",
    "refuse_validation",
    "watch_backward",
    "watched",
]

_backward = torch.autograd.backward


def adopt(
    script_loop: ScriptLoop,
    optimizers: Mapping[str, torch.optim.Optimizer],
    scalers: Sequence[torch.amp.GradScaler],
    registered: Sequence[Any],
) -> None:
    """Route the script's calls through the loop."""
    for name, optimizer in optimizers.items():
        adopt_optimizer(lambda real, name=name: script_loop.step(name, real), optimizer)  # type: ignore[misc]
        adopt_groups(script_loop, optimizer)
    adopt_others(script_loop, scalers, registered)


def adopt_others(script_loop: ScriptLoop, scalers: Sequence[torch.amp.GradScaler], registered: Sequence[Any]) -> None:
    """Do the same for all but the optimizers."""
    for scaler in scalers:
        real = scaler.step
        scaler.step = lambda optimizer, *args, real=real, **keywords: script_loop.step(  # type: ignore[method-assign]
            script_loop.name_of(optimizer), lambda: real(optimizer, *args, **keywords)
        )
        for name in ("update", "unscale_"):
            setattr(scaler, name, _only(lambda: script_loop.counts, getattr(scaler, name)))
    for item in registered:
        if isinstance(item, torch.optim.lr_scheduler.LRScheduler):
            adopt_schedule(script_loop, item)
        elif isinstance(item, AveragedModel):
            # A step that another rank has completed is added to this one's average in its own body.
            update = _only(lambda: script_loop.counts or script_loop.training_loop.caught_up, item.update_parameters)
            item.update_parameters = update  # type: ignore[method-assign]


def adopt_optimizer(take_step: Callable[[Callable[[], Any]], Any], optimizer: torch.optim.Optimizer) -> None:
    """take_step: called in place of the optimizer's step, which it is given."""
    real = optimizer.step

    def step(self: torch.optim.Optimizer, closure: Callable[[], Any] | None = None, **keywords: Any) -> Any:
        loss = None
        if closure is not None:  # once: that is what makes an optimizer of first order
            with torch.enable_grad():
                loss = closure()
        result = take_step(lambda: real(**keywords))
        self._opt_called = True  # type: ignore[attr-defined]  # else a schedule that follows a step left out complains
        return loss if closure is not None else result

    if hasattr(real, "_wrapped_by_lr_sched"):
        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = MethodType(step, optimizer)  # type: ignore[method-assign]


def adopt_groups(script_loop: ScriptLoop, optimizer: torch.optim.Optimizer) -> None:
    """Let a group be added once, although the body that adds it is repeated."""
    kind = type(optimizer)

    def add_param_group(self: torch.optim.Optimizer, group: dict[str, Any]) -> None:
        known = {id(parameter) for each in self.param_groups for parameter in each["params"]}
        added = [group["params"]] if isinstance(group["params"], torch.Tensor) else list(group["params"])
        if not (script_loop.repeats_body and added and all(id(one) in known for one in added)):
            kind.add_param_group(self, {**group, "params": added})

    optimizer.add_param_group = MethodType(add_param_group, optimizer)  # type: ignore[method-assign]


def watch_backward(script_loop: ScriptLoop) -> None:
    """Replace torch's backward, which `Tensor.backward` calls, by `watched`."""
    torch.autograd.backward = watched(script_loop)


def watched(script_loop: ScriptLoop) -> Callable[..., None]:
    """Let the loop weigh and sum what is back-propagated where a batch is under way."""

    def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **keywords: Any) -> None:
        # A backward inside of another one is a part of it: `checkpoint(use_reentrant=True)` computes gradients so.
        if not script_loop.in_batch or script_loop.is_back_propagating:
            _backward(tensors, grad_tensors, *args, **keywords)
            return
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        given = [grad_tensors] if isinstance(grad_tensors, torch.Tensor) else list(grad_tensors or [None] * len(roots))
        script_loop.backward(roots, given, lambda gradients: _backward(roots, gradients, *args, **keywords))

    return backward


def refuse_validation(context: RankContext | None) -> None:
    """Raise RuntimeError in a validation run."""
    if context is not None and context.launch.validate:
        raise Refusal(
            "This script has a loop of its own and does not say what to measure its model on: a validation needs a"
            " script with a Session, and session.validate_on(dataset, loss): see /help/runtime/#validate"
        )


def adopt_schedule(script_loop: ScriptLoop, schedule: torch.optim.lr_scheduler.LRScheduler) -> None:
    """Change the schedule's class, because all of its attributes count as its state."""
    kind = type(schedule)

    def step(self: Any, *args: Any, **keywords: Any) -> None:
        if script_loop.is_whole:
            kind.step(self, *args, **keywords)

    schedule.__class__ = type(kind.__name__, (kind,), {"step": step})


def _only(when: Callable[[], bool], real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **keywords: real(*args, **keywords) if when() else None
