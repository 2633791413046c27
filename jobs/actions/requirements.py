"""Requirements of a training beyond the cluster's packages, and imports of its script that are missing.

Checked against the packages of the site's own environment: hosts are set up from the same requirements, but do not
report their packages. The messages say so.
"""

import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from importlib.metadata import packages_distributions
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name
from tidepool.requirement_files import CONDA_FILES, FILE, Line, all_lines, text_of
from tidepool.units import size_words

from jobs.actions.conda_files import for_conda, lines_of_conda
from jobs.actions.environments import default_environment, find_environment
from jobs.actions.exact_clone import Exactly
from jobs.actions.mlflow_client import CLIENT_MODULES, with_client
from jobs.actions.other_projects import lines_of_other_project
from jobs.actions.project_files import line_of_python, lines_of_project
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
from jobs.models import InstanceGroup, NamedEnvironment
from jobs.options import Options
from jobs.queries.programs import has_conda, runs_images
from jobs.words import listed
from models_registry.code_inspection import COMPAT_MODULES, imported_modules
from models_registry.models import RegisteredModelVersion
from workers.executor.environments.engines import ENGINE_NAMES
from workers.executor.environments.requirements import (
    TESTED_TORCH,
    conda_in,
    folder_in,
    has_tested_torch,
    image_in,
    import_folders,
    installed,
    is_package,
    package_in,
    replaced,
    wanted_of,
)

__all__ = [
    "HOW_TO_GO_ON",
    "NO_CONDA",
    "NO_IMAGES",
    "environment_words",
    "importable_modules",
    "missing_modules",
    "missing_words",
    "requirements_in",
    "with_locked",
    "with_requirements",
]

_MAX_BYTES = 1024 * 1024
#: Last sentence of a refusal because of requirements.
HOW_TO_GO_ON = (
    "Correct these lines, or go on without them: check Skip unusable requirements on the Train page, or give "
    "skip_unusable_requirements (in REST and Python) or --skip-unusable-requirements (on the command line)."
)
NO_CONDA = (
    "Lines with --conda need micromamba, mamba or conda, and no host of the instance group has one: require packages "
    "of PyPI instead, or have an administrator install one on the hosts."
)
NO_IMAGES = (
    f"A container image needs {ENGINE_NAMES}, and no host of the instance group has one: name packages instead, or "
    "have an administrator install one on the hosts."
)
#: Last sentence of a refusal to run a training exactly again.
_INSTEAD_OF_EXACTLY = "Clone the training to run it with what the cluster has now."


def with_requirements(
    problems: Problems,
    given: Submitted,
    model: RegisteredModelVersion,
    group: InstanceGroup | None,
    *,
    skip_unusable: bool,
) -> tuple[Submitted, list[str]]:
    """Fill in the requirements. The first of these decides:

    the chosen environment; the given requirements; those of the script (PEP 723), its project or a file beside it; the
    default environment of the instance group.

    skip_unusable: go on without the lines that cannot be used. Returns the options, and a sentence for each such line.
    """
    text: object = given.requirements
    if given.named_environment:
        if text:
            problems.add("requirements", "The environment has its own: choose none, or give no requirements beside it.")
        chosen = find_environment(problems, given, group)
        return (given if chosen is None else _in_environment(problems, given, model, chosen)), []
    folder, entry_point = model.folder, model.entry_point
    try:
        if not isinstance(text, str):
            raise RequirementsError("Give the requirements as text, one per line, such as timm>=1.0.")
        found = (
            read_requirements(text, "", partial(_text_below, folder), installed())
            if text.strip()
            else requirements_in(folder, entry_point, partial(has_conda, group))
        )
    except RequirementsError as error:
        problems.add("requirements", str(error))
        return given, []
    unusable = [each.sentence for each in found.unusable]
    if unusable and not skip_unusable:
        for sentence in (*unusable, *_parts_for_pip(found), HOW_TO_GO_ON):
            problems.add("requirements", sentence)
        return given, unusable
    lines = found.with_replacements
    if conda_in(lines) and not has_conda(group):
        problems.add("requirements", NO_CONDA)
    if image_in(lines) and not runs_images(group):
        problems.add("requirements", NO_IMAGES)
    if image_in(lines) or conda_in(lines):
        return replace(given, requirements="\n".join(lines)), unusable
    if not (text.strip() or lines) and (usual := default_environment(group)) is not None:
        return _in_environment(problems, given, model, usual), unusable
    if not text.strip() or found.lines:  # a text of comments alone asks for nothing
        lines = with_client(lines, folder, entry_point)
    if replaced(lines, installed(), platform.python_version()):
        lines = _with_imported(lines, folder, entry_point)
        _check_elastic(problems, "requirements", model, lines)
    return replace(given, requirements="\n".join(lines)), unusable


