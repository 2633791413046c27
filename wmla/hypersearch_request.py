"""The JSON `data` of a hyperparameter search: parsed, checked, and mapped to a study's sampler, pruner and limits."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.errors import UserError
from core.parameters import Scalar
from core.text import storable
from studies.models import MAX_TRIALS, SearchPlugin
from studies.samplers import MOST_GP_TRIALS, check_search
from studies.space import parse_space
from studies.trials import Goal, Search
from wmla.hypersearch_space import (
    MAX_TEXT,
    Experiment,
    number_in,
    parse_experiments,
    parse_parameters,
    parse_plugin_parameters,
    space_of,
)

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "SearchRequest",
    "algorithm_named",
    "json_object",
    "parse_request",
    "parse_search",
]


@dataclass(frozen=True)
class Algorithm:
    """A search algorithm of WMLA."""

    name: str
    #: Names in `studies.samplers.SAMPLERS` and `studies.pruners.PRUNERS`.
    sampler: str
    pruner: str = "none"
    #: WMLA's parameter -> option of the sampler.
    options: Mapping[str, str] = field(default_factory=dict)
    #: Values of these parameters in WMLA if a request has none.
    defaults: Mapping[str, float] = field(default_factory=dict)
    #: The plug-in in place of a sampler.
    plugin: SearchPlugin | None = None


RANDOM = Algorithm("Random", "random")
TPE = Algorithm(
    "Tpe",
    "tpe",
    options={"WarmUp": "warm_up", "EICandidate": "candidates", "GoodRatio": "good_ratio", "GoodMax": "good_max"},
    defaults={"WarmUp": 20, "EICandidate": 24, "GoodRatio": 0.25, "GoodMax": 25},
)
BAYESIAN = Algorithm(
    "Bayesian",
    "gp",
    options={"InitPoints": "init_points", "Noiseless": "noiseless"},
    defaults={"InitPoints": 10, "Noiseless": 1},
)
HYPERBAND = Algorithm("Hyperband", "random", "hyperband")
GRID = Algorithm("ExperimentGridSearch", "grid")
ALGORITHMS = (RANDOM, TPE, BAYESIAN, HYPERBAND, GRID)

#: Parameters of any algorithm. Clients send those of another one, too, which have no effect.
_PARAMETERS = ("RandomSeed", *TPE.options, *BAYESIAN.options, "CubeSize", "Eta", "ResourceName", "ResourceValue")
#: Most options of a plug-in, and arguments of its constructor that have no room for one.
_MAX_OPTIONS = 100
_TAKEN = ("self", "name", "hyper_parameters")
#: Part of the experiments that the pruner lets go on at each rung: one of so many.
_ETA = 3
_EXAMPLE = (
    '{"modelSpec": {"args": "--exec-start PyTorch --model-main main.py"}, "algoDef": {"algorithm": "Random", '
    '"maxJobNum": 8, "objectiveMetric": "loss", "objective": "minimize"}, "hyperParams": [...]}'
)


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """A search as requested by a WMLA client."""

    #: Name given by the client; "": the server makes one.
    name: str
    #: Instance group; "" in Cloud Pak.
    sig_name: str
    args: str
    algorithm: Algorithm
    #: Space in the notation of `studies.space`, and parameters that are the same in every trial.
    space: Mapping[str, Any]
    parameters: Mapping[str, Scalar]
    experiments: tuple[Experiment, ...]
    metric: str
    goal: Goal
    sampler_options: Mapping[str, float]
    seed: int
    #: Arguments of the plug-in, see `studies.models.Study`.
    plugin_arguments: Mapping[str, Any]
    #: Limits; None: no limit.
    trials: int | None
    minutes: int | None
    at_once: int | None
    #: Parts that answers repeat, see `studies.models.Study.asked`.
    asked: Mapping[str, Any]


def algorithm_named(name: str) -> Algorithm | None:
    """Return the algorithm with this name in any case, or None."""
    return next((algorithm for algorithm in ALGORITHMS if algorithm.name.lower() == name.lower()), None)


def parse_request(data: str, find: Callable[[str], Algorithm | None] = algorithm_named) -> SearchRequest:
    """Parse the text of the part `data`. Raises UserError that describes the problem.

    find: returns the algorithm with a name, or None.
    """
    return parse_search(json_object(data, _EXAMPLE), find)


def parse_search(given: Mapping[str, Any], find: Callable[[str], Algorithm | None]) -> SearchRequest:
    """Check a search. Raises like `parse_request`."""
    model, algo = _object(given, "modelSpec"), _object(given, "algoDef")
    algorithm = _algorithm(algo, find)
    told = {} if algorithm.plugin else _told(algo)
    is_grid = algorithm is GRID
    plugin_arguments: dict[str, Any] = {}
    if algorithm.plugin:
        space, hyper_parameters = parse_plugin_parameters(given.get("hyperParams"))
        plugin_arguments = {"hyper_parameters": hyper_parameters, "options": _plugin_options(algo)}
    else:
        space = {} if is_grid else parse_parameters(given.get("hyperParams"))
    experiments = tuple(parse_experiments(given.get("experiments"))) if is_grid else ()
    trials = _trials(algorithm, _limit(algo, "maxJobNum", MAX_TRIALS), told, len(experiments))
    experiments = experiments[:trials]
    found = SearchRequest(
        name=_text(given, "hpoName"),
        sig_name=_text(model, "sigName"),
        args=_raw_text(model, "args"),
        algorithm=algorithm,
        space=space_of(experiments) if is_grid else space,
        parameters=_resource(algorithm, told),
        experiments=experiments,
        metric=_text(algo, "objectiveMetric"),
        goal=_goal(algo),
        sampler_options=_options(algorithm, told),
        seed=_seed(told),
        plugin_arguments=plugin_arguments,
        trials=trials,
        minutes=_limit(algo, "maxRunTime", 2**31 - 1),
        at_once=_limit(algo, "maxParalleJobNum", MAX_TRIALS, default=1),
        asked=_asked(given, algorithm, experiments),
    )
    _check(found, algo)
    return found


def json_object(data: str, example: str) -> dict[str, Any]:
    """Return the JSON object in the text of the part `data`. Raises UserError with the example."""
    try:
        given = json.loads(data, parse_constant=_no_number)
        is_storable = storable(given) == given
    except (ValueError, RecursionError):
        given, is_storable = None, True
    if not isinstance(given, dict):
        raise UserError(f"data must be a JSON object like {example}.")
    if not is_storable:
        raise UserError("data contains a NUL or an incomplete character: remove it.")
    return given


def _no_number(word: str) -> None:
    raise ValueError(word)


def _check(found: SearchRequest, algo: Mapping[str, Any]) -> None:
    """Refuse what the study would refuse, before a file is stored."""
    if not found.metric:
        raise UserError("algoDef has no objectiveMetric: name a metric of val_dict_list.json, such as loss.")
    if twice := sorted(set(found.space) & set(found.parameters)):
        raise UserError(f"{twice[0]} is the ResourceName, and in hyperParams: remove it from one of the two.")
    if found.algorithm is HYPERBAND:
        _check_eta(algo)
    space = parse_space(found.space)
    search = Search(space, found.algorithm.sampler, found.goal, found.seed, found.sampler_options)
    if not found.experiments and not found.algorithm.plugin:
        check_search(search, found.trials, pruner=found.algorithm.pruner)


def _check_eta(algo: Mapping[str, Any]) -> None:
    given = _told(algo).get("Eta", algo.get("hyperbandEta", _ETA))
    if number_in(given) != _ETA:
        raise UserError(f"Eta is {ascii(given)[:50]}: Hyperband lets a third go on here, so send 3 or leave it out.")


def _algorithm(algo: Mapping[str, Any], find: Callable[[str], Algorithm | None]) -> Algorithm:
    name = _text(algo, "algorithm")
    found = find(name)
    if found is None:
        known = ", ".join(algorithm.name for algorithm in ALGORITHMS)
        raise UserError(
            f"Algorithm {name[:80]!a} is not known: use one of {known}, or a plug-in that GET /hypersearch/algorithm "
            "lists."
        )
    return found


def _plugin_options(algo: Mapping[str, Any]) -> dict[str, str]:
    """Return algoParams for a plug-in: name as sent -> value as a text."""
    options: dict[str, str] = {}
    for row in _parameter_rows(algo):
        name, value = row.get("name"), row.get("value")
        if not isinstance(name, str) or not name or len(name) > _MAX_OPTIONS or name in _TAKEN:
            raise UserError(f"algoParams has the name {ascii(name)[:80]}: choose another one.")
        if not isinstance(value, str | int | float) or len(str(value)) > MAX_TEXT:
            raise UserError(f"{name} in algoParams has no value: send a text of at most {MAX_TEXT} characters.")
        options[name] = str(value)
    if len(options) > _MAX_OPTIONS:
        raise UserError(f"algoParams has {len(options):,} entries: send at most {_MAX_OPTIONS}.")
    return options


def _told(algo: Mapping[str, Any]) -> dict[str, Any]:
    """Return algoParams: name, as WMLA spells it -> value as sent."""
    spelt = {name.lower(): name for name in _PARAMETERS}
    found = {}
    for row in _parameter_rows(algo):
        name = str(row.get("name", ""))
        if name.lower() not in spelt:
            raise UserError(f"algoParams has {name[:80]!a}, which is not known: use {', '.join(_PARAMETERS)}.")
        found[spelt[name.lower()]] = row.get("value")
    return found


def _parameter_rows(algo: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = algo.get("algoParams") or []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError('algoParams must be a list like [{"name": "RandomSeed", "value": "7"}].')
    return rows


def _options(algorithm: Algorithm, told: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, option in algorithm.options.items():
        given = told.get(name, algorithm.defaults[name])
        flags = {"true": 1.0, "false": 0.0} if option == "noiseless" else {}
        number = flags.get(str(given).lower(), number_in(given))
        if number is None:
            raise UserError(f"{name} in algoParams is {ascii(given)[:50]}: send a number.")
        found[option] = int(number) if number == int(number) else number
    return found


def _resource(algorithm: Algorithm, told: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return Hyperband's resource, which each trial gets as one more parameter, as a text like in WMLA."""
    if algorithm is not HYPERBAND:
        return {}
    name, most = told.get("ResourceName"), number_in(told.get("ResourceValue"))
    if not isinstance(name, str) or not name or most is None or most < 1:
        raise UserError(
            "Hyperband needs ResourceName and ResourceValue in algoParams: the parameter that sets the length of an "
            "experiment, such as epochs, and its largest value."
        )
    text = str(int(most)) if most == int(most) else str(told["ResourceValue"])
    parse_space({name: text}, field="algoParams")
    return {name: text}


