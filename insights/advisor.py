"""Find what is wrong with a training from its curves. The rules are pure: docs/decisions/0009-advisor.md.

Each rule compares medians of stretches or ranks of values, so that no single step decides, and returns None when there
are too few values. Each advice carries the numbers that led to it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Annotated, Literal

from core.text import plural
from jobs.models import AllocationPoint, Job
from jobs.queries.curves import HELD_OUT, chart_metrics, held_out_part
from jobs.queries.metrics import Curve, Sample, thinned_points
from jobs.states import TERMINAL

__all__ = ["MIN_STEPS", "Advice", "JobAdvice", "Training", "advise", "job_advice", "loss_count"]

#: Number of losses that every rule but `_not_a_number` needs.
MIN_STEPS = 60
#: Number of losses that `_stalled` needs: in fewer, noise hides slow progress.
STALL_STEPS = 240
#: Number of equal stretches into which a curve is cut.
STRETCHES = 12

_METRICS = frozenset({"loss", "accuracy", "samples_per_second", "learning_rate"})
Severity = Literal["wrong", "warning", "hint"]


@dataclass(frozen=True)
class Training:
    curves: Mapping[str, Curve]
    #: (time, number of GPUs from then on), in order of time.
    sizes: Sequence[tuple[datetime, int]] = ()
    #: Fraction of the training that is done, 0 to 1; None while unknown.
    progress: float | None = None
    is_over: bool = False

    @property
    def is_under_way(self) -> bool:
        return self.progress is None or self.progress >= 0.1


@dataclass(frozen=True)
class Advice:
    code: str
    severity: Severity
    text: Annotated[str, "The finding, with its numbers."]
    suggestions: Annotated[tuple[str, ...], "Remedies to try, the likeliest first."]
    params: Annotated[dict[str, float | int | str], "Numbers that the text contains."] = field(default_factory=dict)


@dataclass(frozen=True)
class _Stretch:
    first: int
    last: int
    middle: float
    #: Median distance of the values from `middle`: a measure of noise.
    spread: float


@dataclass(frozen=True)
class JobAdvice:
    summary: Annotated[str, "How many values the advice rests on, or why there is none."]
    advice: Sequence[Advice]


def job_advice(job: Job, curves: Mapping[str, Curve] | None = None) -> JobAdvice:
    """Return the advice about a job.

    curves: the curves of the job's page, if the caller has read them already.
    """
    if curves is None:
        names = [name for name in chart_metrics(job) if held_out_part(name)[1] in _METRICS]
        curves = {name: thinned_points(job, name) for name in names}
    sizes = list(AllocationPoint.objects.filter(job=job).order_by("at", "id").values_list("at", "slots"))
    training = Training(curves, sizes, job.run.progress, job.state in TERMINAL)
    found, count = advise(training), loss_count(training)
    if found:
        summary = f"Based on {count} values of the loss and the other curves."
    elif count == 0 and not job.run.step:
        summary = "No step was done, so there is nothing to judge." if training.is_over else "No step is done yet."
    elif count == 0:
        summary = "No loss is reported, so there is nothing to judge."
    elif count < MIN_STEPS:
        few = plural(count, "{count} value of the loss is too few", "{count} values of the loss are too few")
        summary = f"{few} to judge: advice starts at {MIN_STEPS}."
    else:
        summary = f"No problem was found in {count} values of the loss."
    return JobAdvice(summary, found)


def advise(training: Training) -> list[Advice]:
    """Return the advice, the gravest first; at most one of the rules about the trend of the loss applies."""
    about_loss = (_not_a_number, _diverges, _at_chance, _overfits, _stalled)
    found = [
        next(filter(None, (rule(training) for rule in about_loss)), None),
        _gaps(training),
        _too_many_gpus(training),
    ]
    return [advice for advice in found if advice is not None]


def loss_count(training: Training) -> int:
    """Return the number of losses that the rules see."""
    return len(_samples(training, "loss"))


# --- Rules -----------------------------------------------------------------------------------------------------------


def _not_a_number(training: Training) -> Advice | None:
    samples = _samples(training, "loss")
    behind = next((number for number, sample in enumerate(reversed(samples)) if sample.value is not None), len(samples))
    if behind < 3:
        return None
    since = samples[-behind].step
    return Advice(
        "LOSS_NOT_A_NUMBER",
        "wrong",
        f"The loss has not been a number since step {since}: every step after it is wasted.",
        (
            "Stop the training and continue from the last checkpoint before that step with a lower learning rate.",
            "Clip gradients (Session's before_update), or use a GradScaler with float16.",
            "Look for a division by zero or the logarithm of zero in the loss, and for such values in the data.",
        ),
        {"since_step": since, "values": behind},
    )


def _gaps(training: Training) -> Advice | None:
    samples = _samples(training, "loss")
    lost = [sample.step for sample in samples if sample.value is None]
    if not lost or _not_a_number(training):
        return None
    return Advice(
        "LOSS_HAD_GAPS",
        "hint",
        f"The loss was not a number in {len(lost)} of {len(samples)} steps, last at step {lost[-1]}. "
        "The loss has recovered.",
        ("If this happens again, clip gradients or lower the learning rate.",),
        {"gaps": len(lost), "looked_at": len(samples), "last_step": lost[-1]},
    )


def _diverges(training: Training) -> Advice | None:
    stretches = _stretches(_numbers(training, "loss"))
    if len(stretches) < 4:
        return None
    *former, before, last = stretches
    best = min(former, key=lambda stretch: stretch.middle)
    fallen = former[0].middle - best.middle
    risen = min(before.middle, last.middle) - best.middle
    noise = 3 * max(best.spread, min(before.spread, last.spread), 1e-12)
    if risen < max(noise, 0.3 * fallen, 0.2 * abs(best.middle)) or last.middle < before.middle - before.spread:
        return None
    rates = _values(_numbers(training, "learning_rate"))
    now = f" (now {rates[-1]:.3g})" if rates and rates[-1] else ""
    return Advice(
        "LOSS_DIVERGES",
        "wrong",
        f"The loss diverges: {_short(best.middle)} at its best (steps {best.first} to {best.last}), "
        f"{_short(last.middle)} now (steps {last.first} to {last.last}).",
        (
            f"Lower the learning rate{now} to a third or less, or warm it up.",
            f"Continue from a checkpoint before step {best.last}: later steps increased the loss.",
            "Clip gradients (Session's before_update).",
        ),
        {"best": best.middle, "best_last_step": best.last, "now": last.middle, "now_first_step": last.first},
    )


def _at_chance(training: Training) -> Advice | None:
    numbers = _numbers(training, "accuracy") or _held_out(training, "accuracy")
    stretches = _stretches(numbers)
    if len(stretches) < 4 or not training.is_under_way:
        return None
    highest, middle = max(s.middle for s in stretches), median(s.middle for s in stretches)
    spread = median(s.spread for s in stretches)
    classes = round(100 / middle) if middle > 0 else 0
    is_flat = highest - min(s.middle for s in stretches) <= max(1.5, 2 * spread)
    if not (is_flat and 2 <= classes <= 1000 and abs(middle - 100 / classes) <= max(1.0, 0.1 * middle)):
        return None
    return Advice(
        "ACCURACY_AT_CHANCE",
        "warning",
        f"The accuracy has stayed at {middle:.1f} % from step {stretches[0].first} to {stretches[-1].last}: "
        f"as good as guessing among {classes} classes.",
        (
            "Check that inputs and labels belong together, and that labels are not shuffled separately.",
            "Check the scale of the inputs, and try a learning rate ten times lower and ten times higher.",
            "Test whether the model can memorize 100 samples: if not, look for an error in the model.",
        ),
        {"accuracy": middle, "classes": classes, "highest": highest},
    )


def _overfits(training: Training) -> Advice | None:
    """Apply Prechelt's generalization loss, and only while the training loss still falls."""
    held_out, trained = _held_out(training, "loss"), _numbers(training, "loss")
    if len(held_out) < 5 or len(trained) < MIN_STEPS:
        return None
    values = _values(held_out)
    # Replace each value by the median of itself and its neighbours, so that one lucky evaluation is not the best.
    smooth = [median(values[max(0, place - 1) : place + 2]) for place in range(len(values))]
    at_best = min(smooth[:-3])
    best_step = held_out[smooth.index(at_best)].step
    later = median(values[-3:])
    # Median distance of neighbouring values: smaller differences are noise.
    jitter = median(abs(one - other) for one, other in pairwise(values))
    if at_best <= 0 or later - at_best < max(0.2 * at_best, 4 * jitter):
        return None
    if min(smooth[-3:]) < 1.1 * at_best or _still_learns(training, best_step):
        return None
    then = _median_around(trained, best_step)
    now = median(_values(trained)[-max(5, len(trained) // STRETCHES) :])
    if now >= then:
        return None
    return Advice(
        "OVERFITS",
        "warning",
        f"The model has overfitted since step {best_step}: the loss on held-out data has risen from {_short(at_best)} "
        f"to {_short(later)} (+{100 * (later / at_best - 1):.0f} %), while the training loss fell from {_short(then)} "
        f"to {_short(now)}.",
        (
            f"Use the weights of the checkpoint nearest to step {best_step}, and train for fewer epochs.",
            "Add weight decay, dropout or augmentation of the data, or use a smaller model.",
            "Add training data if available.",
        ),
        {"best_step": best_step, "best": at_best, "now": later, "trained_then": then, "trained_now": now},
    )


def _stalled(training: Training) -> Advice | None:
    numbers = _numbers(training, "loss")
    if len(numbers) < STALL_STEPS or training.is_over or not training.is_under_way:
        return None
    stretches = _stretches(numbers)
    if _has_converged(training, stretches):
        return None
    third = len(numbers) // 3
    middle, last = numbers[third : 2 * third], numbers[2 * third :]
    better = _share_lower(_values(middle), _values(last))
    was, now = median(_values(middle)), median(_values(last))
    fallen = max(stretches[0].middle - now, 1e-12)
    if better >= 0.58 or was - now >= 0.03 * fallen:
        return None
    return Advice(
        "LOSS_STALLED",
        "warning",
        f"The loss has stalled: {_short(now)} in steps {last[0].step} to {last[-1].step}, {_short(was)} in steps "
        f"{middle[0].step} to {middle[-1].step} before.",
        (
            "Lower the learning rate: by a schedule, or by continuing from a checkpoint with a tenth of it.",
            "If the loss is good enough, stop here: more steps cost GPU time without benefit.",
            "If the loss never fell far, raise the learning rate or use a larger model.",
        ),
        {"now": now, "before": was, "later_is_lower_percent": 100 * better, "first_step": middle[0].step},
    )


def _too_many_gpus(training: Training) -> Advice | None:
    """Compare the largest number of GPUs with the smallest that trains as fast."""
    speeds = {size: speed for size, speed in _speeds(training).items() if size > 0}
    if len(speeds) < 2:
        return None
    largest = max(speeds)
    enough = min(size for size, speed in speeds.items() if size == largest or speeds[largest] < 1.1 * speed)
    if largest < 1.5 * enough:
        return None
    return Advice(
        "GPUS_WITHOUT_EFFECT",
        "hint",
        f"{largest} GPUs train no faster than {enough}: {_short(speeds[largest])} against {_short(speeds[enough])} "
        f"samples per second. Your maximum could be {enough}.",
        (
            f"Set the maximum to {enough} GPUs: the speed stays the same, and others can use the rest.",
            "Raise the effective batch size in the next training: with few samples for each GPU the exchange of "
            "gradients takes longer than computing them.",
            "Load data with num_workers if the GPUs wait for data.",
        ),
        {"largest": largest, "enough": enough, "speed_largest": speeds[largest], "speed_enough": speeds[enough]},
    )


# --- Input of the rules ----------------------------------------------------------------------------------------------


def _samples(training: Training, name: str) -> Sequence[Sample]:
    return training.curves[name].even if name in training.curves else ()


def _numbers(training: Training, name: str) -> list[Sample]:
    return [sample for sample in _samples(training, name) if sample.value is not None]


def _held_out(training: Training, metric: str) -> list[Sample]:
    return next(filter(None, (_numbers(training, f"{prefix}{metric}") for prefix in HELD_OUT)), [])


def _values(samples: Iterable[Sample]) -> list[float]:
    return [sample.value for sample in samples if sample.value is not None]


def _stretches(samples: Sequence[Sample]) -> list[_Stretch]:
    """Cut the curve into STRETCHES equal parts; return none if it has fewer than MIN_STEPS values."""
    if len(samples) < MIN_STEPS:
        return []
    borders = [len(samples) * number // STRETCHES for number in range(STRETCHES + 1)]
    stretches = []
    for first, last in pairwise(borders):
        values = _values(samples[first:last])
        middle = median(values)
        spread = median(abs(value - middle) for value in values)
        stretches.append(_Stretch(samples[first].step, samples[last - 1].step, middle, spread))
    return stretches


def _has_converged(training: Training, stretches: Sequence[_Stretch]) -> bool:
    """Return whether the training can gain little more, or has nearly ended."""
    accuracies = _values(_held_out(training, "accuracy") or _numbers(training, "accuracy"))
    is_low = stretches[-1].middle < 0.1 * stretches[0].middle
    return is_low or max(accuracies[-20:], default=0.0) >= 97.0 or (training.progress or 0.0) > 0.9


def _still_learns(training: Training, since: int) -> bool:
    """Return whether held-out accuracy still rises: the loss may rise on a few samples meanwhile."""
    accuracies = _held_out(training, "accuracy")
    before = _values(sample for sample in accuracies if sample.step <= since)
    return bool(before) and median(_values(accuracies[-3:])) > max(before) + 3.0


def _median_around(samples: Sequence[Sample], step: int) -> float:
    place = bisect_right([sample.step for sample in samples], step)
    width = max(5, len(samples) // (2 * STRETCHES))
    return median(_values(samples[max(0, place - width) : place + width]))


def _share_lower(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the share of all pairs in which the later value is lower; equal values count half."""
    ordered = sorted(before)
    lower = sum(
        len(ordered) - bisect_right(ordered, value) + 0.5 * (bisect_right(ordered, value) - bisect_left(ordered, value))
        for value in after
    )
    return lower / (len(before) * len(after))


def _speeds(training: Training) -> dict[int, float]:
    """Return the median samples per second by world size, for sizes with at least 8 values."""
    moments = [at for at, _ in training.sizes]
    found: dict[int, list[float]] = {}
    for sample in _numbers(training, "samples_per_second"):
        place = bisect_right(moments, sample.at) - 1 if sample.at else -1
        if place >= 0:
            found.setdefault(training.sizes[place][1], []).extend(_values([sample]))
    return {size: median(values) for size, values in found.items() if len(values) >= 8}


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
