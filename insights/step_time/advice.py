"""Advice on a training's time by cause. Each advice says how much faster it expects the training to be at most.

The bound is Amdahl's: without a part that takes the fraction f of the time, the training is 1 / (1 - f) times as fast.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from insights.step_time.shares import RankShare, Shares

__all__ = ["SlowAdvice", "advice_on", "reason_of_straggler"]

#: Fraction of the time from which a part is worth advice.
_WORTH = 0.1
_CHECKPOINTS = 0.05
_COMMUNICATION = 0.25

#: Parts that can make one rank slower than the others.
_OWN_PARTS = ("data", "compute", "optimizer", "checkpoint", "validation", "script")


@dataclass(frozen=True)
class SlowAdvice:
    code: str
    fraction: Annotated[float, "Fraction of the time that the advice is about, 0 to 1."]
    speedup: Annotated[float, "The training is at most so many times as fast if the advice is followed."]
    text: str


def advice_on(shares: Shares, ranks: Sequence[RankShare], straggler: RankShare | None) -> list[SlowAdvice]:
    """Return advice, the one that promises most first. shares: over all ranks."""
    found = list(_advice(shares, len([rank for rank in ranks if rank.rank is not None]), ranks, straggler))
    return sorted(found, key=lambda one: -one.fraction)


def _advice(
    shares: Shares, count: int, ranks: Sequence[RankShare], straggler: RankShare | None
) -> Iterator[SlowAdvice]:
    waiting, blamed = shares.get("straggling", 0.0), ""
    if straggler is not None and waiting >= _CHECKPOINTS:
        blamed = reason_of_straggler(straggler, ranks)
    saving = shares.get("checkpoint", 0.0) + (waiting if blamed == "checkpoint" else 0.0)
    if saving >= _CHECKPOINTS:
        yield _of(
            "CHECKPOINTS",
            saving,
            "Save less often: give the training a longer checkpoint_seconds, or a higher checkpoint_every.",
        )
    data = shares.get("data", 0.0) + (waiting if blamed == "data" and straggler and straggler.last_in < 0.75 else 0.0)
    if data >= _WORTH:
        yield _of(
            "DATA",
            data,
            "Read data ahead while the GPUs compute: give the loader workers (num_workers), or more of them, or keep"
            " decoded samples instead of decoding them in each epoch.",
        )
    if straggler is not None and waiting >= _WORTH and blamed != "checkpoint":
        yield _of("STRAGGLER", waiting, _straggler_text(straggler, blamed))
    if count > 1 and shares.get("communication", 0.0) >= _COMMUNICATION:
        yield _of(
            "COMMUNICATION",
            shares["communication"],
            "Sum gradients less often: a larger batch computes longer for each sum, and fewer GPUs on fewer hosts need"
            " less of it. The tab Speed shows what each number of GPUs brings.",
        )
    if shares.get("script", 0.0) >= _WORTH:
        yield _of(
            "SCRIPT",
            shares["script"],
            "Look at what the script does between its gradients and the next batch: numbers that are printed or logged"
            " in each step, .item() and files. tidepool stacks shows the line that it is in.",
        )
    if shares.get("validation", 0.0) >= _WORTH:
        yield _of("VALIDATION", shares["validation"], "Measure on held-out data less often, or on fewer samples.")


def reason_of_straggler(straggler: RankShare, ranks: Sequence[RankShare]) -> str:
    """Return the part of which the straggler has most more than the others, in fractions of the time."""
    others = [rank for rank in ranks if rank.rank is not None and rank is not straggler and rank.shares]

    def excess(part: str) -> float:
        mean = sum(rank.shares[part] for rank in others) / len(others) if others else 0.0
        return straggler.shares.get(part, 0.0) - mean

    return max(_OWN_PARTS, key=excess)


_REASONS = {
    "data": "it waits longer for its data",
    "compute": "it computes longer",
    "optimizer": "its optimizer takes longer",
    "checkpoint": "it writes the checkpoints",
    "validation": "it validates longer",
    "script": "its script does more between two steps",
}
_REMEDIES = {
    "data": "Look at its host's disk and processors, and at the samples that it reads.",
    "compute": "Look at its GPU's clock and temperature, and at what else runs on its host.",
}


def _straggler_text(straggler: RankShare, blamed: str) -> str:
    remedy = _REMEDIES.get(blamed, "Let all ranks do the same in each step.")
    return f"Rank {straggler.rank} on {straggler.host} holds the others up: {_REASONS[blamed]}. {remedy}"


def _of(code: str, fraction: float, text: str) -> SlowAdvice:
    speedup = 1.0 / (1.0 - min(fraction, 0.99))
    return SlowAdvice(
        code, round(fraction, 4), round(speedup, 2), f"{text} Expected: up to {speedup:.2g} times as fast."
    )


def straggler_words(straggler: RankShare, blamed: str) -> str:
    """Return "rank 2 on gpu1, which comes last in 94 % of the steps: it computes longer"."""
    return (
        f"rank {straggler.rank} on {straggler.host}, which comes last in {straggler.last_in:.0%} of the steps:"
        f" {_REASONS[blamed]}"
    ).replace("%", " %")
