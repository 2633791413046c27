"""Requirements that a project states in `pyproject.toml`, or locks in `uv.lock`."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from tidepool.requirement_files import LOCK_FILE, PROJECT_FILES, PYTHON_FILE, Line, all_lines
from uv import find_uv_bin

from jobs.actions.requirement_lines import Reader, RequirementsError
from workers.executor.environments.requirements import PYTHON_OPTION

__all__ = ["line_of_python", "lines_of_project", "table_in", "toml_of"]

_PROJECT: Final = PROJECT_FILES[0]
_EXPORT_SECONDS: Final = 30.0
_PINNED: Final = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[^\s;]+)")
#: pyenv's file may also have names of environments, or several lines.
_PYTHON_VERSION: Final = re.compile(r"\s*(?:cpython[@-]?)?(?P<minor>3\.\d+)(?:\.\d+)?\s*$", re.MULTILINE)
_PYPI: Final = "https://pypi.org/simple"


def lines_of_project(folder: Path, place: str, read: Reader) -> list[Line] | None:
    """Return the requirements of the project in a folder of a training; None if its files state none.

    folder: top folder of the training. place: the project's folder in it. Raises RequirementsError for files that
    cannot be read, and a lock that is not the project's.
    """
    file = _PROJECT if place == "." else f"{place}/{_PROJECT}"
    text = read(file)
    if text is None:
        return None
    stated = toml_of(file, text)
    project = table_in(stated, "project")
    lock, locked = _lock_of(place, read)
    if locked is None and not project.get("dependencies"):
        return None
    lines = _of_lock(folder / place, lock, locked, project) if locked is not None else _of_tables(file, text, stated)
    return [*_of_python(file, text, project), *lines]


def _lock_of(place: str, read: Reader) -> tuple[str, str | None]:
    """Return path and text of the project's lock: that of a workspace is at its top."""
    places = [PurePosixPath(place), *PurePosixPath(place).parents]
    found = ((str(each / LOCK_FILE), read(str(each / LOCK_FILE))) for each in places)
    return next(((lock, text) for lock, text in found if text is not None), (LOCK_FILE, None))


def line_of_python(place: str, read: Reader) -> Line | None:
    """Return the line for the version in `.python-version`, 3.12 for 3.12.4, too; None if there is none."""
    file = PYTHON_FILE if place == "." else f"{place}/{PYTHON_FILE}"
    found = _PYTHON_VERSION.match(read(file) or "")
    return Line(file, 1, f"{PYTHON_OPTION} {found['minor']}") if found else None


def toml_of(file: str, text: str) -> dict[str, Any]:
    """Return the content of a TOML file. Raises RequirementsError."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RequirementsError(f"{file} is not valid TOML ({error}): correct it.") from None


def table_in(stated: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the table below these names; {} if there is none."""
    found: Any = stated
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _of_python(file: str, text: str, project: Mapping[str, Any]) -> Iterator[Line]:
    requires = str(project.get("requires-python", ""))
    try:
        SpecifierSet(requires)
    except InvalidSpecifier:
        raise RequirementsError(f"{file}: requires-python {requires!r} is not a limit such as >=3.11.") from None
    if requires:
        yield Line(file, _line_of(text, "requires-python"), f"{PYTHON_OPTION} {requires}")


# --- pyproject.toml alone ------------------------------------------------------------------------------------------


def _of_tables(file: str, text: str, stated: Mapping[str, Any]) -> Iterator[Line]:
    yield Line(file, _line_of(text, "dependencies"), "-e .")
    indexes = table_in(stated, "tool", "uv").get("index")
    for index in indexes if isinstance(indexes, list) else ():
        if isinstance(index, dict) and isinstance(url := index.get("url"), str):
            option = "--index-url" if index.get("default") is True else "--extra-index-url"
            yield Line(file, _line_of(text, url), f"{option} {url}")
    for name, source in table_in(stated, "tool", "uv", "sources").items():
        for each in source if isinstance(source, list) else [source]:
            if isinstance(each, dict) and "index" not in each:
                yield Line(file, _line_of(text, name), _of_source(file, name, each))


