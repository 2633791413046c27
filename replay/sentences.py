"""Sentences and figures of a replay, and the trainings that gain and lose most."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.text import plural
from core.time import duration
from jobs.queries.group_terms import TERMS, in_words
from jobs.words import gpus, trainings
from replay.models import Replay
from replay.player import JOB_COLUMNS
from scheduling.replay.outcome import BARS, MOST

__all__ = [
    "JobEffect",
    "Tile",
    "change_phrases",
    "gains_and_losses",
    "group_result",
    "limits",
    "result_sentence",
    "tiles",
]

_SHOWN = 10
_LABELS = {term.column: term.name for term in TERMS}
_ERRORS = ("the average completion time", "the GPUs in use", "each training's completion time, at the median")


@dataclass(frozen=True)
class Tile:
    """A row of figures: recorded, replayed without changes, and with the changes."""

    label: str
    recorded: str
    same: str
    #: "": no changes were requested.
    other: str
    #: Difference of `same` from `recorded` in percent; "": not comparable.
    error: str = ""
    #: Difference of `other` from `same` in percent; "": not comparable.
    difference: str = ""


@dataclass(frozen=True)
class JobEffect:
    """Completion time of a training in both replays, in seconds; the middle of a range."""

    job: int
    same: float
    other: float
    recorded: float | None

    @property
    def gain(self) -> float:
        """Seconds by which the training finishes sooner with the changes."""
        return self.same - self.other


def change_phrases(replay: Replay) -> list[str]:
    """Return a phrase for each change of the replay."""
    alternative = replay.alternative
    phrases = [
        f"{group}: {', '.join(f'{_LABELS[name]} {in_words(name, value)}' for name, value in rules.items())}"
        for group, rules in alternative.get("groups", {}).items()
    ]
    if "gpus" in alternative:
        phrases.append(gpus(alternative["gpus"]))
    if "restart_seconds" in alternative:
        phrases.append(f"a pause of {alternative['restart_seconds']:g} s at each resize")
    return phrases


def group_result(replay: Replay, group: str) -> dict[str, Any]:
    """Return the result with the group's figures instead of those of the cluster."""
    return {**replay.result, **replay.result["groups"][group]}


def result_sentence(replay: Replay, group: str | None = None) -> str:
    """Return a sentence about the result and its accuracy; one for each group if the reader sees only some groups."""
    if group is None and "recorded" not in replay.result:
        groups = replay.result["groups"]
        return (
            " ".join(f"{name}: {result_sentence(replay, name)}" for name in groups)
            or "The replay has no instance group that you may use."
        )
    found = replay.result if group is None else group_result(replay, group)
    if not found["counted"]:
        return "No training ended by itself in this period, so there is nothing to compare."
    true, errors = found["recorded"], [found["errors"][name] for name in ("average", "gpus", "per_job")]
    off = (
        f"the replay without changes differs from the record by {_percent(errors[0])} in {_ERRORS[0]}, "
        f"{_percent(errors[1])} in {_ERRORS[1]} and {_percent(errors[2])} in {_ERRORS[2]}"
    )
    count = trainings(found["counted"])
    if found["is_too_large"]:
        return f"The results cannot be compared: {off}. More than {_percent(MOST)} is too inaccurate."
    rough = (
        ""
        if found["is_good"]
        else f" This is a rough estimate: accurate ones differ by at most {', '.join(map(_percent, BARS))}."
    )
    if not found["other"]:
        took = f"{count} took {duration(true['average'])} on average"
        return f"{took}, {_range(found['same'], 'average')} replayed: {off}.{rough}"
    would = f"{count} would have taken {_range(found['other'], 'average')} instead of {duration(true['average'])}"
    return f"With {'; '.join(change_phrases(replay))}: {would} on average ({off}).{rough}"


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %" if part < 0.1 else f"{100 * part:.0f} %"


