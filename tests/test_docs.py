"""Check that what people can set, and what they can meet, is documented."""

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from datasets.models import DatasetVersion
from jobs.states import JOB_TRANSITIONS, GenerationState, JobState, RankState, Reason
from scheduling.plan import PlanReason
from tests.test_architecture import ROOT, source_files

#: Names that look like variables but are Django settings of ours without one.
NOT_VARIABLES = {"TIDEPOOL_RESULTS_ROOT"}
PLACES = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "runtime/README.md",
    "benchmarks/README.md",
    *(str(file.relative_to(ROOT)) for file in sorted((ROOT / "docs").rglob("*.md"))),
]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def words_of(document: str) -> set[str]:
    """Return the words that a document sets in `code`."""
    return set(re.findall(r"`([^`\n]+)`", (ROOT / document).read_text()))


def variables_in_source() -> set[str]:
    found: set[str] = set()
    for file in source_files():
        found |= set(re.findall(r"\bTIDEPOOL_[A-Z_]*[A-Z]\b", file.read_text()))
    return found - NOT_VARIABLES


def test_every_variable_is_documented() -> None:
    assert variables_in_source() - words_of("docs/settings.md") == set()


def test_no_variable_is_documented_that_nothing_reads() -> None:
    documented = {word for word in words_of("docs/settings.md") if re.fullmatch(r"TIDEPOOL_[A-Z_]+", word)}
    assert documented - variables_in_source() == set()


@pytest.mark.parametrize("states", [JobState, GenerationState, RankState, Reason, PlanReason, DatasetVersion.State])
def test_every_state_and_reason_is_documented(states: type) -> None:
    assert {str(state) for state in states} - words_of("docs/states.md") == set()


def test_every_transition_is_documented() -> None:
    text = (ROOT / "docs/states.md").read_text()
    missing = []
    for old, new in JOB_TRANSITIONS:
        rows = [line for line in text.splitlines() if f"`{old}`" in line and f"`{new}`" in line]
        if not rows:
            missing.append(f"{old} -> {new}")
    assert missing == []


def required_by(document: str) -> set[str]:
    """Names of the packages that a requirements file asks for."""
    lines = [line.strip() for line in (ROOT / document).read_text().splitlines()]
    return {_normal(re.split(r"[=<>;\[ ]", line)[0]) for line in lines if line and line[0] not in "#-"}


def test_every_dependency_has_a_sentence() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().lower()
    names = required_by("requirements.in") | required_by("requirements-dev.in")
    assert {name for name in names if name not in text} == set()


def test_everything_that_is_required_is_pinned() -> None:
    pins = required_by("requirements.txt")
    assert required_by("requirements.in") - pins == set()
    assert required_by("requirements-dev.in") - pins - required_by("requirements-dev.txt") == set()
    loose = [
        line for line in (ROOT / "requirements.txt").read_text().splitlines() if line[0] != "#" and "==" not in line
    ]
    assert loose == ["-e ./runtime"], "what trainings import, from this checkout"


def test_the_runtime_requires_what_it_imports() -> None:
    """Check both parts: by itself, where people work, it is the client; what trains has the extra `torch`."""
    project = tomllib.loads((ROOT / "runtime/pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    folder = ROOT / "runtime/tidepool"
    modules = {path.stem for path in folder.iterdir()} | {"tidepool"}
    imported: dict[bool, set[str]] = {True: set(), False: set()}
    for file in folder.rglob("*.py"):
        is_client = file.relative_to(folder).parts[0] in ("client", "cli", "notebook")
        imported[is_client] |= set(re.findall(r"^\s*(?:import|from) (\w+)", file.read_text(), re.MULTILINE))

    def foreign(names: set[str]) -> set[str]:
        return {name.lower() for name in names - sys.stdlib_module_names - modules}

    def required(lines: list[str]) -> set[str]:
        return {re.split(r"[=<>]", line)[0] for line in lines}

    for_people = [project["dependencies"], *(extras[name] for name in ("data", "nni", "notebook"))]
    # PyYAML's module is `yaml`.
    assert {"pyyaml" if name == "yaml" else name for name in foreign(imported[True])} == set().union(
        *map(required, for_people)
    )
    assert foreign(imported[False]) | {"torch"} == required(extras["torch"])


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for place in PLACES:
        text = (ROOT / place).read_text()
        for target in re.findall(r"(?<!\")\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            if not ((ROOT / place).parent / target).exists():
                broken.append(f"{place}: {target}")
    assert broken == []


def test_tests_that_documents_name_are_there() -> None:
    named = {
        (place, *found)
        for place in PLACES
        for found in re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", (ROOT / place).read_text())
    }
    assert len(named) > 100, "docs/wmla-contract.md names one or more for each row"
    assert [name for name in sorted(named) if name[2] not in names_in(name[1])] == []


@cache
def names_in(place: str) -> set[str]:
    """Names of the tests of a file, with their class."""
    found = set()
    for node in ast.parse((ROOT / place).read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{each.name}" for each in node.body if isinstance(each, FUNCTIONS)}
        elif isinstance(node, FUNCTIONS):
            found.add(node.name)
    return found


def test_requires_the_python_that_setup_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11"
    assert "(3, 11)" in Path(ROOT / "scripts/setup").read_text()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
