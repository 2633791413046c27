"""Tests of what a host has to build for the requirements of a training; nothing is installed here."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from workers.executor.environments.requirements import (
    RUNTIME_NEEDS,
    TESTED_TORCH,
    TORCH_NEEDS,
    Wanted,
    digest_of,
    has_tested_torch,
    is_protected,
    replaced,
    wanted_of,
)

ROOT = Path(__file__).resolve().parents[4]
PYTHON = "3.11.7"
THERE = {"torch": "2.13.0+cpu", "numpy": "2.3.1", "requests": "2.32.0", "nvidia-nccl-cu12": "2.27"}


@pytest.mark.parametrize("lines", [[], ["torch", "numpy>=2"], ["x; python_version < '3'"], ["-e .", "requests"]])
def test_what_the_cluster_has_needs_nothing(lines: list[str]) -> None:
    assert wanted_of(lines, THERE, PYTHON) is None


def test_what_the_cluster_has_limits_the_others() -> None:
    lines = [
        *("--extra-index-url https://example.org", "-e .", "torch", "requests==2.32.0", "numpy[dev]"),
        "timm==1.0 --hash=sha256:ab --hash=sha256:cd",
    ]
    wanted = wanted_of(lines, THERE, PYTHON)
    assert wanted == Wanted(
        packages=("torch", "requests==2.32.0", "numpy[dev]", "timm==1.0"),
        options=("--extra-index-url https://example.org",),
        hashes={"timm": ["sha256:ab", "sha256:cd"]},
        met={"torch": "2.13.0+cpu", "requests": "2.32.0"},
    )


def test_the_version_that_reads_functions_is_never_replaced() -> None:
    """MLflow's client requires any cloudpickle: with a newer one, a rank could not load a function that it was sent."""
    assert is_protected("cloudpickle")


def test_an_environment_is_named_by_what_it_is_made_of() -> None:
    def name(*lines: str, there: dict[str, str] = THERE, python: str = "3.11.7") -> str:
        wanted: Any = wanted_of(lines, there, python)
        return digest_of(wanted, there, python)

    assert name("a", "b") == name("b", "a", there=THERE | {"requests": "3"})
    others = [
        *(name("a"), name("a", "b", there=THERE | {"torch": "2.14"}), name("a", "b", python="3.12.1")),
        *(name("a", "b --hash=sha256:ab"), name("a", "b", "--find-links https://example.org")),
        *(name("a", "b", "requests"), name("a", "b", "requests", there=THERE | {"requests": "3"})),
    ]
    assert len({name("a", "b"), *others}) == 8


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("torch==2.11.0", ["torch"]),
        ("numpy<2", ["numpy"]),
        ("torch @ https://example.org/torch-2.13.0-py3-none-any.whl", ["torch"]),
        ("--python >=3.12", ["Python"]),
        ("--python >=3.11", []),
        ("numpy[dev]>=2", []),
        ("numpy<2; python_version < '3'", []),
        ("requests<2", []),
    ],
)
def test_another_version_of_what_no_layer_replaces_needs_a_whole_environment(line: str, names: list[str]) -> None:
    wanted = wanted_of([line, "timm"], THERE, PYTHON)
    assert replaced([line, "timm"], THERE, PYTHON) == names
    assert wanted is not None
    assert wanted.is_whole == bool(names)


def test_a_whole_environment_is_named_by_what_is_asked_for_alone() -> None:
    def name(*lines: str, there: dict[str, str] = THERE) -> str:
        wanted: Any = wanted_of(lines, there, PYTHON)
        return digest_of(wanted, there, PYTHON)

    assert name("numpy<2") == name("numpy<2", there=THERE | {"requests": "3"})
    assert len({name("numpy<2"), name("numpy<2", "--python >=3.12"), name("numpy<2", "--python <3.12")}) == 3


def test_a_session_runs_with_the_torch_that_was_tested() -> None:
    assert [has_tested_torch(version) for version in ("", "2.9.1", "2.10.0", "2.13.0+cpu", "2.15.0", "2.16.0")] == [
        *(False, False),
        *(True, True, True),
        False,
    ]


def test_the_runtimes_own_file_says_the_same_needs() -> None:
    stated = tomllib.loads((ROOT / "runtime/pyproject.toml").read_text())["project"]["optional-dependencies"]["torch"]
    assert {*stated} == {*RUNTIME_NEEDS, *TORCH_NEEDS, f"torch{TESTED_TORCH}"}
