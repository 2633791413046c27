"""NNI's configuration of an experiment, in both of its forms, as a study.

The older form has `trial.command`, `maxTrialNum` and `builtinTunerName`, the newer one `trialCommand`, `maxTrialNumber`
and `tuner.name`. A file may have keys of both. Paths are relative to the file.
"""

import difflib
import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidepool.client.errors import InvalidRequest, MissingPackage
from tidepool.client.nni_space import space_of_nni
from tidepool.client.pack import Package, package

__all__ = ["NniStudy", "study_of_nni"]

#: Metric of the results that scripts report to `nni`.
_METRIC = "default"
_SAMPLERS = {
    "tpe": "tpe", "random": "random", "gridsearch": "grid", "anneal": "tpe", "gptuner": "gp", "gp": "gp",
}  # fmt: skip
_TUNERS = "TPE, Random, GridSearch, Anneal (as TPE) and GPTuner"
_PRUNERS = {"medianstop": "median"}
#: Key of the newer form -> keys of both forms, the older one as a path.
_KEYS = {
    "name": ("experimentName",),
    "concurrency": ("trialConcurrency",),
    "duration": ("maxExperimentDuration", "maxExecDuration"),
    "trial_duration": ("maxTrialDuration",),
    "trials": ("maxTrialNumber", "maxTrialNum"),
    "space_file": ("searchSpaceFile", "searchSpacePath"),
    "space": ("searchSpace",),
    "command": ("trialCommand", "trial.command"),
    "folder": ("trialCodeDirectory", "trial.codeDir"),
    "gpus": ("trialGpuNumber", "trial.gpuNum"),
    "adaptive": ("trial.adaptive", "trainingService.adaptive"),
    "platform": ("trainingService.platform", "trainingServicePlatform"),
}
#: Keys that a search is refused with -> the reason.
_REFUSED = {
    "useAnnotation": "annotations in the script are not read: write a search space",
    "multiPhase": "a trial has one set of values: remove it",
    "advisor": f"advisors are not supported: give a tuner, {_TUNERS}, and stop trials early with --pruner hyperband",
}
#: Keys without a counterpart, beside all others of `trial` and `trainingService`.
_WITHOUT_EFFECT = frozenset({
    *("authorName", "description", "nniManagerIp", "logDir", "logLevel", "logCollection", "debug", "versionCheck"),
    *("multiThread", "experimentWorkingDirectory", "tunerGpuIndices", "sharedStorage", "experimentType"),
    *("localConfig", "remoteConfig", "machineList", "paiConfig", "amlConfig", "kubeflowConfig", "dlcConfig"),
    *("frameworkcontrollerConfig", "hybridConfig", "adlConfig", "dltsConfig"),
})  # fmt: skip
_ALGORITHMS = ("tuner", "assessor")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PYTHON = re.compile(r"(.*/)?python[0-9.]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PYTHON_FLAGS = ("-u", "-O", "-B")


@dataclass(frozen=True)
class NniStudy:
    """An experiment of NNI as a study."""

    #: Arguments of `Client.create_study`.
    search: dict[str, Any]
    #: Code with the script of the trial's command, and the words behind the script.
    code: Package
    arguments: tuple[str, ...]
    #: Options of `Client.plan`.
    options: dict[str, Any]
    #: Sentences that the user should know beforehand.
    notices: tuple[str, ...]


@dataclass(frozen=True)
class _Command:
    #: Path as in the command, or name of a module; words behind it; variables before it.
    script: str
    is_module: bool
    arguments: tuple[str, ...]
    environment: dict[str, str]


class _File:
    """Values of a file by their keys; notes which keys have been read."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path, self._values = path, values
        self._read: set[str] = set()

    def get(self, name: str) -> Any:
        """Return the value under one of the keys of this name; None: there is none."""
        for key in _KEYS[name]:
            value = self.at(key)
            if value is not None:
                return value
        return None

    def at(self, key: str) -> Any:
        self._read.add(key)
        value: Any = self._values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def without_effect(self) -> list[str]:
        """Return the keys that were not read. Raises InvalidRequest for one that NNI does not have."""
        found = []
        for key, value in self._values.items():
            nested = key in (*_ALGORITHMS, "trial", "trainingService") and isinstance(value, Mapping)
            found += [f"{key}.{inner}" for inner in value] if nested else [str(key)]
        known = {key.partition(".")[0] for keys in _KEYS.values() for key in keys} | _WITHOUT_EFFECT
        known |= {*_ALGORITHMS, *_REFUSED}
        for key in self._values:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, 1)
                hint = f" Did you mean `{near[0]}`?" if near else ""
                raise InvalidRequest(f"`{key}` in {self.path.name} is not a key of NNI's configuration.{hint}")
        return [key for key in found if key not in self._read and not self._has_read_below(key)]

    def _has_read_below(self, key: str) -> bool:
        return any(each.startswith(f"{key}.") for each in self._read)


def study_of_nni(path: str | Path, *, sampler: str | None = None, pruner: str | None = None) -> NniStudy:
    """Read the file. Raises InvalidRequest for what has no counterpart, and MissingPackage without PyYAML.

    sampler, pruner: instead of those that the file's tuner and assessor stand for.
    """
    file = _File(Path(path), _loaded(Path(path)))
    _refuse(file)
    notices: list[str] = []
    search = {
        "space": _space(file),
        "metric": _METRIC,
        "goal": _goal(file, notices),
        "sampler": sampler or _sampler(file, notices),
        "pruner": pruner or _pruner(file),
        "trials": _whole(file, "trials"),
        "at_once": _whole(file, "concurrency"),
        "minutes": _minutes(file),
        "dialect": "nni",
    }
    command = _command(file)
    code = _code(file, command, notices)
    options = _options(file, command, search)
    file.get("platform")  # a study trains wherever there are GPUs
    left = file.without_effect()
    if left:
        notices.append(f"Without effect here: {', '.join(left)}.")
    return NniStudy(search, code, command.arguments, options, tuple(notices))


def _loaded(path: Path) -> Mapping[str, Any]:
    read = _parsed(path)
    if not isinstance(read, Mapping):
        raise InvalidRequest(
            f"{path} is not a configuration of NNI: write lines such as `trialCommand: python3 train.py`."
        )
    return read


def _parsed(path: Path) -> Any:
    """Return the content of a file of JSON or YAML. NNI's files of search spaces are JSON."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}.") from None
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        import yaml
    except ImportError as error:
        raise MissingPackage(
            f"{path.name} is YAML, and PyYAML is not installed: `pip install pyyaml`, or write the file as JSON."
        ) from error
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        place = getattr(error, "problem_mark", None)
        where = f" (line {place.line + 1})" if place else ""
        raise InvalidRequest(f"{path} is not valid YAML{where}: correct it.") from None


def _refuse(file: _File) -> None:
    for key, why in _REFUSED.items():
        if file.at(key):
            raise InvalidRequest(f"`{key}` in {file.path.name}: {why}.")


def _space(file: _File) -> dict[str, Any]:
    inline, named = file.get("space"), file.get("space_file")
    if inline is not None:
        return space_of_nni(inline)
    if named is None:
        raise InvalidRequest(f"{file.path.name} has no search space: give searchSpaceFile or searchSpace.")
    return space_of_nni(_parsed(_beside(file, named)))


def _goal(file: _File, notices: list[str]) -> str:
    goal = file.at("tuner.classArgs.optimize_mode") or file.at("assessor.classArgs.optimize_mode")
    if goal is None:
        notices.append("There is no optimize_mode: the study minimizes, as NNI's tuners do.")
        return "minimize"
    if goal not in ("minimize", "maximize"):
        raise InvalidRequest(f"optimize_mode is {goal!r}: write minimize or maximize.")
    return str(goal)


def _sampler(file: _File, notices: list[str]) -> str:
    name = _algorithm(file, "tuner", "builtinTunerName", _TUNERS, "--sampler")
    if name is None:
        raise InvalidRequest(f"{file.path.name} has no tuner: write one of {_TUNERS}, or choose one with --sampler.")
    sampler = _SAMPLERS.get(name.lower())
    if sampler is None:
        raise InvalidRequest(
            f"The tuner {name} is not supported: there are {_TUNERS}. Write one of them, or choose one with --sampler."
        )
    if name.lower() == "anneal":
        notices.append("The tuner Anneal is not supported: tpe is used instead.")
    return sampler


def _pruner(file: _File) -> str:
    name = _algorithm(file, "assessor", "builtinAssessorName", "Medianstop", "--pruner")
    if name is None:
        return "none"
    pruner = _PRUNERS.get(name.lower())
    if pruner is None:
        raise InvalidRequest(
            f"The assessor {name} is not supported: there is Medianstop. Remove it, or choose one with --pruner."
        )
    return pruner


def _algorithm(file: _File, kind: str, older: str, known: str, option: str) -> str | None:
    if file.at(f"{kind}.className") or file.at(f"{kind}.classFileName"):
        raise InvalidRequest(
            f"A {kind} of your own is not supported: there is {known}. Write one of them, or choose one with {option}."
        )
    name = file.at(f"{kind}.name") or file.at(f"{kind}.{older}")
    return None if name is None else str(name)


def _whole(file: _File, name: str) -> int | None:
    value = file.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise InvalidRequest(f"`{_KEYS[name][0]}` is {value!r}: write a whole number above 0, or leave it out.")
    return value


def _minutes(file: _File) -> int | None:
    seconds = _seconds(file, "duration")
    return None if seconds is None else max(1, math.ceil(seconds / 60))


def _seconds(file: _File, name: str) -> float | None:
    """Return a duration such as 1h or 0.5h; a number counts seconds."""
    value = file.get(name)
    if value is None:
        return None
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([smhd]?)", str(value).strip().lower())
    if found is None or isinstance(value, bool) or float(found[1]) <= 0:
        raise InvalidRequest(f"`{_KEYS[name][0]}` is {value!r}: write a duration such as 30m, 1h or 2d.")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def _command(file: _File) -> _Command:
    command = file.get("command")
    if not isinstance(command, str) or not command.strip():
        raise InvalidRequest(
            f"{file.path.name} has no command: write trialCommand, such as python3 train.py --epochs 5."
        )
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    environment = {}
    while words and (variable := _ASSIGNMENT.fullmatch(words[0])):
        environment[variable[1]] = variable[2]
        words.pop(0)
    if words and _PYTHON.fullmatch(words[0]):
        words.pop(0)
    while words and words[0] in _PYTHON_FLAGS:
        words.pop(0)
    is_module = len(words) > 1 and words[0] == "-m"
    words = words[1:] if is_module else words
    is_shell = any(word in ("&&", "||", ";", "|", ">", ">>", "<", "&") for word in words)
    if not words or is_shell or not (is_module or words[0].endswith(".py")):
        raise InvalidRequest(
            f"The command {command!r} does not just start a Python script: write it as python3 train.py --epochs 5."
        )
    return _Command(words[0], is_module, tuple(words[1:]), environment)


def _code(file: _File, command: _Command, notices: list[str]) -> Package:
    """Return the folder of the code, with the command's script as entry point."""
    named = str(file.get("folder") or ".")
    folder = _beside(file, named)
    if not folder.is_dir() and Path(named).is_absolute():
        # AdaptDL's files name folders of a container's image.
        folder = file.path.resolve().parent
        notices.append(f"There is no folder {named}: the files beside {file.path.name} are sent.")
    code = package(folder)
    if command.is_module:
        return replace(code, entry_point=command.script)
    parts = Path(command.script).parts
    found = [each for each in code.files if each.parts == parts[-len(each.parts) :]]
    if not found and Path(command.script).is_absolute():
        found = [each for each in code.files if each.name == parts[-1]]
        found = found if len(found) == 1 else []
    if not found:
        raise InvalidRequest(f"{command.script} is not among the files of {folder}: check the command and the folder.")
    return replace(code, entry_point=max(found, key=lambda each: len(each.parts)).as_posix())


def _options(file: _File, command: _Command, search: Mapping[str, Any]) -> dict[str, Any]:
    gpus = file.get("gpus")
    if gpus is not None and (not isinstance(gpus, int) or isinstance(gpus, bool) or gpus < 0):
        raise InvalidRequest(f"`{_KEYS['gpus'][0]}` is {gpus!r}: write the number of GPUs of a trial.")
    seconds = _seconds(file, "trial_duration")
    return {
        # An adaptive trial of AdaptDL may use any number of GPUs.
        "max_slots": None if file.get("adaptive") is True else max(1, gpus or 0),
        **({"name": str(name)} if (name := file.get("name")) else {}),
        **({} if seconds is None else {"max_seconds": math.ceil(seconds)}),
        **({"environment": command.environment} if command.environment else {}),
    }


def _beside(file: _File, named: Any) -> Path:
    return file.path.parent / Path(str(named)).expanduser()
