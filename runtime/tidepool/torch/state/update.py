"""The update of a step, once its gradients are summed: the script's hooks, the loss scaler and the optimizers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import torch

from tidepool.refusal import Refusal
from tidepool.torch.state.randomness import Generators, seed_step

__all__ = ["IN_BODY", "OneOrMore", "Update", "first_of", "learning_rates", "named_optimizers", "optimized"]

#: Largest number of parameter groups whose rates a step's record holds; some scripts create hundreds.
_MOST_RATES = 8

#: Seeds beside those of a step's micro-batches, for random numbers that are equal on all ranks: in the step's body
#: outside of its micro-batches, and in the hooks.
IN_BODY, _BEFORE, _AFTER = -2, -3, -4
#: ... and of hooks on gradients.
_ON_GRADIENTS = -6
#: ... and of the first update by a loop of the script's own in a step; those that follow have lower numbers.
_BY_SCRIPT = -16

T = TypeVar("T")
OneOrMore = torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | Mapping[str, torch.optim.Optimizer]


def named_optimizers(given: OneOrMore) -> dict[str, torch.optim.Optimizer]:
    if isinstance(given, torch.optim.Optimizer):
        return {"optimizer": given}
    if isinstance(given, Mapping):
        named = dict(given)
    elif isinstance(given, Sequence):
        named = {f"optimizer-{number}": item for number, item in enumerate(given)}
    else:
        raise Refusal(f"optimizer must be one optimizer, a list or a dict of them, not a {type(given).__name__}")
    for name, item in named.items():
        if not isinstance(item, torch.optim.Optimizer):
            raise Refusal(f"optimizer {name!r} is a {type(item).__name__}, not a torch.optim.Optimizer")
    if not named:
        raise Refusal("no optimizer was given: nothing would be trained")
    return named


def optimized(optimizers: Mapping[str, torch.optim.Optimizer]) -> list[torch.nn.Parameter]:
    """Every parameter that one of them updates."""
    return [
        parameter
        for optimizer in optimizers.values()
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]


def learning_rates(optimizers: Mapping[str, torch.optim.Optimizer]) -> dict[str, float]:
    """Learning rates by metric: `learning_rate` is the first one; where there are several, each has a metric too.

    `learning_rate/<optimizer>`, `learning_rate/group-<n>`, or both: `learning_rate/<optimizer>/group-<n>`.
    """
    rates = islice(_named_rates(optimizers), _MOST_RATES)
    first = first_of(optimizers).param_groups[0]["lr"]
    return {"learning_rate": float(first), **{name: float(rate) for name, rate in rates}}


def _named_rates(optimizers: Mapping[str, torch.optim.Optimizer]) -> Iterator[tuple[str, Any]]:
    for name, optimizer in optimizers.items():
        whose = f"learning_rate/{name}" if len(optimizers) > 1 else "learning_rate"
        for number, group in enumerate(optimizer.param_groups):
            yield f"{whose}/group-{number}" if len(optimizer.param_groups) > 1 else whose, group["lr"]


def first_of(named: Mapping[str, T]) -> T:
    return next(iter(named.values()))


@dataclass
class Update:
    """The update of a step, equal on all ranks because their sums are. Random numbers depend on seed and step."""

    optimizers: dict[str, torch.optim.Optimizer]
    scaler: torch.amp.GradScaler | None
    before: Callable[[], None] | None
    after: Callable[[], None] | None
    generators: Generators
    seed: int
    #: Updates by a loop of the script's own in the batch under way.
    made: int = 0
    _stepping: bool = False
    #: Waits until parameters and optimizer state may change.
    settle: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        for optimizer in self.optimizers.values():
            self.guard(optimizer)

    def guard(self, optimizer: torch.optim.Optimizer) -> None:
        """Refuse its steps but in an update."""
        optimizer.register_step_pre_hook(self._check_caller)

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        return loss if self.scaler is None else self.scaler.scale(loss)

    def apply(self, step: int, factors: Sequence[float] = ()) -> None:
        """Run the hook, the optimizers, and the second hook. With a scaler, a step with non-finite gradients is
        skipped.

        factors: of learning rates while the optimizers step, by parameter group; the last one holds for all further.
        """
        self.settle()
        # A scaler cannot step an optimizer none of whose parameters has a gradient.
        stepped = [item for item in self.optimizers.values() if self.scaler is None or _has_gradients(item)]
        if self.scaler is not None and stepped:
            # A scaler begins with its first loss, which may have been other ranks' alone.
            self.scaler.scale(optimized(self.optimizers)[0].detach().new_zeros(()))
            for optimizer in stepped:
                self.scaler.unscale_(optimizer)
        self._run(self.before, step, _BEFORE)
        self._stepping = True
        with self.scaled_rates(factors):
            for optimizer in stepped:
                if self.scaler is None:
                    optimizer.step()
                else:
                    self.scaler.step(optimizer)
        self._stepping = False
        if self.scaler is not None and stepped:
            self.scaler.update()
        self.run_after(step)

    @contextmanager
    def scaled_rates(self, factors: Sequence[float]) -> Iterator[None]:
        """Multiply learning rates in the block, by parameter group; the last factor holds for all further groups."""
        groups = [group for optimizer in self.optimizers.values() for group in optimizer.param_groups]
        rates = [group["lr"] for group in groups]
        for place, group in enumerate(groups if factors else []):
            group["lr"] = rates[place] * factors[min(place, len(factors) - 1)]
        try:
            yield
        finally:
            for group, rate in zip(groups if factors else [], rates, strict=False):
                group["lr"] = rate

    def run_after(self, step: int) -> None:
        """Run the hook; also on a rank that receives the result of a step instead of computing it."""
        self._run(self.after, step, _AFTER)

    @contextmanager
    def by_script(self, step: int, factors: Sequence[float] = ()) -> Iterator[None]:
        """Let a loop of the script's own step the optimizers in the block. factors: as `scaled_rates`."""
        if self._stepping:  # a scaler steps the optimizer
            yield
            return
        self.settle()
        self._stepping = True
        try:
            with self.scaled_rates(factors), self.generators.aside():
                seed_step(self.seed, step, _BY_SCRIPT - self.made)
                self.made += 1
                yield
        finally:
            self._stepping = False

    def _check_caller(self, *_: object) -> None:
        if not self._stepping:
            raise Refusal("the session steps the optimizers itself, after each step: remove optimizer.step()")

    def run_on_gradients(self, hooks: Callable[[], None], step: int) -> None:
        """Run the script's hooks on gradients, which are the same on all ranks."""
        self._run(hooks, step, _ON_GRADIENTS)

    def _run(self, hook: Callable[[], None] | None, step: int, place: int) -> None:
        if hook is None:
            return
        with self.generators.aside():
            seed_step(self.seed, step, place)
            hook()


def _has_gradients(optimizer: torch.optim.Optimizer) -> bool:
    return any(parameter.grad is not None for parameter in optimized({"": optimizer}))