def _trials(algorithm: Algorithm, given: int | None, told: Mapping[str, Any], experiments: int) -> int | None:
    """Return the number of trials. Without a limit, a grid ends with its list, and Hyperband with its brackets."""
    if algorithm is GRID:
        return min(given or experiments, experiments)
    if given is not None:
        return given
    if algorithm is BAYESIAN:
        return MOST_GP_TRIALS
    return _of_all_brackets(number_in(told.get("ResourceValue")) or 1) if algorithm is HYPERBAND else None


def _of_all_brackets(resource: float) -> int:
    """Return the number of experiments that begin in all brackets of Hyperband together, as in the paper."""
    most = int(math.log(max(resource, 1), _ETA) + 1e-9)
    begun = [math.ceil((most + 1) * math.pow(_ETA, bracket) / (bracket + 1)) for bracket in range(most + 1)]
    return min(sum(begun), MAX_TRIALS)


def _goal(algo: Mapping[str, Any]) -> Goal:
    word = _text(algo, "objective").lower()
    if word == "minimize":
        return "minimize"
    if word == "maximize":
        return "maximize"
    raise UserError(f"objective is {word[:50]!a}: send minimize or maximize.")


def _seed(told: Mapping[str, Any]) -> int:
    given = told.get("RandomSeed", 0)
    number = number_in(given)
    if number is None or number != int(number) or not 0 <= number < 2**31:
        raise UserError(f"RandomSeed is {ascii(given)[:50]}: send a whole number from 0.")
    return int(number)


