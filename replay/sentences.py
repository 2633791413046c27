"""Sentences about a replay, with the numbers that they rest on, and who gains and loses by it."""

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

__all__ = ["Change", "Tile", "asked_in_words", "changes", "limits", "of_group", "sentence", "tiles"]

_SHOWN = 10
_LABELS = {term.column: term.name for term in TERMS}
_ERRORS = ("the average completion time", "the GPUs in use", "each training's completion time, at the median")


@dataclass(frozen=True)
class Tile:
    """One figure: as recorded, replayed under the same rules, and under the others ("" without).

    off: of `same`, against what was recorded; difference: of `other`, against `same`. "": there is none to tell.
    """

    label: str
    recorded: str
    same: str
    other: str
    off: str = ""
    difference: str = ""


@dataclass(frozen=True)
class Change:
    """A training's completion time, both replayed; the middle where there is a range."""

    job: int
    same: float
    other: float
    recorded: float | None

    @property
    def gain(self) -> float:
        """Seconds that it is over sooner."""
        return self.same - self.other


def asked_in_words(replay: Replay) -> list[str]:
    """Return a phrase for each change of the replay."""
    asked = replay.alternative
    found = [
        f"{group}: {', '.join(f'{_LABELS[name]} {in_words(name, value)}' for name, value in rules.items())}"
        for group, rules in asked.get("groups", {}).items()
    ]
    if "gpus" in asked:
        found.append(gpus(asked["gpus"]))
    if "restart_seconds" in asked:
        found.append(f"{asked['restart_seconds']:g} s for each change of size")
    return found


def of_group(replay: Replay, group: str) -> dict[str, Any]:
    """The result as that of the group alone, with the errors of all."""
    return {**replay.result, **replay.result["groups"][group]}


def sentence(replay: Replay, group: str | None = None) -> str:
    """Describe the result, and how far it is to be believed. Who may not see all of it reads one of each group."""
    if group is None and "recorded" not in replay.result:
        groups = replay.result["groups"]
        return " ".join(f"{name}: {sentence(replay, name)}" for name in groups) or "You may use none of its groups."
    found = replay.result if group is None else of_group(replay, group)
    if not found["counted"]:
        return "No training came to its own end in this window: there is nothing to compare."
    true, errors = found["recorded"], [found["errors"][name] for name in ("average", "gpus", "per_job")]
    off = (
        f"replaying the rules as they were is {_percent(errors[0])} off in {_ERRORS[0]}, {_percent(errors[1])} in "
        f"{_ERRORS[1]} and {_percent(errors[2])} in {_ERRORS[2]}"
    )
    count = trainings(found["counted"])
    if found["is_too_large"]:
        return f"Nothing can be compared: {off}, and more than {_percent(MOST)} is too much."
    rough = "" if found["is_good"] else f" Take it as a rough figure: good is up to {', '.join(map(_percent, BARS))}."
    if not found["other"]:
        took = f"{count} took {duration(true['average'])} on average"
        return f"{took}, {_range(found['same'], 'average')} replayed: {off}.{rough}"
    would = f"{count} would have taken {_range(found['other'], 'average')} instead of {duration(true['average'])}"
    return f"With {'; '.join(asked_in_words(replay))}: {would} on average ({off}).{rough}"


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %" if part < 0.1 else f"{100 * part:.0f} %"


def _range(figures: Sequence[Mapping[str, Any]], name: str) -> str:
    """One duration, or two where trainings were played both ways."""
    low, high = (duration(pick(one[name] for one in figures)) for pick in (min, max))
    return low if low == high else f"{low} to {high}"


def tiles(found: Mapping[str, Any]) -> list[Tile]:
    """found: a result, or that of a group."""
    shows_other = bool(found["other"]) and not found["is_too_large"]

    def tile(label: str, name: str, words: Any) -> Tile | None:
        if found["recorded"][name] is None:
            return None

        def both(figures: Sequence[Mapping[str, Any]]) -> str:
            low, high = (words(pick(one[name] for one in figures)) for pick in (min, max))
            return str(low if low == high else f"{low} to {high}")

        true, same = found["recorded"][name], found["same"]
        off, difference = _against(same, true, name), ""
        if shows_other and len(same) == 1:
            difference = _against(found["other"], same[0][name], name)
        return Tile(label, words(true), both(same), both(found["other"]) if shows_other else "", off, difference)

    shown = [
        tile("Completion, average", "average", duration),
        tile("Completion, median", "median", duration),
        tile("Completion, 99 %", "p99", duration),
        tile("Longest wait", "longest_wait", duration),
        tile("GPU-hours held", "gpu_hours", _hours),
        tile("GPU-hours free", "idle_gpu_hours", _hours),
        tile("Worst slowdown", "worst_slowdown", lambda times: f"{times:.2f} ×"),
        tile("Not over", "unfinished", str),
    ]
    return [one for one in shown if one is not None]


def _against(figures: Sequence[Mapping[str, Any]], value: float, name: str) -> str:
    """Return the difference in per cent, "" for a range or of nothing: "−12 %"."""
    if len(figures) != 1 or not value:
        return ""
    part = round(100 * (figures[0][name] / value - 1), 1)
    sign = "−" if part < 0 else "+" if part else "±"
    return f"{sign}{abs(part):.0f} %" if abs(part) >= 10 else f"{sign}{abs(part):.1f} %"


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 10 else f"{hours:.2f}"


def changes(replay: Replay, seen: Container[int]) -> tuple[list[Change], list[Change], int]:
    """Return who gains most, who loses most, and how many stay within 5 % of what they had; of those in `seen`."""
    found = []
    if not replay.result["is_too_large"]:
        for row in replay.jobs:
            one = dict(zip(JOB_COLUMNS, row, strict=True))
            if one["job"] in seen and one["counted"] and one["same_low"] is not None and one["other_low"] is not None:
                same, other = ((one[f"{name}_low"] + one[f"{name}_high"]) / 2 for name in ("same", "other"))
                found.append(Change(one["job"], same, other, one["recorded_seconds"]))
    moved = [change for change in found if abs(change.gain) > 0.05 * change.same]
    gains = sorted((change for change in moved if change.gain > 0), key=lambda change: (-change.gain, change.job))
    losses = sorted((change for change in moved if change.gain < 0), key=lambda change: (change.gain, change.job))
    return gains[:_SHOWN], losses[:_SHOWN], len(found) - len(moved)


def limits(replay: Replay) -> list[str]:
    """Return what is not known of this window, as sentences."""
    found, said = replay.result, []
    if found.get("unmeasured"):
        said.append(
            f"{_were(found['unmeasured'])} never measured: elastic ones are played twice, as if twice the GPUs made "
            "them twice as fast, and as if more GPUs did not help."
        )
    if found.get("unfinished"):
        said.append(f"{_were(found['unfinished'])} not over at the window's end, counted in GPUs only.")
    if found.get("withdrawn"):
        said.append(f"{_were(found['withdrawn'])} cancelled, here at the same moment.")
    figures = [found] if "same" in found else found["groups"].values()
    missing = max((one["unfinished"] for part in figures for one in (*part["same"], *part["other"])), default=0)
    if missing:
        said.append(
            f"{_were(missing)} not over four windows later in one of the replays, and left out of its averages."
        )
    said.append(
        "Not played: work lost with hosts, changes of resource groups, draining hosts, and how much faster or slower a "
        "training is on kinds of GPU on which it was never measured."
    )
    return said


def _were(count: int) -> str:
    return plural(count, "{count} training was", "{count} trainings were")