def _parts_for_pip(found: Read) -> list[str]:
    """Return a sentence about the lines that need no conda, if others do."""
    if not any(each.line.is_conda for each in found.unusable):
        return []
    files = listed(sorted({each.line.file for each in found.unusable if each.line.is_conda}), "files")
    usable = ", ".join(found.with_replacements)
    return [f"Of {files}, these lines need no conda and can go into a requirements.txt: {usable or 'none'}."]


def with_locked(
    problems: Problems,
    given: Submitted,
    wanted: Exactly,
    model: RegisteredModelVersion,
    group: InstanceGroup | None,
) -> Submitted:
    """Fill in the requirements that pin what another training ran."""
    missing = [sentence for sentence in (wanted.code_problem, *wanted.environment.missing) if sentence]
    for sentence in (*missing, *([_INSTEAD_OF_EXACTLY] if missing else [])):
        problems.add("exactly", sentence)
    lines = wanted.environment.lines
    if folder_in(lines):
        return _in_same_folder(problems, given, "\n".join(lines), group)
    if replaced(lines, installed(), platform.python_version()):
        _check_elastic(problems, "requirements", model, lines)
    return replace(given, named_environment="", requirements="\n".join(lines))


def _in_same_folder(problems: Problems, given: Submitted, lines: str, group: InstanceGroup | None) -> Submitted:
    """Return the options with a folder of the hosts, which trainings have only by an environment of that name."""
    chosen = find_environment(problems, given, group)
    if chosen is not None and chosen.lines != lines:
        problems.add("exactly", f"Environment {chosen.name!r} is no longer {folder_in(lines.splitlines())}.")
        problems.add("exactly", _INSTEAD_OF_EXACTLY)
    return replace(given, requirements=lines)


def _in_environment(
    problems: Problems, given: Submitted, model: RegisteredModelVersion, chosen: NamedEnvironment
) -> Submitted:
    """Return the options with exactly what the environment has: all of its trainings share it."""
    _check_elastic(problems, "named_environment", model, chosen.lines.splitlines())
    return replace(given, named_environment=chosen.name, requirements=chosen.lines)


def _check_elastic(problems: Problems, field: str, model: RegisteredModelVersion, lines: Iterable[str]) -> None:
    if model.engine == RegisteredModelVersion.Engine.ELASTIC and (why := _why_not_elastic(lines)):
        problems.add(field, why)


def environment_words(given: Options) -> str:
    """Return which packages the training runs with; "": it asks for nothing beyond the cluster's."""
    lines = given.requirements.splitlines()
    named = f"Environment {given.named_environment}: " if given.named_environment else ""
    if image := image_in(lines):
        return f"{named}it runs in the image {image}, which each host pulls once."
    if folder := folder_in(lines):
        return f"{named}it runs with what the folder {folder} of each host holds."
    waits = "The first training with it on a host waits for the installation."
    if conda := conda_in(lines):
        return f"{named}it gets an environment of its own, for which conda solves {listed(conda, 'packages')}. {waits}"
    there = installed()
    wanted = wanted_of(lines, there, platform.python_version())
    if wanted is None:
        return f"{named}the cluster's own packages meet it." if named else ""
    if wanted.is_whole:
        others = listed(replaced(lines, there, platform.python_version()), "packages")
        why = f"because it asks for another {others} than the cluster's"
        return f"{named}it gets an environment of its own, {why}. {waits}"
    added = [package for package in wanted.packages if canonicalize_name(package_in(package).name) not in wanted.met]
    return f"{named}it adds {listed(added, 'packages')} to the cluster's packages. {waits}"


