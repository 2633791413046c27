"""Advice on a training's time by cause. Each advice says how much faster it expects the training to be at most.

The bound is Amdahl's: without a part that takes the fraction f of the time, the training is 1 / (1 - f) times as fast.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from tidepool.units import size_words

from insights.step_time.causes import causes_of, reason_of_straggler
from insights.step_time.shares import RankShare, Shares

__all__ = [
    "BATCH",
    "READS",
    "SlowAdvice",
    "advice_on",
    "batch_share",
    "read_share",
    "straggler_words",
]

#: Codes of advice whose fraction is no part's.
BATCH, READS = "BATCH", "READS"

#: Fraction of the time from which a part is worth advice.
_WORTH = 0.1
_CHECKPOINTS = 0.05
_COMMUNICATION = 0.25
#: ... the same for time that does not depend on the size of the batch.
_BATCH = 0.3
#: Least of what computing takes for each batch, as a fraction of the update: where the update takes more than that, it
#: is slow itself, whatever the batch.
_OF_UPDATE = 0.25
#: Least of what computing takes for each batch, as a fraction of the time: with less, sums are long by themselves.
_FIXED_COMPUTING = 0.05
#: Reads of tensors in a step from which the script reads in each step.
_EACH_STEP = 0.5
#: Fractions of the time in data below and above which a rank waits for storage, or decodes.
_IDLE, _BUSY = 0.3, 0.7
#: Bytes in a second below which a network is slow for gradients: a tenth of 10 Gbit/s.
_SLOW_NETWORK = 125e6

#: Part -> code and text of the advice on it.
_TEXTS = {
    "checkpoint": (
        "CHECKPOINTS",
        "Save less often: give the training a longer checkpoint_seconds, or a higher checkpoint_every.",
    ),
    "data": (
        "DATA",
        "Read data ahead while the GPUs compute: give the loader workers (num_workers), or more of them, or keep"
        " decoded samples instead of decoding them in each epoch.",
    ),
    "communication": (
        "COMMUNICATION",
        "Sum gradients less often: a larger batch computes longer for each sum, and fewer GPUs on fewer hosts need less"
        " of it. The tab Speed shows what each number of GPUs brings.",
    ),
    "script": (
        "SCRIPT",
        "Look at what the script does between its gradients and the next batch: numbers that are printed or logged in"
        " each step, .item() and files. tidepool stacks shows the line that it is in.",
    ),
    "validation": ("VALIDATION", "Measure on held-out data less often, or on fewer samples."),
    "optimizer": (
        "OPTIMIZER",
        "Update less often, or faster: a larger batch needs fewer updates for the same samples, and torch's optimizers"
        " update all weights at once with fused=True.",
    ),
}


@dataclass(frozen=True)
class SlowAdvice:
    code: str
    fraction: Annotated[float, "Fraction of the time that the advice is about, 0 to 1."]
    speedup: Annotated[float, "The training is at most so many times as fast if the advice is followed."]
    text: str


def advice_on(
    shares: Shares,
    ranks: Sequence[RankShare],
    straggler: RankShare | None,
    cores: float | None = None,
    fixed_computing: float | None = None,
) -> list[SlowAdvice]:
    """Return advice, the one that promises most first.

    shares: over all ranks. cores: smallest number of cores that a rank has with its GPU. fixed_computing: fraction of
    computing that does not depend on the size of the batch. None: not known.
    """
    found: list[SlowAdvice] = []
    shares = causes_of(shares, ranks, straggler)
    if straggler is not None:
        found += _on_straggler(shares, ranks, straggler)
    found += _on_all(shares, ranks, cores)
    found += _on_reads(ranks)
    found += _on_batch(batch_share(shares, fixed_computing, ranks))
    explained = {one.code for one in found}
    if READS in explained:  # the script's time is that of its reads
        found = [one for one in found if one.code != "SCRIPT" or one.fraction > 2 * read_share(ranks)]
    if BATCH in explained:
        found = [
            one for one in found if one.code != "OPTIMIZER" and (one.code != "COMMUNICATION" or _on_network(ranks))
        ]
    return sorted(found, key=lambda one: -one.fraction)


def read_share(ranks: Sequence[RankShare]) -> float:
    """Return the fraction of the ranks' time for which reads of tensors in each step have held them up."""
    present = [rank for rank in ranks if rank.rank is not None]
    reading = [rank.read_share if rank.reads >= _EACH_STEP else 0.0 for rank in present]
    return sum(reading) / len(reading) if reading else 0.0


def batch_share(shares: Shares, fixed_computing: float | None, ranks: Sequence[RankShare]) -> float:
    """Return the fraction of the time that does not depend on the size of the batch; 0: not known.

    That is a part of computing, the update, and the sum of the gradients unless a slow network is what makes it long.
    """
    if fixed_computing is None:
        return 0.0
    # The measured steps contain their data, which may take the same for each batch: that much is not computing's.
    fixed = fixed_computing * (shares["compute"] + shares["data"]) - shares["data"]
    if fixed < max(shares["optimizer"] * _OF_UPDATE, _FIXED_COMPUTING):
        return 0.0
    return fixed + shares["optimizer"] + (0.0 if _on_network(ranks) else shares["communication"])


