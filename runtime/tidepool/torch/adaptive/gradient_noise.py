"""Gradient noise: how much the gradients of single samples differ, against the gradient that they have in common.

Let c independent parts of a step (the shares of its ranks, or the first micro-batch of a single one) have b_i samples
and mean gradients g_i, and let G be the mean gradient of all N samples. E|g_i|^2 = Q + S / b_i and E|G|^2 = Q + S / N,
where S is the trace of the covariance of one sample's gradient and Q the squared length of the true gradient. So, with
L the mean of |g_i|^2 and H the mean of 1 / b_i, whatever the b_i are:

    S = (L - |G|^2) / (H - 1/N),     Q = |G|^2 - S / N

What a rank has in its buckets before the sum is its weighted part: reading its length there is all that it costs, and
the numbers ride in the control block, which leaves last. All of it is kept per parameter group. For Adam it is done
with what the optimizer steps by: each gradient divided by the root of its averaged square.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = [
    "CUT_EACH",
    "MEASURED_EACH",
    "MOST_GROUPS",
    "NoiseAverages",
    "SquaredNorms",
    "estimate",
    "has_second_moments",
]

#: Number of steps between measurements.
MEASURED_EACH = 16
#: (first step, interval) of measurements on a single rank. It must split a step in two, which costs more than reading
#: norms, so it measures less often once the averages have filled and change slowly.
CUT_EACH = ((1024, 64), (256, 32), (0, MEASURED_EACH))
#: Parameter groups with a noise scale of their own; further ones share the last.
MOST_GROUPS = 8
#: Decay of the averages, per step at the batch size that the job was submitted with.
_DECAY = 0.999
_LEAST_VARIANCE = 1e-6
#: Upper bound of both averages, for a training that diverges.
_MOST = 1e29
#: Number of steps before which Adam's averages of squares are too noisy to use.
_FIRST_STEP_OF_ADAM = 5


def estimate(mean_square: float, mean_inverse: float, square: float, samples: int) -> tuple[float, float] | None:
    """Return S and Q from L, H, |G|^2 and N; Q may be negative. None if the parts do not determine them, or are not
    finite."""
    spread = mean_inverse - 1 / samples
    if not all(map(math.isfinite, (mean_square, mean_inverse, square))) or spread <= 1e-9 * mean_inverse:
        return None
    variance = (mean_square - square) / spread
    return variance, square - variance / samples


@dataclass
class NoiseAverages:
    """Averages of S and Q by parameter group, each for itself, as if they had begun with the first measurement."""

    variances: list[float] = field(default_factory=list)
    squares: list[float] = field(default_factory=list)
    #: Weight of all measurements so far, by which both sums are divided.
    weight: float = 0.0

    def add(self, measured: Sequence[tuple[float, float]], steps: float) -> None:
        """Add S and Q of each group. steps: since the previous measurement, at the submitted batch size."""
        kept = _DECAY ** max(steps, 1e-3)
        if len(self.variances) != len(measured):
            self.variances, self.squares, self.weight = [0.0] * len(measured), [0.0] * len(measured), 0.0
        for place, (variance, square) in enumerate(measured):
            self.variances[place] = kept * self.variances[place] + (1 - kept) * variance
            self.squares[place] = kept * self.squares[place] + (1 - kept) * square
        self.weight = kept * self.weight + (1 - kept)

    def groups(self) -> list[tuple[float, float]]:
        """Return S and Q of each group; empty before the first measurement."""
        if not self.weight:
            return []
        means = [(variance / self.weight, square / self.weight) for variance, square in self._pairs()]
        return [(min(max(s, _LEAST_VARIANCE), _MOST), min(max(q, 0.0), _MOST)) for s, q in means]

    def _pairs(self) -> Iterable[tuple[float, float]]:
        return zip(self.variances, self.squares, strict=True)

    def total(self) -> tuple[float, float] | None:
        """Return S and Q of all parameters together."""
        groups = self.groups()
        if not groups:
            return None
        return sum(variance for variance, _ in groups), sum(square for _, square in groups)


def has_second_moments(optimizer: torch.optim.Optimizer) -> bool:
    return isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW)


class SquaredNorms:
    """Squared lengths of gradients by parameter group."""

    def __init__(self, optimizers: Mapping[str, torch.optim.Optimizer]) -> None:
        #: Place of its group, optimizer and group, by parameter.
        self._of: dict[int, tuple[int, torch.optim.Optimizer, dict[str, Any]]] = {}
        self._adams = [one for one in optimizers.values() if has_second_moments(one)]
        groups = [(one, group) for one in optimizers.values() for group in one.param_groups]
        self.count = min(len(groups), MOST_GROUPS)
        for place, (optimizer, group) in enumerate(groups):
            for parameter in group["params"]:
                self._of[id(parameter)] = min(place, MOST_GROUPS - 1), optimizer, group

    def is_ready(self, step: int) -> bool:
        """Return whether a step is measured; the same on all ranks."""
        return step % MEASURED_EACH == 0 and (not self._adams or step >= _FIRST_STEP_OF_ADAM)

    def is_cut(self, step: int) -> bool:
        """Return whether a rank that is alone cuts this step in two, so that there are parts to measure."""
        return self.is_ready(step) and step % next(each for begin, each in CUT_EACH if step >= begin) == 0

    @torch.no_grad()
    def squares(self, parameters: Sequence[torch.nn.Parameter], gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the squared norms as float32 of shape (count,), on the parameters' device, without waiting for it."""
        known = [(one, gradient) for one, gradient in zip(parameters, gradients, strict=True) if id(one) in self._of]
        device = gradients[0].device if gradients else torch.device("cpu")
        sums = torch.zeros(self.count, device=device)
        if not known:
            return sums
        places = torch.tensor([self._of[id(one)][0] for one, _ in known], device=device)
        lengths = torch._foreach_norm([self._stepped_by(one, gradient) for one, gradient in known])
        return sums.index_add_(0, places, torch.stack([length.float() for length in lengths]).square_())

    def _stepped_by(self, parameter: torch.nn.Parameter, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient as its optimizer weighs it."""
        _, optimizer, group = self._of[id(parameter)]
        state = optimizer.state.get(parameter, {}) if has_second_moments(optimizer) else {}
        if "exp_avg_sq" not in state:
            return gradient
        corrected = state["exp_avg_sq"] / (1 - group["betas"][1] ** state["step"])
        weighed: torch.Tensor = gradient / corrected.sqrt_().add_(group["eps"])
        return weighed
