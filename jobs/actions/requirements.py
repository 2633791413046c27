"""Requirements of a training beyond the cluster's packages, and imports of its script that are missing.

Checked against the packages of the site's own environment: hosts are set up from the same requirements, but do not
report their packages. The messages say so.
"""

import platform
import sys
from dataclasses import replace
from functools import lru_cache, partial
from importlib.metadata import packages_distributions
from pathlib import Path, PurePosixPath

from tidepool.requirement_files import CONDA_FILES, FILE, text_of
from tidepool.units import size_words

from jobs.actions.conda_files import lines_of_conda
from jobs.actions.mlflow_client import CLIENT_MODULES, with_client
from jobs.actions.project_files import lines_of_project
from jobs.actions.requirement_lines import (
    Read,
    Reader,
    RequirementsError,
    read_lines,
    read_requirements,
    script_block,
)
from jobs.actions.submission_checks import Problems, Submitted
from jobs.messages import HOW_TO_REQUIRE
from jobs.options import Options
from models_registry.code_inspection import COMPAT_MODULES, imported_modules
from workers.executor.environments.requirements import import_folders, installed

__all__ = [
    "HOW_TO_GO_ON",
    "importable_modules",
    "missing_modules",
    "missing_words",
    "with_requirements",
]

_MAX_BYTES = 1024 * 1024
#: Last sentence of a refusal because of requirements.
HOW_TO_GO_ON = (
    "Correct these lines, or go on without them: check Skip unusable requirements on the Train page, or give "
    "skip_unusable_requirements (in REST and Python) or --skip-unusable-requirements (on the command line)."
)


def with_requirements(
    problems: Problems, given: Submitted, folder: Path, entry_point: str, *, skip_unusable: bool
) -> tuple[Submitted, list[str]]:
    """Fill in the requirements: the given ones, or those of the script (PEP 723), its project or a file beside it.

    skip_unusable: go on without the lines that cannot be used. Returns the options, and a sentence for each such line.
    """
    text: object = given.requirements
    try:
        if not isinstance(text, str):
            raise RequirementsError("Give the requirements as text, one per line, such as timm>=1.0.")
        folder_reader = partial(_text_below, folder)
        found = (
            read_requirements(text, "", folder_reader, installed())
            if text.strip()
            else _of_folder(folder, entry_point, folder_reader)
        )
    except RequirementsError as error:
        problems.add("requirements", str(error))
        return given, []
    unusable = [each.sentence for each in found.unusable]
    if unusable and not skip_unusable:
        for sentence in (*unusable, HOW_TO_GO_ON):
            problems.add("requirements", sentence)
        return given, unusable
    lines = found.with_replacements
    if not text.strip() or found.lines:  # a text of comments alone asks for nothing
        lines = with_client(lines, folder, entry_point)
    return replace(given, requirements="\n".join(lines)), unusable


def missing_modules(folder: Path, entry_point: str, given: Options) -> list[str]:
    """Return the modules that the script imports and the cluster lacks, unless its requirements may bring them."""
    supplied = {*with_client((), folder, entry_point)}
    if {*given.requirements.splitlines()} - supplied:
        return []
    return sorted(
        imported_modules(folder, entry_point) - importable_modules() - (CLIENT_MODULES if supplied else set())
    )


def missing_words(modules: list[str]) -> str:
    if not modules:
        return ""
    names = ", ".join(modules[:5]) + (" and others" if len(modules) > 5 else "")
    return (
        f"The script imports {names}, which the site's own environment does not have, and hosts have the same packages "
        f"unless an administrator has added some. {HOW_TO_REQUIRE}"
    )


def importable_modules() -> frozenset[str]:
    """Return all modules that scripts can import, including those of packages added since the start of this process."""
    return _importable(import_folders())


@lru_cache(maxsize=1)
def _importable(folders: tuple[tuple[str, int], ...]) -> frozenset[str]:
    """Return all importable modules. Cached, because the search takes longer than the rest of a preview."""
    compat = {module for modules in COMPAT_MODULES.values() for module in modules}
    return frozenset({*packages_distributions(), *sys.stdlib_module_names, "tidepool", *compat})


def _of_folder(folder: Path, entry_point: str, read: Reader) -> Read:
    script = folder / entry_point
    block = script_block(read(entry_point) or "", platform.python_version()) if script.suffix == ".py" else None
    if block is not None:
        return read_requirements(block, entry_point, read, installed())
    places = dict.fromkeys((PurePosixPath(entry_point).parent, PurePosixPath(".")))
    for place in map(str, places):
        lines = lines_of_project(folder, place, read, platform.python_version())
        if lines is not None:
            return read_lines(lines, read, installed())
    for file in [str(place / name) for name in (FILE, *CONDA_FILES) for place in places]:
        text = read(file)
        if text is not None and PurePosixPath(file).name == FILE:
            return read_requirements(text, file, read, installed())
        if text is not None:
            return read_lines(lines_of_conda(text, file, platform.python_version()), read, installed())
    return Read()


def _text_below(folder: Path, name: str) -> str | None:
    """Return the text of a file in the folder; None if there is none. Raises RequirementsError for a large one."""
    path = folder / name
    if ".." in path.parts or not path.is_relative_to(folder) or path.is_symlink() or not path.is_file():
        return None
    if path.stat().st_size > _MAX_BYTES:
        raise RequirementsError(f"{name} is larger than {size_words(_MAX_BYTES)}: shorten it.")
    return text_of(path.read_bytes())
