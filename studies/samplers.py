"""The values that a study tries next: a pure function of the search, its past trials and the number of the next one.

Optuna is rebuilt from the rows for each proposal, with a seed made of the study's seed and the trial's number, so a
restarted process proposes the same (docs/decisions/0031-proposals.md). It is loaded with the first proposal: web
processes never load it.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.errors import field_error
from studies.space import Choice, grid_point, grid_size, varied
from studies.trials import PastTrial, Proposal, Search

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

__all__ = [
    "OPTIONS",
    "SAMPLERS",
    "Option",
    "PastTrial",
    "Proposal",
    "Search",
    "check_search",
    "propose",
    "seed_of",
]

SAMPLERS = ("tpe", "random", "grid", "cmaes", "gp")
#: Largest number of trials of a Gaussian process, whose cost grows with the third power of it.
MOST_GP_TRIALS = 500


@dataclass(frozen=True)
class Option:
    """Limits of an option of a sampler."""

    low: float
    high: float
    whole: bool = True


#: Sampler -> its options.
OPTIONS: Mapping[str, Mapping[str, Option]] = {
    "tpe": {
        # Finished trials before the first one that is not random.
        "warm_up": Option(1, 10_000),
        # Points that are drawn for each proposal, of which the most promising one is taken.
        "candidates": Option(1, 10_000),
        # Part of the finished trials that counts as good, and the largest number of these.
        "good_ratio": Option(0.001, 1, whole=False),
        "good_max": Option(1, 10_000),
    },
    "random": {},
    "grid": {},
    "cmaes": {
        "warm_up": Option(1, 10_000),
        # Trials in each generation.
        "population": Option(2, 1_000),
    },
    "gp": {
        # Finished trials before the first one that is not random.
        "init_points": Option(1, MOST_GP_TRIALS),
        # 1: the same values always give the same result.
        "noiseless": Option(0, 1),
    },
}


def propose(search: Search, trials: Sequence[PastTrial], number: int) -> Proposal | None:
    """Return the values of the trial with this number, or None if the grid has no further point.

    `trials` are all trials with smaller numbers. Raises ValueError for an unknown sampler.
    """
    if search.sampler not in SAMPLERS:
        raise ValueError(f"{search.sampler!r} is not a sampler: use one of {', '.join(SAMPLERS)}.")
    if search.sampler == "grid":
        return _next_of_grid(search, trials)
    from studies import optuna_study

    # A random proposal depends on its seed alone.
    past, earlier = ((), 0) if search.sampler == "random" else (trials, number)
    with optuna_study.quiet():
        sampler = sampler_for(search, number)
        study = optuna_study.past_study(search.space, search.goal, past, earlier, sampler)
        values, attributes = optuna_study.ask(study, search.space)
    return Proposal(values, attributes)


def sampler_for(search: Search, number: int) -> "BaseSampler":
    """Return Optuna's sampler for the trial with this number."""
    return _MAKERS[search.sampler](search.options, seed_of(search.seed, number))


def _next_of_grid(search: Search, trials: Sequence[PastTrial]) -> Proposal | None:
    """Return the first point of the grid that no trial has tried, whether a user asked for it or the study."""
    size = grid_size(search.space)
    assert size is not None, "check_search refuses a grid with a continuous parameter"
    names = sorted(search.space)
    tried = {tuple(trial.values.get(name) for name in names) for trial in trials}
    # At most as many points are skipped as there are trials.
    for n in range(min(size, len(tried) + 1)):
        point = grid_point(search.space, n)
        if tuple(point[name] for name in names) not in tried:
            return Proposal(point)
    return None


def seed_of(study_seed: int, number: int) -> int:
    """Return the seed of one proposal: 32 bits, the same in each process."""
    return int.from_bytes(hashlib.sha256(f"{study_seed}/{number}".encode()).digest()[:4])


def _tpe(options: Mapping[str, float], seed: int) -> "BaseSampler":
    from optuna.samplers import TPESampler

    more: dict[str, Any] = {}
    if "good_ratio" in options or "good_max" in options:
        more["gamma"] = _good_trials(options.get("good_ratio", 0.1), int(options.get("good_max", 25)))
    return TPESampler(
        seed=seed,
        multivariate=True,
        constant_liar=True,
        n_startup_trials=int(options.get("warm_up", 10)),
        n_ei_candidates=int(options.get("candidates", 24)),
        **more,
    )


def _good_trials(ratio: float, most: int) -> Callable[[int], int]:
    """Return the function by which TPE knows how many of the finished trials count as good."""
    return lambda finished: min(math.ceil(ratio * finished), most)


