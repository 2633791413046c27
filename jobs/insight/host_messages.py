"""Sentences about trainings that hold slots which are taken out of service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jobs.messages import gpus, plural
from scheduling.moves import Move

__all__ = ["MOST_NAMED", "becomes"]

#: Of more trainings, only the number is said.
MOST_NAMED = 12


def becomes(moves: Iterable[Move], names: Mapping[int, str]) -> list[str]:
    """A sentence for each training, those that stop first."""
    ordered = sorted(moves, key=lambda move: (move.target > 0, -move.held))
    sentences = [_one(move, names.get(move.job, f"Job {move.job}")) for move in ordered[:MOST_NAMED]]
    if rest := len(ordered) - len(sentences):
        sentences.append(plural(rest, "{count} more training.", "{count} more trainings."))
    return sentences


def _one(move: Move, name: str) -> str:
    if not move.target:
        return f"“{name}” stops with a checkpoint, gives back {gpus(move.held)}, and continues once there is room."
    if move.kept and not move.elastic:
        return f"“{name}” finishes on its {gpus(move.held)}: it is of fixed size."
    if move.kept:
        return f"“{name}” keeps its {gpus(move.held)} until it ends: its minimum fits nowhere else."
    return f"“{name}” leaves {gpus(move.held)} after a step, and trains on with {move.target}."
