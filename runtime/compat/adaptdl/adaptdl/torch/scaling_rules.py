"""Learning rates under a batch size that changes: AdaptDL's rules, and those of a script's own.

A rule's factor holds while the optimizer steps; schedulers see their own rate.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy
import torch
from tidepool.torch.adaptive.scaling_rules import Moment, Rule, factor

from adaptdl._training import training

__all__ = ["AdaScale", "AdamScale", "LEGWScale", "LinearScale", "ScalingRuleBase", "SqrtScale"]


class Measured(Protocol):
    """An AdaptiveDataParallel, as far as rules ask it."""

    gns: Any


class ScalingRuleBase:
    """Subclass it with a `scale_lr` of your own."""

    #: Name of the rule in Tidepool; None: `scale_lr` decides.
    rule: Rule | None = None
    warm_up_samples = 0.0

    def __init__(self) -> None:
        self.adp: Measured | None = None
        self._optimizer: torch.optim.Optimizer | None = None

    def initialize(self, adp: Measured, optimizer: torch.optim.Optimizer, patch_optimizer: bool = False) -> None:
        """Called by AdaptiveDataParallel, whose optimizer asks the training before it steps in any case."""
        self.adp, self._optimizer = adp, optimizer

    def scale_lr(self, scale: float) -> float | Sequence[float] | numpy.ndarray[Any, Any]:
        """Return the factor of learning rates at `scale` times the first batch size: one, or one by group."""
        if self.rule is None:
            raise NotImplementedError(f"{type(self).__name__} has no scale_lr")
        groups = len(self._optimizer.param_groups) if self._optimizer is not None else 1
        return numpy.asarray([self._factor(self.rule, scale, place) for place in range(groups)])

    def _factor(self, rule: Rule, scale: float, place: int) -> float:
        training_loop, source = training().training_loop, training().trained
        size = source.batch_size if source is not None else 1
        adaptation = training_loop.adaptation if training_loop is not None else None
        groups = adaptation.noise.groups() if adaptation is not None else None
        progress = self.adp.gns.get_progress() if self.adp is not None else 0.0
        noise = groups[min(place, len(groups) - 1)] if groups else None
        moment = Moment(size, round(size * scale), progress, self.warm_up_samples / size)
        return factor(rule, noise, moment)

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step. Raises ValueError for a rule that no AdaptiveDataParallel has."""
        if self._optimizer is None:
            raise ValueError(f"no AdaptiveDataParallel has this {type(self).__name__}: give it one as scaling_rule")
        return self._optimizer.step(*args, **kwargs)

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        if self._optimizer is not None:
            self._optimizer.zero_grad(*args, **kwargs)


class AdaScale(ScalingRuleBase):
    """The gain: the number of steps at the first batch size that one step is worth."""

    rule: Rule | None = "adascale"


class AdamScale(ScalingRuleBase):
    """The root of AdaScale's, for Adam, AdamW and RMSprop."""

    rule: Rule | None = "adamscale"


class LinearScale(ScalingRuleBase):
    rule: Rule | None = "linear"


class SqrtScale(ScalingRuleBase):
    rule: Rule | None = "sqrt"


class LEGWScale(ScalingRuleBase):
    """The root, with a warm-up of `base_warmup_epochs` that grows with the batch. data_size: samples of an epoch."""

    rule: Rule | None = "legw"

    def __init__(self, base_warmup_epochs: float, data_size: int) -> None:
        super().__init__()
        self.warm_up_samples = float(base_warmup_epochs) * data_size
