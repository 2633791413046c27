"""Requirements of a training beyond the cluster's packages, and imports of its script that are missing.

Checked against the packages of the site's own environment: hosts are set up from the same requirements, but do not
report their packages. The messages say so.
"""

import platform
import sys
from dataclasses import replace
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

from jobs.actions.submission_checks import Problems, Submitted
from jobs.messages import HOW_TO_REQUIRE
from jobs.options import Options
from models_registry.code_inspection import COMPAT_MODULES, imported_modules
from workers.executor.environments.requirements import RequirementsError, checked, conflict_with, installed, of_script

__all__ = ["missing_modules", "missing_words", "with_requirements"]

_MAX_BYTES = 256 * 1024


def with_requirements(problems: Problems, given: Submitted, folder: Path, entry_point: str) -> Submitted:
    """Fill in one requirement per line: the given ones, or the script's (PEP 723), or those of a `requirements.txt`."""
    text: object = given.requirements
    try:
        if not isinstance(text, str):
            raise RequirementsError("Give the requirements as text, one per line, such as timm>=1.0.")
        lines = checked(text) if text.strip() else _of_folder(folder, entry_point)
        if conflict := conflict_with(lines, installed()):
            raise RequirementsError(conflict)
    except RequirementsError as error:
        problems.add("requirements", str(error))
        return given
    return replace(given, requirements="\n".join(lines))


def missing_modules(folder: Path, entry_point: str, given: Options) -> list[str]:
    """Return the modules that the script imports and the cluster lacks, unless its requirements may bring them."""
    if given.requirements:
        return []
    return sorted(imported_modules(folder, entry_point) - _importable())


def missing_words(modules: list[str]) -> str:
    if not modules:
        return ""
    names = ", ".join(modules[:5]) + (" and others" if len(modules) > 5 else "")
    return (
        f"The script imports {names}, which the site's own environment does not have, and hosts have the same packages "
        f"unless an administrator has added some. {HOW_TO_REQUIRE}"
    )


@cache
def _importable() -> frozenset[str]:
    """Return all importable modules. Cached, because the search takes longer than the rest of a preview."""
    compat = {module for modules in COMPAT_MODULES.values() for module in modules}
    return frozenset({*packages_distributions(), *sys.stdlib_module_names, "tidepool", *compat})


def _of_folder(folder: Path, entry_point: str) -> list[str]:
    script = folder / entry_point
    stated = of_script(_read(script), platform.python_version()) if script.suffix == ".py" else None
    if stated is not None:
        return stated
    files = [path / "requirements.txt" for path in (script.parent, folder)]
    text = next((_read(file) for file in files if file.is_file()), "")
    return checked(text)


def _read(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(_MAX_BYTES).decode(errors="replace").replace("\r\n", "\n")