def _limit(algo: Mapping[str, Any], name: str, most: int, default: int = -1) -> int | None:
    """Return the limit; None for -1, which means none."""
    given = algo.get(name, default)
    number = number_in(default if given is None else given)
    if number is None or number != int(number) or not (number == -1 or 1 <= number <= most):
        raise UserError(f"{name} is {ascii(given)[:50]}: send a whole number from 1 to {most:,}, or -1 for no limit.")
    return None if number == -1 else int(number)


def _object(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = given.get(name)
    if not isinstance(value, dict):
        raise UserError(f"data has no {name}: send a JSON object like {_EXAMPLE}.")
    return value


def _text(given: Mapping[str, Any], name: str) -> str:
    return _raw_text(given, name).strip()


def _raw_text(given: Mapping[str, Any], name: str) -> str:
    """Return the text with its blanks, "" if it is absent: a backslash may precede the last line break of `args`."""
    value = given.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UserError(f"{name} is {ascii(value)[:50]}: send a text.")
    return value


def _asked(given: Mapping[str, Any], algorithm: Algorithm, experiments: tuple[Experiment, ...]) -> dict[str, Any]:
    """Return what answers repeat: the definitions as sent, with the words in lower case as WMLA's answers have them."""
    rows = given.get("hyperParams") if algorithm is not GRID else None
    echoed = [
        {name: str(value).lower() if name in ("type", "dataType") else value for name, value in row.items()}
        for row in rows or []
    ]
    order = [row["name"] for row in echoed] or list(dict.fromkeys(name for each in experiments for name in each.values))
    return {
        "args": _raw_text(given["modelSpec"], "args"),
        "algorithm": algorithm.name,
        "algoDef": given["algoDef"],
        "hyperParams": echoed,
        "order": order,
        "ids": [experiment.id for experiment in experiments],
    }
