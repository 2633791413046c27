"""`AdaptiveDataParallel`: a model whose gradients are those of all replicas."""

import inspect
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy
import torch
from tidepool.torch.adaptive.scaling_rules import Rule
from tidepool.torch.rank.object_patches import adopt_optimizer

from adaptdl._training import training
from adaptdl.torch.data import Writer
from adaptdl.torch.scaling_rules import AdamScale, AdaScale, LEGWScale, ScalingRuleBase

__all__ = ["AdaptiveDataParallel"]

#: Arguments of DistributedDataParallel, whose work is done otherwise here.
_DDP = frozenset(inspect.signature(torch.nn.parallel.DistributedDataParallel.__init__).parameters) - {"self", "module"}


class AdaptiveDataParallel(torch.nn.Module):
    """Calls `model`, its `module`. The optimizer, scheduler and scaler are the training's from now on.

    optimizer: its `step` does nothing where it does not count: after a batch of which more parts follow.
    mp_scaler: that scales losses for mixed precision; a rule in its place is taken for scaling_rule.
    scaling_rule: how learning rates follow the batch size; None: AdaScale, for Adam and AdamW its root.
    name: of its own, where there are several. Arguments of DistributedDataParallel have no effect.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        lr_scheduler: Any = None,
        mp_scaler: torch.amp.GradScaler | ScalingRuleBase | None = None,
        scaling_rule: ScalingRuleBase | None = None,
        name: str = "adaptdl-dataparallel",
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if unknown := sorted(kwargs.keys() - _DDP):
            raise TypeError(f"AdaptiveDataParallel has no argument {unknown[0]!r}")
        if isinstance(mp_scaler, ScalingRuleBase):  # AdaptDL's place for the rule before it had scalers
            mp_scaler, scaling_rule = None, scaling_rule or mp_scaler
        if mp_scaler is not None and not isinstance(mp_scaler, torch.amp.GradScaler):
            raise TypeError(f"mp_scaler is a {type(mp_scaler).__name__}: give a torch.amp.GradScaler, or nothing")
        self.module = model
        self._state = _State(self, name, optimizer, lr_scheduler, mp_scaler)
        self.gns = _Noise()
        by_moments = isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW)
        self.scaling_rule = scaling_rule or (AdamScale() if by_moments else AdaScale())
        training().add(self._state)
        self.scaling_rule.initialize(self, optimizer, patch_optimizer=True)
        adopt_optimizer(partial(training().step, optimizer, name), optimizer)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def zero_grad(self, set_to_none: bool = True) -> None:
        warnings.warn("AdaptiveDataParallel.zero_grad() does nothing: each step begins without gradients", stacklevel=2)

    @property
    def gain(self) -> float:
        """The number of steps at the first batch size that one of now is worth."""
        return self._state.gain

    def to_tensorboard(self, writer: Writer, global_step: int, tag_prefix: str = "") -> None:
        """Write the gain and the mean factor of learning rates; what gradients are like, once it has been measured."""
        prefix = tag_prefix if not tag_prefix or tag_prefix.endswith("/") else f"{tag_prefix}/"
        if self.gns.is_measured:
            writer.add_scalar(f"{prefix}Gradient_Norm_Sqr", self.gns.sqr_avg(), global_step)
            writer.add_scalar(f"{prefix}Gradient_Variance", self.gns.var_avg(), global_step)
        writer.add_scalar(f"{prefix}Gain", self.gain, global_step)
        writer.add_scalar(f"{prefix}Learning_Rate_Factor", self._state.lr_factor, global_step)


class _State:
    """The part of an AdaptiveDataParallel that the training uses; scripts save `network._state.model`."""

    def __init__(
        self,
        parallel: AdaptiveDataParallel,
        name: str,
        optimizer: torch.optim.Optimizer,
        lr_scheduler: Any,
        mp_scaler: torch.amp.GradScaler | None,
    ) -> None:
        self._parallel = parallel
        self.name, self.optimizer, self.lr_scheduler, self.mp_scaler = name, optimizer, lr_scheduler, mp_scaler

    @property
    def module(self) -> torch.nn.Module:
        return self._parallel.module

    model = module

    @property
    def rule(self) -> tuple[Rule, float]:
        rule = self._parallel.scaling_rule
        return rule.rule or "auto", rule.warm_up_samples

    def factors(self) -> Sequence[float] | None:
        """Return the factors of the script's own rule, or of LEGW where the batch stays; None: the session's hold."""
        rule, training_loop = self._parallel.scaling_rule, training().training_loop
        is_own = type(rule).scale_lr is not ScalingRuleBase.scale_lr
        warms_up = isinstance(rule, LEGWScale) and training_loop is not None and training_loop.adaptation is None
        if training_loop is None or not (is_own or warms_up):
            return None
        size = training_loop.adaptation.bounds.batch_size if training_loop.adaptation is not None else 0
        scale = training_loop.position.effective_batch_size / size if size else 1.0
        groups = len(self.optimizer.param_groups)
        return [float(each) for each in numpy.broadcast_to(rule.scale_lr(scale), groups)]

    @property
    def gain(self) -> float:
        training_loop = training().training_loop
        return (
            training_loop.adaptation.gain if training_loop is not None and training_loop.adaptation is not None else 1.0
        )

    @property
    def lr_factor(self) -> float:
        own, training_loop = self.factors(), training().training_loop
        if own is None and training_loop is not None and training_loop.adaptation is not None:
            own = training_loop.adaptation.factors
        return float(numpy.mean(own)) if own else 1.0


class _Noise:
    """Averages of the gradients' variance and square, for rules of a script's own."""

    @property
    def is_measured(self) -> bool:
        return bool(self._groups())

    def _groups(self) -> list[tuple[float, float]]:
        training_loop = training().training_loop
        return (
            list(training_loop.adaptation.noise.groups() or [])
            if training_loop is not None and training_loop.adaptation is not None
            else []
        )

    @property
    def raw_var_avg(self) -> numpy.ndarray[Any, Any]:
        """Variance of a gradient at the first batch size, by parameter group."""
        size = training().training_loop.adaptation.bounds.batch_size if self.is_measured else 1  # type: ignore[union-attr]
        return numpy.asarray([variance / size for variance, _ in self._groups()] or [1e-6])

    @property
    def raw_sqr_avg(self) -> numpy.ndarray[Any, Any]:
        return numpy.asarray([square for _, square in self._groups()] or [1.0])

    def var_avg(self) -> float:
        return float(numpy.sum(numpy.maximum(self.raw_var_avg, 1e-6)))

    def sqr_avg(self) -> float:
        return float(numpy.sum(numpy.maximum(self.raw_sqr_avg, 0.0)))

    def gain(self, scale: float) -> float:
        variance, square = self.var_avg(), self.sqr_avg()
        return (variance + square) / (variance / scale + square)

    def get_progress(self) -> float:
        """Steps at the first batch size that all steps so far were worth."""
        training_loop = training().training_loop
        if training_loop is None:
            return 0.0
        return (
            training_loop.adaptation.progress
            if training_loop.adaptation is not None
            else float(training_loop.position.step)
        )
