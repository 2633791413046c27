"""Parser of the `args` of a submission: one string, split like a shell would, but never passed to one.

Options of the launcher are removed; all other arguments, and all that follow `--`, go to the script in their order.
Options of the launcher that have no effect here are removed as well, and reported.
"""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from core.errors import UserError
from core.text import is_storable
from jobs.actions.submission_checks import is_own_variable

__all__ = [
    "MAX_ARGS",
    "Arguments",
    "accepted_arguments",
    "add_hardware",
    "folder_of",
    "parse_arguments",
    "script_words",
]

MAX_ARGS = 32 * 1024
_MAX_WORKERS = 1_000_000
#: Options whose value is stored unchanged -> the attribute of Arguments.
_TEXTS = {"--exec-start": "framework", "--ig": "instance_group", "--appName": "app_name"}
_CONTINUED = re.compile(r"\\\r?\n")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Prefix of variables that the cluster sets.
_OWN_VARIABLES = "TIDEPOOL_"
#: Placeholder for a quotation mark that a shell would have removed.
_QUOTE = "_QUOTE_"
#: Options with a value that configure IBM's containers, hosts and environments instead of the training.
_OTHER_OPTIONS = re.compile(
    r"--(?:(?:cs|conda|msd|sc)-[\w-]+|(?:worker|driver)[A-Z]\w*|num(?:Ps|Driver)|submit-user|consumer|python-version"
    r"|accelerators|lsf-gpu-syntax|debug-level)"
)
_FLAGS = frozenset({"--exclusive"})
_COMMAND = "--user-cmd"
#: Fields of a `hardwareSpec` that have an effect.
_HARDWARE = frozenset({"num_nodes", "gpu"})
#: Unsupported ways to submit -> advice.
_REFUSED = {
    "--pbmodel-name": "upload the model's files, and name its script with --model-main.",
    "--pbmodel-cmd": "upload the model's files, and name its script with --model-main.",
}


@dataclass
class Arguments:
    #: Framework as given; "": not given.
    framework: str = ""
    #: Relative to the model's folder; "": not given.
    model_main: str = ""
    #: Name of the model's folder; "": not given.
    model_dir: str = ""
    #: Dataset path as given, relative to the data folder or absolute; "": the data folder itself.
    data_path: str = ""
    #: Dataset path of `--data-source`, which overrides `data_path`.
    data_source: str = ""
    #: Maximum number of workers; None: no maximum was given.
    max_workers: int | None = None
    #: Whether `--edt-options` was given; scripts of that era expect its number as `--numWorker`.
    has_edt_options: bool = False
    gpus_per_worker: int | None = None
    instance_group: str = ""
    app_name: str = ""
    priority: int | None = None
    #: Environment variables for the script, except those that the cluster sets.
    environment: dict[str, str] = field(default_factory=dict)
    #: Names of files that clients send with the model, but that Tidepool ignores.
    unread_files: set[str] = field(default_factory=set)
    #: Whether the arguments after `--` are a command instead of arguments of the script.
    is_command: bool = False
    #: Arguments of the script.
    script: list[str] = field(default_factory=list)
    #: Options without effect here.
    without_effect: list[str] = field(default_factory=list)


def parse_arguments(text: str) -> Arguments:
    """Parse the arguments. Raise UserError that describes the problem."""
    words = _split(text)
    found = Arguments()
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == "--":
            _check_command(found, words[position:])
            found.script += words[position:]
            break
        name, equals, value = word.partition("=")
        if name in _REFUSED:
            raise UserError(f"{name} is not supported here: {_REFUSED[name]}")
        if word == _COMMAND:
            found.is_command = True
        elif name in _FLAGS:
            found.without_effect.append(name)
        elif name in _TEXTS or name in _READERS or _OTHER_OPTIONS.fullmatch(name):
            if not equals:
                value = _value(name, words, position)
                position += 1
            if name in _TEXTS:
                setattr(found, _TEXTS[name], value)
            elif name in _READERS:
                _READERS[name](found, name, value)
            else:
                found.without_effect.append(name)
        else:
            found.script.append(word)
    else:
        _check_command(found, [])
    found.data_path = found.data_source or found.data_path
    return found