def _random(options: Mapping[str, float], seed: int) -> "BaseSampler":
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


def _cmaes(options: Mapping[str, float], seed: int) -> "BaseSampler":
    from studies.cmaes_sampler import JsonCmaEsSampler

    return JsonCmaEsSampler(
        seed=seed,
        n_startup_trials=int(options.get("warm_up", 1)),
        popsize=int(options["population"]) if "population" in options else None,
        warn_independent_sampling=False,
    )


def _gp(options: Mapping[str, float], seed: int) -> "BaseSampler":
    from optuna.samplers import GPSampler

    return GPSampler(
        seed=seed,
        n_startup_trials=int(options.get("init_points", 10)),
        deterministic_objective=bool(options.get("noiseless", 0)),
        warn_independent_sampling=False,
    )


_MAKERS: Mapping[str, Callable[[Mapping[str, float], int], "BaseSampler"]] = {
    "tpe": _tpe,
    "random": _random,
    "cmaes": _cmaes,
    "gp": _gp,
}


def check_search(search: Search, trials_wanted: int | None, *, pruner: str = "none") -> list[str]:
    """Return what the user should know of a search that is valid. Raises UserError for the first thing that is wrong.

    `trials_wanted`: number of trials, or None for a study without such a limit.
    """
    if search.sampler not in SAMPLERS:
        raise field_error("sampler", f"There is no such sampler: use one of {', '.join(SAMPLERS)}.")
    if search.goal not in ("minimize", "maximize"):
        raise field_error("goal", "Choose minimize or maximize.")
    _check_options(search)
    size = grid_size(search.space)
    if size == 1:
        raise field_error("space", "Each parameter has one value only: give a list or a range for at least one.")
    if search.sampler == "grid":
        return _check_grid(search, size, trials_wanted)
    notices = _check_cmaes(search) if search.sampler == "cmaes" else []
    if search.sampler == "gp":
        notices += _check_gp(trials_wanted)
    if search.sampler in ("cmaes", "gp") and pruner != "none":
        notices.append(f"{search.sampler} learns from finished trials only: those that {pruner} stops do not count.")
    if size is not None and trials_wanted is not None and trials_wanted > size:
        notices.append(
            f"The space has only {size:,} points and `trials` is {trials_wanted:,}: some would be tried repeatedly. "
            "The grid tries each once."
        )
    return notices


def _check_options(search: Search) -> None:
    known = OPTIONS[search.sampler]
    for name, value in search.options.items():
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise field_error("options", f"{str(name)[:80]!a} is not an option of {search.sampler}: {has}.")
        option = known[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not option.low <= value <= option.high or (option.whole and value != int(value)):
            kind = "a whole number" if option.whole else "a number"
            raise field_error("options", f"`{name}` must be {kind} from {option.low:g} to {option.high:g}.")


def _check_grid(search: Search, size: int | None, trials_wanted: int | None) -> list[str]:
    if size is None:
        name = next(name for name in varied(search.space) if search.space[name].size is None)
        raise field_error(
            "space", f"`{name}` is continuous, and a grid needs points: give it a `step` or a list, or use random."
        )
    if trials_wanted is None:
        return [f"The grid has {size:,} points: the study ends after them."]
    if size > trials_wanted:
        raise field_error(
            "trials",
            f"The grid has {size:,} points and `trials` is {trials_wanted:,}: the first {trials_wanted:,} would be "
            "tried. Raise `trials`, or use random.",
        )
    return [f"The grid has {size:,} points: the study ends after them."] if size < trials_wanted else []


def _check_cmaes(search: Search) -> list[str]:
    choices = [name for name in varied(search.space) if isinstance(search.space[name], Choice)]
    if len(choices) == len(varied(search.space)):
        raise field_error(
            "sampler", "cmaes varies numbers in ranges, and the space has only lists: give a range, or use tpe."
        )
    if not choices:
        return []
    names = ", ".join(f"`{name}`" for name in choices)
    return [f"cmaes varies numbers in ranges: it draws {names} at random."]


def _check_gp(trials_wanted: int | None) -> list[str]:
    if trials_wanted is None or trials_wanted > MOST_GP_TRIALS:
        raise field_error(
            "trials", f"gp takes at most {MOST_GP_TRIALS} trials, for its cost grows fast. Lower `trials`, or use tpe."
        )
    return ["gp takes some seconds of a processor for each proposal; tpe takes a tenth of one."]
