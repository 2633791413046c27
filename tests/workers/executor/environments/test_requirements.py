"""Tests of what a host has to build for the requirements of a training; nothing is installed here."""

from typing import Any

import pytest

from workers.executor.environments.requirements import Wanted, digest_of, is_protected, wanted_of

THERE = {"torch": "2.13.0+cpu", "numpy": "2.3.1", "requests": "2.32.0", "nvidia-nccl-cu12": "2.27"}


@pytest.mark.parametrize("lines", [[], ["torch", "numpy>=2"], ["x; python_version < '3'"], ["-e .", "requests"]])
def test_what_the_cluster_has_needs_nothing(lines: list[str]) -> None:
    assert wanted_of(lines, THERE) is None


def test_what_the_cluster_has_limits_the_others() -> None:
    lines = [
        *("--extra-index-url https://example.org", "-e .", "torch", "requests==2.32.0", "numpy[dev]"),
        "timm==1.0 --hash=sha256:ab --hash=sha256:cd",
    ]
    wanted = wanted_of(lines, THERE)
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
        wanted: Any = wanted_of(lines, there)
        return digest_of(wanted, there, python)

    assert name("a", "b") == name("b", "a", there=THERE | {"requests": "3"})
    others = [
        *(name("a"), name("a", "b", there=THERE | {"torch": "2.14"}), name("a", "b", python="3.12.1")),
        *(name("a", "b --hash=sha256:ab"), name("a", "b", "--find-links https://example.org")),
        *(name("a", "b", "requests"), name("a", "b", "requests", there=THERE | {"requests": "3"})),
    ]
    assert len({name("a", "b"), *others}) == 8