def _of_source(file: str, name: str, source: Mapping[str, Any]) -> str:
    if isinstance(path := source.get("path"), str):
        return f"-e {path}"
    marker = f" ; {source['marker']}" if isinstance(source.get("marker"), str) else ""
    if isinstance(git := source.get("git"), str):
        revision = next((source[key] for key in ("rev", "tag", "branch") if key in source), None)
        part = f"#subdirectory={source['subdirectory']}" if "subdirectory" in source else ""
        return f"{name} @ git+{git.removeprefix('git+')}{f'@{revision}' if revision else ''}{part}{marker}"
    if isinstance(url := source.get("url"), str):
        return f"{name} @ {url}{marker}"
    raise RequirementsError(
        f"{file}: the source of {name} in [tool.uv.sources] can be read from a lock only: run `uv lock`, and send "
        f"{LOCK_FILE}, too."
    )


def _line_of(text: str, word: str) -> int:
    return next((number for number, line in enumerate(text.splitlines(), start=1) if word in line), 1)


# --- uv.lock -------------------------------------------------------------------------------------------------------


def _of_lock(folder: Path, lock: str, text: str, project: Mapping[str, Any]) -> Iterator[Line]:
    """Yield what uv installs for the project itself, without its groups: versions and hashes of the lock."""
    read = toml_of(lock, text)
    packages = [each for each in read.get("package", []) if isinstance(each, dict)]
    _check_fits(lock, packages, project)
    for registry in sorted({str(table_in(each, "source").get("registry", _PYPI)) for each in packages} - {_PYPI}):
        yield Line(lock, _line_of(text, registry), f"--extra-index-url {registry}")
    hashes = {(str(each.get("name")), str(each.get("version"))): _hashes_of(each) for each in packages}
    for line in all_lines(_exported(folder, lock), lock):
        pinned = _PINNED.match(line.text)
        if pinned is None:
            yield line
        else:
            known = "".join(f" --hash={each}" for each in hashes.get((pinned["name"], pinned["version"]), ()))
            yield Line(lock, _line_of(text, f'name = "{pinned["name"]}"'), f"{line.text}{known}")


def _hashes_of(package: Mapping[str, Any]) -> list[str]:
    """Return the hashes of the files of a locked package that a host with this Python may take."""
    wheels = package.get("wheels")
    files = [*(wheels if isinstance(wheels, list) else ()), package.get("sdist")]
    return [str(each["hash"]) for each in files if isinstance(each, dict) and "hash" in each and _is_ours(each)]


def _is_ours(file: Mapping[str, Any]) -> bool:
    name = str(file.get("url", file.get("filename", ""))).rpartition("/")[2]
    if not name.endswith(".whl"):
        return True
    python, abi, platform = name.removesuffix(".whl").split("-")[-3:]
    is_python = abi in ("none", "abi3") or f"cp{sys.version_info.major}{sys.version_info.minor}" in python.split(".")
    return is_python and (platform == "any" or "linux_" in platform.replace("musllinux_", ""))


def _check_fits(lock: str, packages: list[dict[str, Any]], project: Mapping[str, Any]) -> None:
    own = next((each for each in packages if each.get("name") == canonicalize_name(str(project.get("name", "")))), {})
    noted = {
        (canonicalize_name(str(each.get("name"))), str(SpecifierSet(str(each.get("specifier", "")))))
        for each in table_in(own, "metadata").get("requires-dist", [])
        if "extra ==" not in str(each.get("marker", ""))
    }
    try:
        stated = {
            (canonicalize_name(one.name), str(one.specifier))
            for one in map(Requirement, project.get("dependencies", []))
        }
    except (InvalidRequirement, TypeError) as error:
        raise RequirementsError(f"{_PROJECT}: dependencies cannot be read ({error}): correct them.") from None
    if changed := sorted({name for name, _ in noted ^ stated}):
        raise RequirementsError(
            f"{lock} does not fit {_PROJECT}, which states {', '.join(changed)} otherwise: "
            "run `uv lock`, and send both."
        )


def _exported(folder: Path, lock: str) -> str:
    with TemporaryDirectory(prefix="tidepool-lock-") as cache:
        command = [
            find_uv_bin(),
            "export",
            "--frozen",
            "--no-default-groups",
            "--no-hashes",
            "--no-header",
            "--no-annotate",
        ]
        offline = {"UV_OFFLINE": "1", "UV_CACHE_DIR": cache, "UV_PYTHON": sys.executable}
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env={"HOME": cache, **offline},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_EXPORT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RequirementsError(f"{lock}: uv needs more than {_EXPORT_SECONDS:.0f} s to read it.") from None
    if done.returncode != 0:
        raise RequirementsError(f"{lock} cannot be read: {done.stderr.strip()[-500:].removeprefix('error: ')}")
    return done.stdout
