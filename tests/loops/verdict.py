"""The verdict on a run: trained as the plain twin, different as documented, refused by name, or wrong."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from tidepool.rank_exits import HOPELESS
from tidepool.torch.rank.totals import SHORT_TOTALS

from tests.loops.loop import Loop, sentence_of
from tests.loops.played import Played
from tests.loops.twins import Course
from tests.runtime.lab import Lab

__all__ = ["Verdict", "judge"]

_LONGEST_WORDS = 400
Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Verdict:
    kind: Literal["trained", "differs", "refused", "WRONG"]
    #: Sentence of the refusal, or the reason.
    words: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}" if self.words else self.kind


def judge(loop: Loop, course: Course, played: Played) -> Verdict:
    if played.hung:
        return _wrong(f"hung at step {len(played.steps())}, last frames: {_frames(played.hung)}")
    if played.failures and not (played.survivors and _only_newcomers_are_refused(loop, played)):
        return _judge_errors(loop, played)
    if not played.labs[-1].journal("finished"):
        return _wrong("all ranks ended without an error, and the training is not finished")
    return _judge_end(loop, course, played)


def _only_newcomers_are_refused(loop: Loop, played: Played) -> bool:
    """Return whether the training keeps its size and is complete, because those that join it are refused by name."""
    lab = played.labs[-1]
    are_refused = all(loop.refuses(end["error"]) for end in played.failures)
    are_new = lab.founders().isdisjoint(end["member_id"] for end in played.failures)
    return bool(are_refused and are_new and lab.journal("finished"))


def _judge_errors(loop: Loop, played: Played) -> Verdict:
    errors = [end["error"] or {"kind": "exit", "message": f"code {end['code']}"} for end in played.failures]
    said = " | ".join(dict.fromkeys(map(sentence_of, errors)))
    made, are_refused = len(set(played.steps())), all(map(loop.refuses, errors))
    # A training that completes after a rank has failed fails with that rank's error (`jobs.control.outcome`).
    if played.survivors and not (are_refused and played.labs[-1].journal("finished")):
        return _wrong(f"{played.failures[0]['member_id']} died at step {made}, not all: {said}")
    if not are_refused:
        return _wrong(f"refused or failed at step {made}: {said}")
    if made and not all(error["kind"] in HOPELESS for error in errors):
        return _wrong(f"refused at step {made}, and would be computed again to be refused again: {said}")
    return Verdict("refused", _shortened(said))


def _judge_end(loop: Loop, course: Course, played: Played) -> Verdict:
    lab = played.labs[-1]
    ends = {name: lab.folder / f"final-{name}.pt" for name in lab.member_ids()}
    if missing := [name for name, path in ends.items() if not path.exists()]:
        return _wrong(f"{', '.join(missing)} did not come to the script's end")
    weights = {name: torch.load(path, weights_only=True) for name, path in ends.items()}
    own = next(iter(weights.values()))
    difference = _difference(own, course.weights, loop.tolerance)
    wrong = [*_wrong_steps(played.steps(), course.steps)]
    for name, other in weights.items():
        if between := _difference(other, own, 0.0):
            wrong.append(f"{name} holds other weights than the first rank: {between}")
    if between := _difference(_result(lab, own), own, 0.0):
        wrong.append(f"the weights that the training has written are others: {between}")
    if difference and loop.outcome != "differs" and not _lacks_totals(played):
        wrong.append(f"other weights than the plain loop: {difference}")
    if wrong:
        return _wrong("; ".join(wrong))
    return Verdict("differs", difference) if difference else Verdict("trained")


def _lacks_totals(played: Played) -> bool:
    """Return whether a rank has said that totals lack what a killed rank had added."""
    logs = (path for lab in played.labs for path in lab.folder.glob("log/*/stderr"))
    return bool(played.killed) and any(SHORT_TOTALS in path.read_text() for path in logs)


def _wrong_steps(steps: list[int], expected: int) -> list[str]:
    if not expected:
        return ["succeeded without a step"]
    if steps != list(range(1, len(steps) + 1)):
        return [f"steps are missing or made twice: {steps}"]
    return [] if len(steps) == expected else [f"{len(steps)} steps instead of {expected}"]


def _result(lab: Lab, own: Weights) -> Weights:
    """Return the results file's weights, as far as the script has written them too, by the names that it gave them."""
    path = lab.folder / "model/train/model_epoch_final.pth"
    written: Weights = torch.load(path, weights_only=True) if Path(path).exists() else {}
    named = {name if name in own else f"0.{name}": value for name, value in written.items()}
    return {name: named.get(name, value) for name, value in own.items()}


def _difference(one: Weights, other: Weights, tolerance: float) -> str:
    """Return where two sets of weights differ most, "" if by no more than the tolerance."""
    if one.keys() != other.keys():
        return f"names {sorted(one.keys() ^ other.keys())[:4]}"
    differences = {name: _distance(value, other[name]) for name, value in one.items()}
    name = max(differences, key=lambda name: differences[name], default="")
    return f"{name} by {differences[name]:.3g}" if name and differences[name] > tolerance else ""


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    if not one.numel():
        return 0.0
    wide = torch.complex128 if one.is_complex() else torch.float64
    distance = (one.to(wide) - other.to(wide)).abs().max().item()
    return float("inf") if distance != distance else float(distance)


def _wrong(words: str) -> Verdict:
    return Verdict("WRONG", _shortened(words))


def _shortened(words: str) -> str:
    return words if len(words) <= _LONGEST_WORDS else f"{words[:_LONGEST_WORDS]}…"


def _frames(stacks: str) -> str:
    """Return the innermost frame of each process' training thread that is in the script or the runtime."""
    found = [line.strip() for line in stacks.splitlines() if "/corpus/" in line or "/tidepool/torch/rank/" in line]
    return "; ".join(found[:3]) or stacks[:80]
