"""Scaling rules: factors of learning rates for a batch size other than the submitted one, by name.

AdaScale multiplies by the gain, (S/M0 + Q) / (S/M + Q) (Johnson et al., ICML 2020, arXiv:2007.05105); Adam steps by
normed gradients, and takes its root. Linear and sqrt know the batch alone (Goyal et al. 2017, arXiv:1706.02677;
Krizhevsky 2014, arXiv:1404.5997). LEGW is sqrt with a warm-up whose length grows with the batch (You et al. 2019,
arXiv:1901.08256).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from tidepool.goodput.model import NoiseScale, gain
from tidepool.torch.adaptive.gradient_noise import has_second_moments

__all__ = ["RULES", "Moment", "Rule", "chosen_rule", "factor"]

Rule = Literal["auto", "adascale", "adamscale", "linear", "sqrt", "legw"]
RULES: tuple[str, ...] = get_args(Rule)


@dataclass(frozen=True)
class Moment:
    """Progress of a training: M0 and M, steps at M0 so far, and those of the warm-up."""

    batch_size: int
    batch: int
    progress: float = 0.0
    warm_up_steps: float = 0.0


def chosen_rule(rule: str, optimizers: Mapping[str, torch.optim.Optimizer]) -> str:
    """`auto` is AdaScale, or AdamScale where an optimizer is Adam or AdamW."""
    if rule != "auto":
        return rule
    return "adamscale" if any(map(has_second_moments, optimizers.values())) else "adascale"


def factor(rule: str, noise: tuple[float, float] | None, at: Moment) -> float:
    """Return the factor of a group's learning rate. noise: its S and Q; None: not measured yet."""
    larger = at.batch / at.batch_size
    if larger == 1.0 and rule != "legw":
        return 1.0
    if rule == "linear":
        return larger
    if rule in ("sqrt", "legw"):
        warm = min(1.0, at.progress / (at.warm_up_steps * larger)) if rule == "legw" and at.warm_up_steps else 1.0
        return math.sqrt(larger) * warm
    worth = float(gain(NoiseScale(*noise) if noise else None, at.batch_size, at.batch))
    return math.sqrt(worth) if rule == "adamscale" else worth