def _on_reads(ranks: Sequence[RankShare]) -> Iterator[SlowAdvice]:
    if (waiting := read_share(ranks)) < _WORTH:
        return
    longest = max((rank for rank in ranks if rank.rank is not None), key=lambda rank: rank.read_share)
    where = f" The longest are in {longest.read_place}." if longest.read_place else ""
    yield _of(
        READS,
        waiting,
        f"Read numbers from the GPU less often: the script does so {longest.reads:.2g} times in each step, by .item()"
        f" or the like, and each time the host waits until the GPU has caught up.{where} Add the values up on the GPU,"
        " and read the sum once in a hundred steps.",
    )


def _on_batch(fixed: float) -> Iterator[SlowAdvice]:
    if fixed >= _BATCH:
        yield _of(
            BATCH,
            fixed,
            f"Enlarge the batch: {fixed * 100:.0f} % of the time does not depend on its size, because the batch is too"
            " small to keep a GPU busy. That is what computing, sums of gradients and updates take for each batch,"
            " however small.",
        )


def _on_straggler(others: Shares, ranks: Sequence[RankShare], straggler: RankShare) -> Iterator[SlowAdvice]:
    waiting, blamed = others["straggling"], reason_of_straggler(straggler, ranks)
    if blamed != "checkpoint" and waiting >= _WORTH:
        yield _of("STRAGGLER", waiting, _straggler_text(straggler, blamed))


def _on_all(shares: Shares, ranks: Sequence[RankShare], cores: float | None) -> Iterator[SlowAdvice]:
    """Yield advice on what takes all ranks' time."""
    least = dict.fromkeys(("data", "script", "validation", "optimizer"), _WORTH) | {"checkpoint": _CHECKPOINTS}
    if len([rank for rank in ranks if rank.rank is not None]) > 1:
        least["communication"] = _COMMUNICATION
    for part, (code, text) in _TEXTS.items():
        if part in least and shares.get(part, 0.0) >= least[part]:
            if part == "data":
                text = _on_data(ranks, cores) or text
            if part == "communication":
                text = _on_network(ranks) + text
            yield _of(code, shares[part], text)


def _on_data(ranks: Sequence[RankShare], cores: float | None) -> str:
    """Return the text on data by what the processor does in that time; "": nothing of it is known."""
    known = [rank.data_busy for rank in ranks if rank.rank is not None and rank.data_busy is not None]
    busy = sum(known) / len(known) if known else 0.5
    if busy < _IDLE:  # workers cannot read more than a disk or a network brings
        return (
            f"Copy the data to a fast disk of the host: the processor is busy for {busy * 100:.0f} % of the time in"
            " data, so the rest waits for storage or a network. Workers of the loader (num_workers) help as far as that"
            " can answer several reads at once."
        )
    decoding = (
        f" The processor is busy for {busy * 100:.0f} % of that time: it decodes. Keep decoded samples instead of"
        " decoding them in each epoch."
    )
    workers = _on_workers(ranks, cores)
    return workers + decoding if workers and busy > _BUSY else workers


def _on_network(ranks: Sequence[RankShare]) -> str:
    """Return at which speed gradients travel between hosts where that is slow; "": it is not, or is not known."""
    known = [rank for rank in ranks if rank.rank is not None and rank.sum_bytes and rank.steps]
    if len({rank.host for rank in known}) < 2:
        return ""
    size = max(rank.sum_bytes for rank in known)
    seconds = min(rank.seconds * rank.shares["communication"] / rank.steps for rank in known)
    if seconds <= 0 or size / seconds >= _SLOW_NETWORK:
        return ""
    return (
        f"The network between the hosts is slow: each step sums {size_words(size)} of gradients, and waits"
        f" {seconds * 1e3:.0f} ms for it, {size_words(size / seconds)} a second. "
    )


def _on_workers(ranks: Sequence[RankShare], cores: float | None) -> str:
    """Return the text on loaders without workers, or with more of them than cores; "": neither is known."""
    counts = {rank.workers for rank in ranks if rank.rank is not None}
    if None in counts or not counts:
        return ""
    share = "" if cores is None else f", of which the training has {cores:.3g} with each GPU"
    if counts == {0}:
        most = 4 if cores is None else max(1, min(8, int(cores) - 1))
        return (
            "The loader has no workers, so each rank reads its data itself and computes nothing meanwhile: give the"
            f" loader num_workers={most}. A worker keeps up to one core busy{share}."
        )
    largest = max(count for count in counts if count is not None)
    if cores is not None and largest > max(1.0, cores):
        return (
            f"With each GPU, the training has {largest} workers of its loader and {cores:.3g} cores:"
            " more workers than cores wait for each other. Keep decoded samples, or train on hosts with more cores."
        )
    return ""


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
