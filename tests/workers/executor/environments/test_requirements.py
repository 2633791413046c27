"""Tests of reading and checking requirements of trainings; nothing is installed here."""

import pytest

from workers.executor.environments.requirements import (
    RequirementsError,
    checked,
    conflict_with,
    digest_of,
    missing,
    of_script,
)

THERE = {"torch": "2.13.0+cpu", "numpy": "2.3.1", "requests": "2.32.0", "nvidia-nccl-cu12": "2.27"}


def script(content: str) -> str:
    lines = "".join(f"# {line}\n" if line else "#\n" for line in content.splitlines())
    return f'"""Trains."""\n# /// script\n{lines}# ///\nimport timm\n'


def test_lines_are_taken_as_they_are_meant() -> None:
    text = "# packages\ntimm >= 1.0  # models\n\nwandb[media]==0.20 ; python_version > '3.8'\ntimm>=1.0\n"
    assert checked(text) == ["timm>=1.0", 'wandb[media]==0.20; python_version > "3.8"']
    assert checked("x @ https://example.org/x-1-py3-none-any.whl") == ["x @ https://example.org/x-1-py3-none-any.whl"]


@pytest.mark.parametrize(
    "line",
    [
        *("-e .", "--index-url https://example.org", "-r other.txt", "./local", "two words", "x @ file:///etc/passwd"),
        *("x @ http://example.org/x.whl", "x" + "\n".join(f"\na{n}" for n in range(100)), "\0", "timm>>1"),
    ],
)
def test_what_is_no_requirement_is_refused(line: str) -> None:
    with pytest.raises(RequirementsError):
        checked(line)


def test_a_script_states_its_own() -> None:
    stated = of_script(script('requires-python = ">=3.11"\ndependencies = [\n  "timm>=1",\n\n  "tqdm",\n]\n'), "3.11.7")
    assert stated == ["timm>=1", "tqdm"]
    assert of_script("import timm\n", "3.11.7") is None
    assert of_script(script("dependencies = []"), "3.11.7") == []


@pytest.mark.parametrize(
    "content", ['dependencies = "timm"', "dependencies = [1]", "x = ", 'requires-python = ">=3.13"']
)
def test_a_block_that_does_not_fit_is_refused(content: str) -> None:
    with pytest.raises(RequirementsError):
        of_script(script(content), "3.11.7")


@pytest.mark.parametrize(
    ("line", "conflicts"),
    [
        *(("torch", False), ("torch>=2", False), ("torch==2.13.0", False), ("torch==2.0", True), ("requests<2", False)),
        *(("numpy<2", True), ("numpy<2; python_version < '3'", False), ("nvidia-nccl-cu12==1", True), ("timm", False)),
        ("torch @ https://example.org/torch-2.13.0-py3-none-any.whl", True),
    ],
)
def test_torch_is_never_replaced(line: str, conflicts: bool) -> None:
    assert bool(conflict_with([line], THERE)) == conflicts


def test_what_the_cluster_has_is_not_missing() -> None:
    assert missing(
        ["torch", "numpy>=2", "requests<2", "requests[socks]", "timm", "x; python_version < '3'"], THERE
    ) == [*("requests<2", "requests[socks]", "timm")]


def test_an_environment_is_named_by_what_it_is_made_of() -> None:
    name = digest_of(["a", "b"], THERE, "3.11.7")
    assert name == digest_of(["b", "a"], THERE | {"requests": "3"}, "3.11.7")
    others = [
        (["a"], THERE, "3.11.7"),
        (["a", "b"], THERE | {"torch": "2.14"}, "3.11.7"),
        (["a", "b"], THERE, "3.12.1"),
    ]
    assert name not in {digest_of(*each) for each in others}