def _with_imported(lines: list[str], folder: Path, entry_point: str) -> list[str]:
    """Add what the script imports of the cluster's packages: a whole environment has only what is required."""
    named = {str(canonicalize_name(package_in(line).name)) for line in lines if is_package(line)}
    imported, providers = imported_modules(folder, entry_point), _providers(import_folders())
    ours = {str(canonicalize_name(name)) for module in imported for name in providers.get(module, ())}
    ours |= {"torch"} if "tidepool" in imported else set()
    return [*lines, *sorted((ours & installed().keys()) - named - {"tidepool", "tidepool-runtime"})]


def _why_not_elastic(lines: Iterable[str]) -> str:
    """Return why an elastic script cannot run with the version of torch that is required, or ""."""
    torch = [package_in(line) for line in lines if is_package(line) and package_in(line).name == "torch"]
    versions = [each.version for one in torch for each in one.specifier if each.operator == "=="]
    if all(version.endswith(".*") or has_tested_torch(version) for version in versions):
        return ""
    return (
        f"An elastic script needs torch{TESTED_TORCH}, and the requirements ask for {versions[0]}: ask for one of "
        "these versions, or register the model with a fixed number of GPUs."
    )


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
    return frozenset({*_providers(folders), *sys.stdlib_module_names, "tidepool", *compat})


@lru_cache(maxsize=1)
def _providers(folders: tuple[tuple[str, int], ...]) -> Mapping[str, list[str]]:
    """Return the distributions that have each importable module."""
    return packages_distributions()


def requirements_in(folder: Path, entry_point: str, may_solve: Callable[[], bool] = lambda: False) -> Read:
    """Return the requirements of a script, its project or the files beside it. Raises RequirementsError.

    may_solve: returns whether hosts have a solver of conda.
    """
    read = partial(_text_below, folder)
    script = folder / entry_point
    block = script_block(read(entry_point) or "") if script.suffix == ".py" else None
    if block is not None:
        return read_requirements(block, entry_point, read, installed())
    places = dict.fromkeys((PurePosixPath(entry_point).parent, PurePosixPath(".")))
    lines = _lines_beside(folder, [*map(str, places)], read)
    if lines is None:
        return Read()
    found = read_lines(lines, read, installed())
    if any(each.line.is_conda for each in found.unusable) and may_solve():
        return read_lines(for_conda(lines), read, installed())
    return found


def _lines_beside(folder: Path, places: list[str], read: Reader) -> list[Line] | None:
    """Return the requirements of the files at the first of these places that has some; None if none has."""
    python = [line for line in (line_of_python(place, read) for place in places) if line is not None][:1]
    for place in places:
        lines = lines_of_project(folder, place, read)
        if lines is not None:
            return [*python, *lines]
    for name in (FILE, *CONDA_FILES):
        for file in (str(PurePosixPath(place, name)) for place in places):
            text = read(file)
            if text is not None:
                return [*python, *(all_lines(text, file) if name == FILE else lines_of_conda(text, file))]
    for place in places:
        lines = lines_of_other_project(place, read)
        if lines is not None:
            return [*python, *lines]
    return python or None


def _text_below(folder: Path, name: str) -> str | None:
    """Return the text of a file in the folder; None if there is none. Raises RequirementsError for a large one."""
    path = folder / name
    if ".." in path.parts or not path.is_relative_to(folder) or path.is_symlink() or not path.is_file():
        return None
    if path.stat().st_size > _MAX_BYTES:
        raise RequirementsError(f"{name} is larger than {size_words(_MAX_BYTES)}: shorten it.")
    return text_of(path.read_bytes())
