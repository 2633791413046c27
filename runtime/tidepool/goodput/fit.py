"""Fit of throughput parameters to measured steps; names those that are assumed rather than measured.

Work beside the gradients (H) is fitted first: the time that steps on one GPU take longer than their gradients, because
nothing is summed there. Where it is a small part of them it counts as nothing, as where no step ran on one GPU.

Then least is sought of rms(log A) + rms(log T) of the weighted points' errors, plus a little for an overlap far from
1 and for sums that grow with each rank: what points leave open stays plain. What no point can tell is assumed to
cost nothing, so that a size is tried before it is judged:

* one micro-batch only: half of its time, and of what is done beside it, does not depend on it;
* no point on one host, or on several: their sum costs nothing, over the network then 1.1 times that of one host;
* no point on more than two ranks: further ranks cost the sum nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize, nnls

from tidepool.goodput.model import FLOOR, Point, ThroughputParameters

__all__ = ["NAMES", "Fit", "Problem", "fit", "loss"]

#: The parameters in the order of the vector that is optimised: logarithms, and `overlap` as it is.
NAMES = (
    "compute_base",
    "compute_per_sample",
    "host_base",
    "host_per_rank",
    "network_base",
    "network_per_rank",
    "overlap",
)
_BASE, _PER_SAMPLE, _HOST, _HOST_RANK, _NETWORK, _NETWORK_RANK, _OVERLAP = range(7)
MAX_ITERATIONS = 60
#: Part of a step on one GPU up to which its work beside the gradients counts as nothing: medians vary as much.
NEGLIGIBLE = 0.15
#: Steps from which a point counts in full.
FULL_WEIGHT_STEPS = 50
#: Typical error of a point, as a logarithm, above which nobody should rely on the parameters.
TRUSTED_ERROR = 0.5
#: Lower bound on an unknown all-reduce between hosts, relative to one within a host.
_NETWORK_OVER_HOST = 1.1
_OVERLAP_PENALTY, _GROWTH_PENALTY = 1e-3, 1e-2
#: Keeps the square root's slope finite at an exact fit.
_EXACT = 1e-12
_MOST = 1e6

_Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    parameters: ThroughputParameters
    #: Names of those that no point tells: assumed, and drawn as such.
    assumed: tuple[str, ...]
    #: rms of the logarithmic errors of A and T, the larger one.
    error: float
    evaluations: int

    @property
    def is_trusted(self) -> bool:
        return self.error <= TRUSTED_ERROR


@dataclass(frozen=True, slots=True)
class Problem:
    """Points as columns."""

    micro_batch: _Vector
    link: npt.NDArray[np.int64]
    #: max(r - 2, 0).
    further_ranks: _Vector
    log_compute: _Vector
    log_step: _Vector
    #: Sum to 1.
    weight: _Vector
    #: H: seconds of a micro-batch beside its gradients, without and with its samples.
    beside_base: float
    beside_per_sample: float
    log_beside: _Vector

    @classmethod
    def of(cls, points: Sequence[Point]) -> "Problem":
        weight = np.array([min(point.steps, FULL_WEIGHT_STEPS) for point in points], dtype=np.float64)
        micro_batch = np.array([point.micro_batch for point in points], dtype=np.float64)
        base, per_sample = _beside(points, weight)
        with np.errstate(divide="ignore"):  # the logarithm of nothing adds nothing
            log_beside = np.log(base + per_sample * micro_batch)
        return cls(
            micro_batch=micro_batch,
            link=np.array([point.size.link for point in points]),
            further_ranks=np.array([max(point.ranks - 2, 0) for point in points], dtype=np.float64),
            log_compute=np.log([point.compute_seconds for point in points]),
            log_step=np.log([point.step_seconds for point in points]),
            weight=weight / weight.sum(),
            beside_base=base,
            beside_per_sample=per_sample,
            log_beside=log_beside,
        )


def _beside(points: Sequence[Point], weight: _Vector) -> tuple[float, float]:
    """Return H of a micro-batch without samples, and of each sample, by the points on one GPU."""
    alone = [number for number, point in enumerate(points) if point.ranks == 1]
    if not alone:
        return 0.0, 0.0
    micro_batch = np.array([points[number].micro_batch for number in alone], dtype=np.float64)
    step = np.array([points[number].step_seconds for number in alone])
    longer = np.maximum(step - np.array([points[number].compute_seconds for number in alone]), 0.0)
    relative = np.sqrt(weight[alone]) / step
    if len(np.unique(micro_batch)) == 1:
        half = float(np.average(longer, weights=weight[alone])) / 2
        base, per_sample = half, half / float(micro_batch[0])
    else:
        columns = np.column_stack((np.ones_like(micro_batch), micro_batch / micro_batch.max()))
        (base, scaled), _ = nnls(columns * relative[:, None], longer * relative)
        per_sample = scaled / micro_batch.max()
    part = float(np.average((base + per_sample * micro_batch) / step, weights=weight[alone]))
    return (float(base), float(per_sample)) if part > NEGLIGIBLE else (0.0, 0.0)


def fit(points: Sequence[Point], start: ThroughputParameters | None = None) -> Fit:
    """Fit the points of one kind of GPU; `start`: parameters of an earlier fit. Without points: ValueError."""
    if not points:
        raise ValueError("there is no measured step to fit parameters to")
    problem = Problem.of(points)
    fixed = _assumed(problem)
    guess = _guess(problem) if start is None else _warm(start, problem)
    lower, upper = np.full(7, np.log(FLOOR)), np.full(7, np.log(_MOST))
    lower[_OVERLAP], upper[_OVERLAP] = 1.0, 10.0
    for position, value in fixed.items():
        lower[position] = upper[position] = value
    found = minimize(
        loss,
        np.clip(guess, lower, upper),
        args=(problem,),
        jac=True,
        method="L-BFGS-B",
        bounds=np.column_stack((lower, upper)),
        options={"maxiter": MAX_ITERATIONS},
    )
    return _result(found.x, problem, tuple(NAMES[position] for position in sorted(fixed)), int(found.nfev))


def loss(vector: _Vector, problem: Problem) -> tuple[float, _Vector]:
    """Return the loss, and its gradient by the seven numbers of `vector`."""
    compute_error, compute_slope, step_error, step_slope = _errors(vector, problem)
    value, gradient = 0.0, np.zeros(7)
    for error, slope in ((compute_error, compute_slope), (step_error, step_slope)):
        rms = np.sqrt(problem.weight @ error**2 + _EXACT)
        value += float(rms)
        gradient += (problem.weight * error) @ slope / rms
    value += _OVERLAP_PENALTY * (vector[_OVERLAP] - 1) ** 2
    gradient[_OVERLAP] += 2 * _OVERLAP_PENALTY * (vector[_OVERLAP] - 1)
    for base, per_rank in ((_HOST, _HOST_RANK), (_NETWORK, _NETWORK_RANK)):
        growth = _GROWTH_PENALTY * np.exp(2 * min(vector[per_rank] - vector[base], 50.0))
        value += growth
        gradient[per_rank] += 2 * growth
        gradient[base] -= 2 * growth
    return float(value), gradient


def _errors(vector: _Vector, problem: Problem) -> tuple[_Vector, _Vector, _Vector, _Vector]:
    """log A and log T minus those measured, and their slopes: a row of seven for each point."""
    linear, overlap = np.exp(vector[:_OVERLAP]), vector[_OVERLAP]
    compute = linear[_BASE] + linear[_PER_SAMPLE] * problem.micro_batch
    slope = np.zeros((len(compute), 7))
    slope[:, _BASE] = linear[_BASE] / compute
    slope[:, _PER_SAMPLE] = linear[_PER_SAMPLE] * problem.micro_batch / compute
    log_compute = np.log(compute)
    log_step, step_slope = log_compute.copy(), slope.copy()
    for link, base, per_rank in ((1, _HOST, _HOST_RANK), (2, _NETWORK, _NETWORK_RANK)):
        here = problem.link == link
        total = linear[base] + linear[per_rank] * problem.further_ranks[here]
        log_total = np.log(total)
        joined = np.logaddexp(overlap * log_compute[here], overlap * log_total)
        part = np.exp(overlap * log_compute[here] - joined)
        log_step[here] = joined / overlap
        step_slope[here] *= part[:, None]
        step_slope[here, base] = (1 - part) * linear[base] / total
        step_slope[here, per_rank] = (1 - part) * linear[per_rank] * problem.further_ranks[here] / total
        mean = part * log_compute[here] + (1 - part) * log_total
        step_slope[here, _OVERLAP] = mean / overlap - joined / overlap**2
    log_whole = np.logaddexp(log_step, problem.log_beside)
    step_slope *= np.exp(log_step - log_whole)[:, None]
    return log_compute - problem.log_compute, slope, log_whole - problem.log_step, step_slope


def _assumed(problem: Problem) -> dict[int, float]:
    """Return assumed entries of the vector, for what no point tells."""
    fixed: dict[int, float] = {}
    if len(np.unique(problem.micro_batch)) == 1:
        fixed[_BASE] = float(np.log(problem.weight @ np.exp(problem.log_compute) / 2))
    for link, base, per_rank in ((1, _HOST, _HOST_RANK), (2, _NETWORK, _NETWORK_RANK)):
        if not np.any(problem.link == link):
            fixed[base] = float(np.log(FLOOR))
        if not np.any(problem.further_ranks[problem.link == link]):
            fixed[per_rank] = float(np.log(FLOOR))
    if not np.any(problem.link):
        fixed[_OVERLAP] = 1.0
    return fixed


def _guess(problem: Problem) -> _Vector:
    """Guess half of the computing time for each part, and sums that take what steps take longer."""
    compute, step = np.exp(problem.log_compute), np.exp(problem.log_step) - np.exp(problem.log_beside)
    half = float(np.median(compute)) / 2
    vector = np.log([half, half / float(np.median(problem.micro_batch)), *[FLOOR] * 4, np.e])
    vector[_OVERLAP] = 2.0
    for link, base, per_rank in ((1, _HOST, _HOST_RANK), (2, _NETWORK, _NETWORK_RANK)):
        here = problem.link == link
        if np.any(here):
            longer = np.maximum(step[here] - compute[here], 0.1 * np.exp(problem.log_step[here]))
            vector[base] = np.log(float(np.median(longer)))
            vector[per_rank] = vector[base] - np.log(10.0)
    return np.maximum(vector, np.log(FLOOR))


def _warm(start: ThroughputParameters, problem: Problem) -> _Vector:
    """Begin from an earlier fit. What it has at the floor has no slope there, and begins anew."""
    vector, fresh = np.log([max(getattr(start, name), FLOOR) for name in NAMES]), _guess(problem)
    vector[_OVERLAP] = start.overlap
    stuck = np.exp(vector) < 1e-6 * float(np.median(np.exp(problem.log_compute)))
    stuck[_OVERLAP] = False
    return np.where(stuck, fresh, vector)


def _result(vector: _Vector, problem: Problem, assumed: tuple[str, ...], evaluations: int) -> Fit:
    compute_error, _, step_error, _ = _errors(vector, problem)
    error = max(float(np.sqrt(problem.weight @ one**2)) for one in (compute_error, step_error))
    values = dict(zip(NAMES, [*np.exp(vector[:_OVERLAP]).tolist(), float(vector[_OVERLAP])], strict=True))
    values |= {"beside_base": problem.beside_base, "beside_per_sample": problem.beside_per_sample}
    if "network_base" in assumed:
        values["network_base"] = max(values["network_base"], _NETWORK_OVER_HOST * values["host_base"])
        values["network_per_rank"] = max(values["network_per_rank"], values["host_per_rank"])
    return Fit(ThroughputParameters(**values), assumed, error, evaluations)
