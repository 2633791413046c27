"""Past trials as an Optuna study in memory. Importing this module loads Optuna, which web processes must not do.

Optuna draws a number that it can model, and the trial gets a value made of it: 0.3 for 0.30000000000000004, or the
value at a quantile of a normal distribution. Where the number cannot be computed back from the value, the row holds it.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from statistics import NormalDist
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from core.parameters import Scalar
from studies.cmaes_sampler import ATTRIBUTE_PREFIX
from studies.space import DEVIATIONS, Choice, Constant, Distribution, Normal, Space, Uniform
from studies.trials import Goal, PastTrial

__all__ = ["ask", "distributions_of", "past_study", "quiet"]

#: Key of a trial's attribute: parameter -> number that Optuna drew, where the value does not determine it.
DRAWN = "drawn"
#: Largest number of values of a range that Optuna sees as discrete: its Gaussian process lists them all.
_MOST_DISCRETE = 10_000
#: Optuna's steps are integers; progress is counted in millionths.
_STEPS = 1_000_000
_STANDARD = NormalDist()
#: Time at which all trials begin and end: samplers do not look at it.
_SOME_TIME = datetime(2000, 1, 1)
_STATES = {
    "running": TrialState.RUNNING,
    "complete": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna from logging, and from warning of options that it will change: its version is pinned."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def past_study(
    space: Space, goal: Goal, trials: Sequence[PastTrial], number: int, sampler: BaseSampler | None = None
) -> optuna.Study:
    """Return a study with the trials below this number. A number without a trial counts as a failed one."""
    past = {trial.number: trial for trial in trials}
    assert all(other < number for other in past), "trials are proposed in the order of their numbers"
    study = optuna.create_study(direction=goal, sampler=sampler)
    distributions = distributions_of(space)
    for earlier in range(number):
        trial = past.get(earlier)
        study.add_trial(_unknown_trial() if trial is None else _frozen(trial, space, distributions))
    return study


def ask(study: optuna.Study, space: Space) -> tuple[dict[str, Scalar], dict[str, Any]]:
    """Return the values of the study's next trial, and the attributes that its row must keep."""
    drawn = study.ask(distributions_of(space)).params
    values = {name: _value(space[name], drawn[name]) if name in drawn else space[name].at(0) for name in sorted(space)}
    inexact = {name: each for name, each in drawn.items() if _number(space[name], values[name]) != each}
    system = study.get_trials(deepcopy=False)[-1].system_attrs
    attributes = {key: value for key, value in system.items() if key.startswith(ATTRIBUTE_PREFIX)}
    return values, attributes | ({DRAWN: inexact} if inexact else {})


def distributions_of(space: Space) -> dict[str, BaseDistribution]:
    """Return Optuna's distribution of each parameter that is not constant, in the order of names."""
    return {name: _optuna_distribution(each) for name, each in sorted(space.items()) if not isinstance(each, Constant)}


def _optuna_distribution(distribution: Uniform | Normal | Choice) -> BaseDistribution:
    if isinstance(distribution, Choice):
        return CategoricalDistribution(distribution.values)
    if isinstance(distribution, Normal):
        return FloatDistribution(_STANDARD.cdf(-DEVIATIONS), _STANDARD.cdf(DEVIATIONS))
    if _is_drawn_continuously(distribution):
        # The margin gives the first and last whole number their share when the number is rounded.
        margin = 0.499 if distribution.whole else 0
        return FloatDistribution(distribution.low - margin, distribution.high + margin, log=distribution.log)
    assert distribution.size is not None
    last = distribution.at(distribution.size - 1)
    if distribution.whole:
        return IntDistribution(int(distribution.low), int(last), log=distribution.log, step=int(distribution.step or 1))
    return FloatDistribution(distribution.low, float(last), step=distribution.step)