def _range(figures: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return one duration, or a range if trainings were replayed with two assumptions."""
    low, high = (duration(pick(one[name] for one in figures)) for pick in (min, max))
    return low if low == high else f"{low} to {high}"


def tiles(found: Mapping[str, Any]) -> list[Tile]:
    """Return the figures of a result, or of a group's result."""
    shows_other = bool(found["other"]) and not found["is_too_large"]

    def tile(label: str, name: str, words: Any) -> Tile | None:
        if found["recorded"][name] is None:
            return None

        def both(figures: Sequence[Mapping[str, Any]]) -> str:
            low, high = (words(pick(one[name] for one in figures)) for pick in (min, max))
            return str(low if low == high else f"{low} to {high}")

        true, same = found["recorded"][name], found["same"]
        error, difference = _against(same, true, name), ""
        if shows_other and len(same) == 1:
            difference = _against(found["other"], same[0][name], name)
        return Tile(label, words(true), both(same), both(found["other"]) if shows_other else "", error, difference)

    shown = [
        tile("Average completion time", "average", duration),
        tile("Median completion time", "median", duration),
        tile("99th percentile of completion times", "p99", duration),
        tile("Longest wait", "longest_wait", duration),
        tile("GPU-hours held", "gpu_hours", _hours),
        tile("GPU-hours idle", "idle_gpu_hours", _hours),
        tile("Worst slowdown", "worst_slowdown", lambda times: f"{times:.2f} ×"),
        tile("Unfinished trainings", "unfinished", str),
    ]
    return [one for one in shown if one is not None]


def _against(figures: Sequence[Mapping[str, Any]], value: float, name: str) -> str:
    """Return the difference in percent, such as "−12 %"; "" for a range, or if `value` is 0."""
    if len(figures) != 1 or not value:
        return ""
    part = round(100 * (figures[0][name] / value - 1), 1)
    sign = "−" if part < 0 else "+" if part else "±"
    return f"{sign}{abs(part):.0f} %" if abs(part) >= 10 else f"{sign}{abs(part):.1f} %"


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 10 else f"{hours:.2f}"


def gains_and_losses(replay: Replay, seen: Container[int]) -> tuple[list[JobEffect], list[JobEffect], int]:
    """Return the trainings in `seen` that gain most, those that lose most, and the number that change by up to 5 %."""
    found = []
    if not replay.result["is_too_large"]:
        for row in replay.jobs:
            one = dict(zip(JOB_COLUMNS, row, strict=True))
            if one["job"] in seen and one["counted"] and one["same_low"] is not None and one["other_low"] is not None:
                same, other = ((one[f"{name}_low"] + one[f"{name}_high"]) / 2 for name in ("same", "other"))
                found.append(JobEffect(one["job"], same, other, one["recorded_seconds"]))
    moved = [change for change in found if abs(change.gain) > 0.05 * change.same]
    gains = sorted((change for change in moved if change.gain > 0), key=lambda change: (-change.gain, change.job))
    losses = sorted((change for change in moved if change.gain < 0), key=lambda change: (change.gain, change.job))
    return gains[:_SHOWN], losses[:_SHOWN], len(found) - len(moved)


def limits(replay: Replay) -> list[str]:
    """Return sentences about the assumptions and limits of the replay."""
    found, sentences = replay.result, []
    if found.get("unmeasured"):
        sentences.append(
            f"{_were(found['unmeasured'])} never measured: elastic ones are replayed twice, once as if twice the GPUs "
            "made them twice as fast, and once as if more GPUs did not help."
        )
    if found.get("unfinished"):
        sentences.append(
            f"{_were(found['unfinished'])} unfinished at the end of the period, and only counted in the GPUs in use."
        )
    if found.get("withdrawn"):
        sentences.append(f"{_were(found['withdrawn'])} cancelled, which the replay does at the same time.")
    figures = [found] if "same" in found else found["groups"].values()
    missing = max((one["unfinished"] for part in figures for one in (*part["same"], *part["other"])), default=0)
    if missing:
        sentences.append(
            f"{_were(missing)} still unfinished in one of the replays after four times the period, and left out of its "
            "averages."
        )
    sentences.append(
        "Not replayed: work lost with hosts, changes of resource groups, draining hosts, and the speed of trainings on "
        "GPU models on which they were never measured."
    )
    return sentences


def _were(count: int) -> str:
    return plural(count, "{count} training was", "{count} trainings were")
