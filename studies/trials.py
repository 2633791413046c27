"""A study as samplers know it: its search and its past trials, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from core.parameters import Scalar
from studies.space import Space

__all__ = ["Goal", "PastTrial", "Proposal", "Search"]

Goal = Literal["minimize", "maximize"]


@dataclass(frozen=True)
class Search:
    space: Space
    #: One of `samplers.SAMPLERS`.
    sampler: str
    goal: Goal
    seed: int
    #: Options of the sampler, such as `warm_up`; see `samplers.OPTIONS`.
    options: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PastTrial:
    #: Position of the trial in its study, from 0.
    number: int
    values: Mapping[str, Scalar]
    state: Literal["running", "complete", "pruned", "failed"]
    #: Final value of the metric, or None.
    value: float | None = None
    #: Progress (0 to 1) -> value of the metric.
    reported: Mapping[float, float] = field(default_factory=dict)
    #: Attributes of the proposal from which the trial was made.
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Proposal:
    #: Value of each parameter, constants included.
    values: dict[str, Scalar]
    #: Data of the sampler about this trial, as JSON that the trial's row keeps for later proposals.
    attributes: dict[str, Any] = field(default_factory=dict)