def _is_drawn_continuously(uniform: Uniform) -> bool:
    """Return whether Optuna draws from the whole range, and the number is rounded: it has no logarithmic steps."""
    if uniform.round_to is not None:
        return True
    is_discrete = uniform.size is not None and uniform.size <= _MOST_DISCRETE
    return not is_discrete or (uniform.log and uniform.step is not None)


def _value(distribution: Distribution, drawn: Any) -> Scalar:
    """Return the trial's value for the number that Optuna drew."""
    if isinstance(distribution, Uniform):
        return distribution.nearest(drawn)
    if isinstance(distribution, Normal):
        return distribution.nearest(distribution.value_at(_STANDARD.inv_cdf(drawn)))
    chosen: Scalar = drawn
    return chosen


def _number(distribution: Distribution, value: Scalar) -> Any:
    """Return a number for which Optuna could have drawn this value."""
    if isinstance(distribution, Normal):
        assert isinstance(value, int | float)
        quantile = _STANDARD.cdf(distribution.deviations_of(value))
        return min(max(quantile, _STANDARD.cdf(-DEVIATIONS)), _STANDARD.cdf(DEVIATIONS))
    return value


def _frozen(trial: PastTrial, space: Space, distributions: Mapping[str, BaseDistribution]) -> FrozenTrial:
    """Return the trial as Optuna's. A value outside the space makes it one that samplers cannot learn from."""
    if any(name not in trial.values or not space[name].contains(trial.values[name]) for name in distributions):
        return _unknown_trial()
    state = _STATES[trial.state]
    value = trial.value if trial.value is not None and math.isfinite(trial.value) else None
    if state is TrialState.COMPLETE and value is None:
        state = TrialState.FAIL
    return _trial(
        state,
        value=value if state is TrialState.COMPLETE else None,
        params={name: _drawn(trial, name, space[name], distributions[name]) for name in distributions},
        distributions=distributions,
        system_attrs={key: each for key, each in trial.attributes.items() if key.startswith(ATTRIBUTE_PREFIX)},
        intermediate_values=_intermediate_values(trial.reported) if state is TrialState.PRUNED else {},
    )


def _drawn(trial: PastTrial, name: str, distribution: Distribution, optuna_distribution: BaseDistribution) -> Any:
    """Return the number that Optuna drew for the value of this trial, or could have drawn."""
    value = trial.values[name]
    drawn = trial.attributes.get(DRAWN, {}).get(name)
    if drawn is not None and _value(distribution, drawn) == value:
        return drawn
    number = _number(distribution, value)
    return int(number) if isinstance(optuna_distribution, IntDistribution) else number


def _intermediate_values(reported: Mapping[float, float]) -> dict[int, float]:
    """Return step -> value of the last report: samplers look at no other, and only if the trial was pruned.

    Infinity becomes NaN, which Optuna never takes for better than a number.
    """
    if not reported:
        return {}
    last = max(reported)
    value = reported[last]
    return {round(last * _STEPS): value if math.isfinite(value) else math.nan}


def _unknown_trial() -> FrozenTrial:
    return _trial(TrialState.FAIL)


class _OwnTrial(FrozenTrial):
    """A trial that nobody else holds. Optuna copies each one that is added, which takes most of the time."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "_OwnTrial":
        return self


def _trial(
    state: TrialState,
    *,
    value: float | None = None,
    params: Mapping[str, Any] | None = None,
    distributions: Mapping[str, BaseDistribution] | None = None,
    system_attrs: Mapping[str, Any] | None = None,
    intermediate_values: Mapping[int, float] | None = None,
) -> FrozenTrial:
    return _OwnTrial(
        # Both are set when the trial is added to its study.
        number=-1,
        trial_id=-1,
        state=state,
        value=value,
        datetime_start=_SOME_TIME,
        datetime_complete=_SOME_TIME if state.is_finished() else None,
        params=dict(params or {}),
        distributions=dict(distributions or {}),
        user_attrs={},
        system_attrs=dict(system_attrs or {}),
        intermediate_values=dict(intermediate_values or {}),
    )
