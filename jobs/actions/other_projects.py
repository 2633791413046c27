"""Requirements that projects state for tools other than uv and pip: Poetry, pipenv, pip-tools and setuptools. Pure."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from tidepool.requirement_files import FILE, OTHER_FILES, PROJECT_FILES, Line, all_lines

from jobs.actions.project_files import table_in, toml_of
from jobs.actions.project_requirements import dependencies_of
from jobs.actions.requirement_lines import Reader, RequirementsError
from workers.executor.environments.requirements import PYTHON_OPTION

__all__ = ["lines_of_other_project"]

_POETRY_LOCK, _PIPFILE, _PIPFILE_LOCK, _PIP_TOOLS = OTHER_FILES
_NUMBERS: Final = re.compile(r"[\^~](?P<version>\d+(?:\.\d+)*)")


def lines_of_other_project(place: str, read: Reader) -> list[Line] | None:
    """Return the requirements of a project without a file that pip or uv reads; None: there are none either.

    Raises RequirementsError for dependencies that only the project's own code or tool knows.
    """
    readers: tuple[Callable[[str, Reader], list[Line] | None], ...] = (
        _of_poetry,
        _of_pipfile,
        _of_pip_tools,
        _of_setuptools,
    )
    found = (each(place, read) for each in readers)
    return next((lines for lines in found if lines is not None), None)


def _at(place: str, name: str) -> str:
    return name if place == "." else f"{place}/{name}"


# --- Poetry and pipenv ---------------------------------------------------------------------------------------------


def _of_poetry(place: str, read: Reader) -> list[Line] | None:
    file = _at(place, PROJECT_FILES[0])
    table = table_in(toml_of(file, read(file) or ""), "tool", "poetry", "dependencies")
    if not table:
        return None
    if read(_at(place, _POETRY_LOCK)) is not None:
        raise RequirementsError(
            f"{_at(place, _POETRY_LOCK)} is read by Poetry only: run `poetry export -o {FILE}`, and send {FILE}, "
            "too. Without the lock, the limits in pyproject.toml count."
        )
    found = [text for name, value in table.items() for text in _of_table(name, value)]
    return [Line(file, 1, text) for text in ("-e .", *found)]


def _of_table(name: str, value: object) -> Iterator[str]:
    """Yield the requirement of an entry such as `timm = "^1.0"` or `timm = {version = "*", extras = ["x"]}`."""
    entries: list[Any] = value if isinstance(value, list) else [value]
    for entry in entries:
        one: dict[str, Any] = entry if isinstance(entry, dict) else {"version": entry}
        if one.get("optional") is True:
            continue
        yield _requirement(name, one)


def _requirement(name: str, one: Mapping[str, Any]) -> str:
    limits = _limits(str(one.get("version", "*")))
    if name == "python":
        return f"{PYTHON_OPTION} {limits or '>=3'}"
    if isinstance(path := one.get("path"), str):
        return f"-e {path}"
    extras = f"[{','.join(map(str, one['extras']))}]" if isinstance(one.get("extras"), list) else ""
    marker = f" ; {one['markers']}" if isinstance(one.get("markers"), str) else ""
    if isinstance(git := one.get("git"), str):
        revision = next((f"@{one[key]}" for key in ("rev", "ref", "tag", "branch") if key in one), "")
        return f"{name}{extras} @ git+{git.removeprefix('git+')}{revision}{marker}"
    if isinstance(url := one.get("url", one.get("file")), str):
        return f"{name}{extras} @ {url}{marker}"
    return f"{name}{extras}{limits}{marker}"


def _limits(version: str) -> str:
    """Return limits of Poetry and pipenv as pip has them, such as `>=1.2,<2` for `^1.2`."""
    return ",".join(filter(None, map(_limit, version.replace(" ", "").split(","))))


def _limit(version: str) -> str:
    if version in ("*", ""):
        return ""
    caret_or_tilde = _NUMBERS.fullmatch(version)
    if caret_or_tilde is None:
        return f"=={version}" if version[0].isdigit() else version
    numbers = [int(each) for each in caret_or_tilde["version"].split(".")]
    if version[0] == "~":
        kept = min(2, len(numbers))
    else:  # the first number that is not 0 stays
        kept = next((index for index, each in enumerate(numbers, 1) if each), len(numbers))
    upper = [*numbers[: kept - 1], numbers[kept - 1] + 1]
    return f">={caret_or_tilde['version']},<{'.'.join(map(str, upper))}"


def _of_pipfile(place: str, read: Reader) -> list[Line] | None:
    file, lock = _at(place, _PIPFILE), _at(place, _PIPFILE_LOCK)
    locked = read(lock)
    if locked is not None:
        return list(_of_pipfile_lock(lock, locked))
    text = read(file)
    if text is None:
        return None
    stated = toml_of(file, text)
    python = table_in(stated, "requires").get("python_version")
    version = [Line(file, 1, f"{PYTHON_OPTION} {python}")] if isinstance(python, str) else []
    packages = table_in(stated, "packages").items()
    return [*version, *(Line(file, 1, found) for name, value in packages for found in _of_table(name, value))]


def _of_pipfile_lock(lock: str, text: str) -> Iterator[Line]:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequirementsError(f"{lock} is not valid JSON ({error}): run `pipenv lock`.") from None
    python = table_in(read, "_meta", "requires").get("python_version")
    if isinstance(python, str):
        yield Line(lock, 1, f"{PYTHON_OPTION} {python}")
    for name, one in table_in(read, "default").items():
        if not isinstance(one, dict):
            raise RequirementsError(f"{lock}: {name} has no version: run `pipenv lock`.")
        hashes = one.get("hashes")
        known = "".join(f" --hash={each}" for each in hashes) if isinstance(hashes, list) and "version" in one else ""
        yield Line(lock, 1, f"{_requirement(name, one)}{known}")


# --- pip-tools and setuptools --------------------------------------------------------------------------------------


def _of_pip_tools(place: str, read: Reader) -> list[Line] | None:
    file = _at(place, _PIP_TOOLS)
    text = read(file)
    return None if text is None else list(all_lines(text, file))


def _of_setuptools(place: str, read: Reader) -> list[Line] | None:
    """Return `-e .` for a project that states its requirements as constants in setup.cfg or setup.py."""
    project = _at(place, PROJECT_FILES[0])
    dynamic = table_in(toml_of(project, read(project) or ""), "project").get("dynamic")
    if isinstance(dynamic, list) and "dependencies" in dynamic and not dependencies_of(place, read):
        return _of_dynamic(place, project, read)
    files = [
        file for name in PROJECT_FILES[1:] if (text := read(file := _at(place, name))) and "install_requires" in text
    ]
    if not files:
        return None
    if not dependencies_of(place, read):
        raise RequirementsError(
            f"{files[0]} works its install_requires out when it is run, which the site does not do: write them as a "
            f"list of texts, or into {FILE}."
        )
    return [Line(files[0], 1, "-e .")]


def _of_dynamic(place: str, project: str, read: Reader) -> list[Line]:
    """Return the lines of the files that setuptools would read."""
    stated = table_in(toml_of(project, read(project) or ""), "tool", "setuptools", "dynamic", "dependencies").get(
        "file"
    )
    files = [stated] if isinstance(stated, str) else stated
    if not isinstance(files, list) or not files:
        raise RequirementsError(
            f"{project} leaves its dependencies to the tool that builds it (dynamic), which the site does not run: "
            f"name them in dependencies, or in {FILE}."
        )
    names = [str(PurePosixPath(place, str(name))) for name in files]
    texts = {name: read(name) for name in names}
    if lost := [name for name, text in texts.items() if text is None]:
        raise RequirementsError(f"{project} reads its dependencies from {lost[0]}, which is not there: send it, too.")
    return [line for name, text in texts.items() for line in all_lines(text or "", name)]