@lru_cache(maxsize=1024)
def accepted_arguments(text: str) -> Arguments:
    """Return the arguments of an accepted submission. Callers must not change them.

    Arguments that only an earlier version accepted are ignored, so that its trainings continue.
    """
    try:
        return parse_arguments(text)
    except UserError:
        return Arguments()


def add_hardware(given: Arguments, specification: Any) -> None:
    """Add the requirements of Cloud Pak's `hardwareSpec`: `num_nodes` counts as `--numWorker`."""
    name = "hardwareSpec in data"
    nodes = _object(name, specification).get("nodes", {})
    counts = _object(f"{name}: nodes", nodes)
    gpus = _object(f"{name}: gpu", counts.get("gpu", {}))
    if "num_nodes" in counts:
        _limit_workers(given, f"{name}: num_nodes", str(counts["num_nodes"]))
    if "num_gpu" in gpus:
        _read_gpus_per_worker(given, f"{name}: num_gpu", str(gpus["num_gpu"]))
    others = [*(key for key in specification if key != "nodes"), *(key for key in counts if key not in _HARDWARE)]
    given.without_effect += [f"hardwareSpec {key[:50]}" for key in others]


def folder_of(name: str, sources: Any) -> str:
    """Return the folder of data that WMLA's list of data sources names; "" for an empty list."""
    try:
        paths = [source["location"]["paths"] for source in sources if source.get("type", "fs") == "fs"]
    except (LookupError, TypeError, AttributeError):
        raise UserError(f'{name} must be a list like [{{"type": "fs", "location": {{"paths": "mnist"}}}}].') from None
    if len(paths) != len(sources) or len(paths) > 1 or not all(isinstance(path, str) for path in paths):
        raise UserError(f"{name} must name a single folder of type fs: put all data into one folder.")
    return paths[0] if paths else ""


def script_words(
    given: Arguments, max_workers: int, *, declared: frozenset[str], refuses_unknown: bool, is_on_prem: bool
) -> list[str]:
    """Return the script's arguments: its own, preceded by the launcher's numbers if the script accepts them.

    declared: long options that the script declares, without dashes. refuses_unknown: it fails on any other option. With
    `--edt-options`, WMLA always passed the number as `--numWorker`; scripts of Cloud Pak only get options that they
    declare. A command is returned unchanged.
    """
    if given.is_command:
        return given.script
    expects = given.has_edt_options and is_on_prem and not refuses_unknown
    numbers = {}
    if given.max_workers is not None and (expects or "numWorker" in declared):
        numbers["--numWorker"] = max_workers
    if given.gpus_per_worker is not None and "gpuPerWorker" in declared:
        numbers["--gpuPerWorker"] = given.gpus_per_worker
    own = {word.partition("=")[0] for word in given.script}
    injected = [word for name, number in numbers.items() if name not in own for word in (name, str(number))]
    return [*injected, *given.script]


def _split(text: str) -> list[str]:
    if len(text) > MAX_ARGS:
        raise UserError(f"args has {len(text)} characters: send at most {MAX_ARGS}.")
    if not is_storable(text):
        raise UserError(
            "args contains a NUL or an incomplete character, which cannot be passed to a script: remove it."
        )
    try:
        return shlex.split(_CONTINUED.sub("", text).replace(_QUOTE, '"'))
    except ValueError as error:
        raise UserError(f"args cannot be split into words ({str(error).lower()}): check the quotation marks.") from None


def _value(name: str, words: list[str], position: int) -> str:
    if position >= len(words) or words[position].startswith("--"):
        raise UserError(f"{name} has no value in args: write {name} and its value.")
    return words[position]


def _check_command(found: Arguments, command: list[str]) -> None:
    if not found.is_command:
        return
    if not command or not command[0]:
        raise UserError(f"{_COMMAND} has no command: write it after --, at the end of args.")
    if found.script:
        raise UserError(f"{found.script[0][:100]!a} is not an option, and precedes the -- of {_COMMAND}: remove it.")


def _inside(name: str, value: str) -> str:
    """Check that the path is relative and stays inside its folder."""
    parts = value.removesuffix("/").split("/")
    is_plain = value.isprintable() and "\\" not in value and len(value) <= 255
    if not is_plain or any(part in ("", ".", "..") or part.startswith(".") for part in parts):
        raise UserError(f"{name} is {value[:100]!a}: give a path inside the upload, such as main.py.")
    return "/".join(parts)


