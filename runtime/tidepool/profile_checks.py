"""Checks of measures that ranks report: a rank runs a script, and may say anything.

Both the coordinator, before it writes to its journal, and the control plane, before it stores, ask `why_refused`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidepool.goodput.model import Bounds, NoiseScale
from tidepool.protocol import AdaptedBatch, Entry, MemberMessage, Profiled, ProfileRefused, StepTimes

__all__ = ["PROFILE_SECONDS", "Profiles", "bounds_of", "noise_of", "why_batch_refused", "why_refused"]

#: Rank 0 reports its figures at most so often.
PROFILE_SECONDS = 10.0
#: No step is longer than a day, none has more ranks or samples: what says so is a mistake or a lie.
_LONGEST_SECONDS = 86_400.0
_MOST_RANKS, _MOST_SAMPLES, _MOST_STEPS = 2**16, 2**31 - 1, 2**31 - 1
_MOST_POINTS, _MOST_GROUPS = 64, 8
_NAME_LENGTH = 128
#: Messages with something to refuse, one upon another, until somebody is told.
_PATIENCE = 3
#: Sums in 32 bits may be off by so much.
_ROUNDING = 1e-3


def why_refused(times: StepTimes) -> str:
    """Return why a reported figure is refused; "": it is believed."""
    for name in ("compute_seconds", "step_seconds"):
        seconds = getattr(times, name)
        if not math.isfinite(seconds) or not 0 < seconds <= _LONGEST_SECONDS:
            return f"{name} is {seconds!r}, and not between 0 and {_LONGEST_SECONDS:.0f}"
    counts = {"hosts": times.ranks, "ranks": _MOST_RANKS, "batch": _MOST_SAMPLES, "steps": _MOST_STEPS}
    for name, most in counts.items():
        if not 1 <= getattr(times, name) <= most:
            return f"{name} is {getattr(times, name)!r}, and not between 1 and {most}"
    if not 1 <= len(times.kind) <= _NAME_LENGTH:
        return "the kind of GPU has no name of 1 to 128 letters"
    return ""


def why_batch_refused(adapted: AdaptedBatch, step: int) -> str:
    """Return why a report about the batch after so many steps is refused; "": it is believed."""
    counts = ("submitted", "most", "batch", "least_micro_batch", "most_micro_batch", "micro_batch")
    for name in counts:
        if not 1 <= getattr(adapted, name) <= _MOST_SAMPLES:
            return f"{name} is {getattr(adapted, name)!r}, and not between 1 and {_MOST_SAMPLES}"
    if not 0 <= adapted.accumulation <= _MOST_SAMPLES:
        return f"accumulation is {adapted.accumulation!r}, and not between 0 and {_MOST_SAMPLES}"
    try:
        bounds_of(adapted)
        noise_of(adapted)
    except ValueError as error:
        return str(error)
    largest = adapted.most / adapted.submitted * (1 + _ROUNDING)
    if len(adapted.rate_factors) > _MOST_GROUPS or not all(0 <= each <= largest for each in adapted.rate_factors):
        return f"rate_factors are not up to {_MOST_GROUPS} numbers between 0 and {largest:g}"
    for name, most in {"gain": largest, "progress": largest * step}.items():
        if not 0 < getattr(adapted, name) <= most:
            return f"{name} is {getattr(adapted, name)!r}, and not between 0 and {most:g}"
    return ""


def bounds_of(adapted: AdaptedBatch) -> Bounds:
    """Raises ValueError for bounds that cannot be."""
    micro = adapted.least_micro_batch, adapted.most_micro_batch
    found = Bounds(adapted.submitted, adapted.most, *micro, adapted.accumulates)
    return replace(found, max_batch_size=adapted.submitted) if adapted.pinned else found


def noise_of(adapted: AdaptedBatch) -> NoiseScale | None:
    """Return the noise; None: not measured yet. Raises ValueError for numbers that cannot be."""
    if adapted.variance is None or adapted.squared_gradient is None:
        return None
    return NoiseScale(adapted.variance, adapted.squared_gradient)


@dataclass
class Profiles:
    """The coordinator's part: which figures of rank 0 go into the journal. Pure."""

    _stored_at: float | None = None
    _refused: int = 0
    _last_refusal: str = ""

    def received(self, message: MemberMessage, now: float) -> list[Entry]:
        """now: Unix seconds. Whoever reports faster than ranks do is not listened to."""
        if self._stored_at is not None and abs(now - self._stored_at) < PROFILE_SECONDS / 2:
            return []
        self._stored_at = now
        if message.error:
            return self._tell(message.error, now)
        newest, adapted = message.times[-_MOST_POINTS:], message.adapted
        whys = [why for times in newest if (why := why_refused(times))]
        samples = {"batch_size": (message.batch_size, 1), "most_micro_batch": (message.most_micro_batch, 0)}
        for name, (value, least) in samples.items():
            if not least <= value <= _MOST_SAMPLES:
                whys, newest, adapted = [f"{name} is {value}, and not between {least} and {_MOST_SAMPLES}"], [], None
        believed = [times for times in newest if not why_refused(times)]
        if adapted is not None and (why := why_batch_refused(adapted, message.step)):
            whys, adapted = [*whys, why], None
        self._refused = self._refused + 1 if whys else 0
        entries: list[Entry] = []
        if believed or adapted is not None:
            most = message.most_micro_batch
            entries = [Profiled(message.step, message.batch_size, believed, adapted, most, at=now)]
        return [*entries, *(self._tell(whys[-1], now) if self._refused == _PATIENCE else [])]

    def recall(self, entries: Iterable[Entry]) -> None:
        """Take over from an earlier coordinator's journal what has been told already."""
        for entry in entries:
            if isinstance(entry, ProfileRefused):
                self._last_refusal = entry.why

    def _tell(self, why: str, now: float) -> list[Entry]:
        if why == self._last_refusal:
            return []
        self._last_refusal = why
        return [ProfileRefused(why[:200], at=now)]
