"""Copies of studies in a database that Optuna opens elsewhere. Importing this module loads Optuna and SQLAlchemy.

A copied trial has the number that it has here. Optuna numbers trials in the order in which they are stored, so those
that still train stand before later ones that are over, and are finished in their turn. Optuna never changes a stored
trial that is over: if one differs from ours, because its study was restarted, the copy is made anew.
"""

import importlib.util
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import BaseStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from core.parameters import Scalar
from studies.space import Choice, Constant, Distribution, Normal, Space, Uniform
from studies.trials import Goal

__all__ = ["STEPS", "CopiedTrial", "ForeignStudy", "bring", "open_storage"]

#: Optuna's steps are integers: the progress at which a value was reported is counted in millionths.
STEPS = 1_000_000
#: Attributes of Optuna's studies and trials by which the copy knows its own.
_STUDY, _TRIAL, _VALUES = "tidepool:study", "tidepool:trial", "tidepool:values"
_STATES = {
    "COMPLETE": TrialState.COMPLETE,
    "PRUNED": TrialState.PRUNED,
    "FAILED": TrialState.FAIL,
}
_CONNECT_SECONDS = 10


class ForeignStudy(Exception):
    """Optuna's database has a study or trials of that name that are not from here."""


@dataclass(frozen=True)
class CopiedTrial:
    #: Position of the trial in its study, from 0.
    number: int
    #: One of `Trial.State`.
    state: str
    values: Mapping[str, Scalar]
    value: float | None
    #: Progress (0 to 1) -> value of the metric.
    reported: Mapping[float, float]
    began: datetime
    ended: datetime | None
    #: Further attributes, such as the number of the training.
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return self.state in _STATES


def open_storage(url: str) -> RDBStorage:
    """Open the database of a URL that Optuna takes, and make its tables if it has none."""
    if url.startswith("postgresql://") and importlib.util.find_spec("psycopg2") is None:
        url = url.replace("postgresql://", "postgresql+psycopg://", 1)
    is_file = url.startswith("sqlite")
    arguments = {"timeout": _CONNECT_SECONDS} if is_file else {"connect_timeout": _CONNECT_SECONDS}
    return RDBStorage(url, engine_kwargs={"connect_args": arguments, "pool_pre_ping": not is_file})


def bring(storage: BaseStorage, name: str, mark: str, goal: Goal, space: Space, trials: Sequence[CopiedTrial]) -> None:
    """Make Optuna's study of this name like ours, up to our last trial that is over. Safe to repeat.

    mark: text by which our study is told from others of the same name. trials: all of them, by number.
    """
    study = _study(storage, name, mark, goal)
    last = max((trial.number for trial in trials if trial.is_over), default=-1)
    wanted = [_frozen(trial, space) for trial in trials[: last + 1]]
    there = storage.get_all_trials(study, deepcopy=False)
    if any(trial.user_attrs.get(_TRIAL) != place for place, trial in enumerate(there)):
        raise ForeignStudy(f"The study {name} in Optuna's database has trials that are not from here.")
    if any(one.state.is_finished() and not _equal(one, other) for one, other in zip(there, wanted, strict=False)):
        storage.delete_study(study)
        study, there = _study(storage, name, mark, goal), []
    for one, other in zip(there, wanted, strict=False):
        if not one.state.is_finished():
            _continue(storage, one, other)
    for trial in wanted[len(there) :]:
        storage.create_new_trial(study, template_trial=trial)


def _study(storage: BaseStorage, name: str, mark: str, goal: Goal) -> int:
    """Return the id of our study, made if it does not exist. Raises ForeignStudy."""
    direction = StudyDirection.MINIMIZE if goal == "minimize" else StudyDirection.MAXIMIZE
    try:
        study = storage.get_study_id_from_name(name)
    except KeyError:
        study = storage.create_new_study([direction], study_name=name)
    found = storage.get_study_user_attrs(study).get(_STUDY)
    if found is None and not storage.get_all_trials(study, deepcopy=False):
        # Just made, now or by a process that died before it could write the mark.
        storage.set_study_user_attr(study, _STUDY, mark)
        return study
    if found != mark:
        raise ForeignStudy(f"Optuna's database has another study named {name}.")
    return study


def _continue(storage: BaseStorage, there: FrozenTrial, wanted: FrozenTrial) -> None:
    """Bring a trial that trained when it was copied up to date. Its end is written last: nothing can change then."""
    for step, value in wanted.intermediate_values.items():
        if step not in there.intermediate_values:
            storage.set_trial_intermediate_value(there._trial_id, step, value)
    if wanted.state.is_finished():
        storage.set_trial_state_values(there._trial_id, wanted.state, wanted.values)


def _equal(one: FrozenTrial, other: FrozenTrial) -> bool:
    own, others = (_without_nan(trial.intermediate_values) for trial in (one, other))
    return (one.state, one.values, one.params, own) == (other.state, other.values, other.params, others)


def _without_nan(values: Mapping[int, float]) -> dict[int, float | None]:
    """Return the values with None for NaN, which equals nothing."""
    return {step: None if math.isnan(value) else value for step, value in values.items()}


def _frozen(trial: CopiedTrial, space: Space) -> FrozenTrial:
    state = _STATES.get(trial.state, TrialState.RUNNING)
    distributions = _distributions_of(space, trial.values)
    return FrozenTrial(
        # Both are set when the trial is stored.
        number=-1,
        trial_id=-1,
        state=state,
        value=trial.value if state in (TrialState.COMPLETE, TrialState.PRUNED) else None,
        datetime_start=_local(trial.began),
        datetime_complete=_local(trial.ended or trial.began) if state.is_finished() else None,
        params={name: _param(trial.values[name], each) for name, each in distributions.items()},
        distributions=distributions,
        user_attrs={_TRIAL: trial.number, _VALUES: dict(trial.values), **trial.attributes},
        system_attrs={},
        intermediate_values={round(at * STEPS): value for at, value in trial.reported.items()},
    )


def _distributions_of(space: Space, values: Mapping[str, Scalar]) -> dict[str, BaseDistribution]:
    """Return the distribution of each value that lies in the space; Optuna stores no other values as parameters."""
    return {
        name: _distribution(each)
        for name, each in space.items()
        if name in values and not isinstance(each, Constant) and each.contains(values[name])
    }


def _distribution(distribution: Distribution) -> BaseDistribution:
    """Return the distribution as a script of Optuna's would write it."""
    if isinstance(distribution, Choice):
        return CategoricalDistribution(distribution.values)
    if isinstance(distribution, Normal):
        # Optuna has no normal distribution: the range has all values that ours can have.
        return FloatDistribution(distribution.low, distribution.high, log=distribution.log)
    assert isinstance(distribution, Uniform)
    low, high, log = distribution.low, distribution.high, distribution.log
    if distribution.whole:
        return IntDistribution(int(low), int(high), log=log, step=1 if log else int(distribution.step or 1))
    return FloatDistribution(low, high, log=log, step=None if log else distribution.step)


def _param(value: Scalar, distribution: BaseDistribution) -> Any:
    if isinstance(distribution, IntDistribution):
        return int(value)
    return float(value) if isinstance(distribution, FloatDistribution) else value


def _local(at: datetime) -> datetime:
    """Return the time as Optuna stores it: local, without a zone."""
    return at.astimezone().replace(tzinfo=None)