def _read_model_main(found: Arguments, name: str, value: str) -> None:
    # An absolute path belongs to the sender's machine or WMLA's shared folder; the upload has only the file's name.
    file = value.rpartition("/")[2] if value.startswith("/") else value
    found.model_main = _inside(name, file.removeprefix("./"))


def _read_model_dir(found: Arguments, name: str, value: str) -> None:
    folder = _inside(name, value.removeprefix("./"))
    if "/" in folder:
        raise UserError(f"{name} is {value[:100]!a}: give the name of the uploaded folder, without a slash.")
    found.model_dir = folder


def _read_data(found: Arguments, name: str, value: str) -> None:
    pairs = _pairs(name, value)
    if (kind := pairs.pop("type", "fs")) != "fs":
        raise UserError(f"{name} has type={kind[:50]!a}: only type=fs, a folder below the data folder, is supported.")
    found.data_path = pairs.pop("data_path", "")
    found.without_effect += [f"{name} {key}" for key in pairs]


def _read_data_source(found: Arguments, name: str, value: str) -> None:
    try:
        sources = json.loads(value)
    except (ValueError, RecursionError):
        sources = None
    found.data_source = folder_of(name, sources)


def _read_edt_options(found: Arguments, name: str, value: str) -> None:
    pairs = _pairs(name, value)
    if (number := pairs.pop("maxWorkers", None)) is not None:
        _limit_workers(found, f"{name} maxWorkers", number)
        found.has_edt_options = True
    found.without_effect += [f"{name} {key}" for key in pairs]


def _limit_workers(found: Arguments, name: str, value: str) -> None:
    number = _whole(name, value)
    found.max_workers = number if found.max_workers is None else min(number, found.max_workers)


def _read_gpus_per_worker(found: Arguments, name: str, value: str) -> None:
    # Cloud Pak's trainings without GPUs send 0.
    number = 0 if value == "0" else _whole(name, value)
    found.gpus_per_worker = number or None
    if number != 1:
        found.without_effect.append(f"{name} {number} (each worker has one GPU)")


def _read_priority(found: Arguments, name: str, value: str) -> None:
    found.priority = _whole(name, value)


def _read_variable(found: Arguments, name: str, value: str) -> None:
    variable, equals, text = value.partition("=")
    if not (equals and _VARIABLE.fullmatch(variable)):
        raise UserError(f"{name} is {value[:100]!a}: write it as NAME=value.")
    if variable.startswith(_OWN_VARIABLES):
        raise UserError(f"{name} {variable[:100]} is a variable that the cluster sets: choose another name.")
    if is_own_variable(variable):
        found.without_effect.append(f"{name} {variable}")
    else:
        found.environment[variable] = text


def _read_environment_file(found: Arguments, name: str, value: str) -> None:
    found.unread_files.add(value.rpartition("/")[2])
    found.without_effect.append(name)


_READERS: dict[str, Callable[[Arguments, str, str], None]] = {
    "--model-main": _read_model_main,
    "--model-dir": _read_model_dir,
    "--cs-datastore-meta": _read_data,
    "--data-source": _read_data_source,
    "--edt-options": _read_edt_options,
    "--numWorker": _limit_workers,
    "--gpuPerWorker": _read_gpus_per_worker,
    "--workerDeviceNum": _read_gpus_per_worker,
    "--msd-priority": _read_priority,
    "--msd-env": _read_variable,
    "--conda-env-yaml": _read_environment_file,
    "--conda-env-package": _read_environment_file,
    "--conda-package": _read_environment_file,
}


def _pairs(name: str, value: str) -> dict[str, str]:
    pairs = {}
    for pair in filter(None, value.split(",")):
        key, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"{name} has {pair[:100]!a}: write key=value pairs, separated by commas.")
        pairs[key] = text
    return pairs


def _object(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f'{name} must be an object like {{"nodes": {{"num_nodes": 4, "gpu": {{"num_gpu": 1}}}}}}.')
    return value


def _whole(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 9 and 1 <= int(value) <= _MAX_WORKERS):
        raise UserError(f"{name} is {value[:50]!a}: give a whole number of 1 or more.")
    return int(value)
