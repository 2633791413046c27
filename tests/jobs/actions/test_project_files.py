"""Requirements of projects: `pyproject.toml` alone, and with a lock that uv has written."""

import subprocess
from pathlib import Path

import pytest
from uv import find_uv_bin

from jobs import actions
from models_registry.models import RegisteredModelVersion
from tests.jobs.conftest import Submit

PROJECT = """[project]
name = "mine"
version = "0.1"
requires-python = ">=3.11"
dependencies = ["tomli-w>=1", "colorama"]
"""


@pytest.fixture
def folder(db: None, code: RegisteredModelVersion) -> Path:
    return Path(code.path)


def lock(folder: Path) -> None:
    subprocess.run([find_uv_bin(), "lock", "--quiet"], cwd=folder, check=True)


def refusal(submit: Submit) -> str:
    with pytest.raises(actions.InvalidSubmission) as refused:
        submit()
    [sentence, *_] = refused.value.fields["requirements"]
    return sentence


def test_a_project_brings_its_dependencies_and_its_own_modules(submit: Submit, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "requirements.txt").write_text("other")
    assert submit().requirements.splitlines() == ["-e .", "colorama", "tomli-w>=1"]


def test_a_project_that_states_no_dependencies_leaves_it_to_other_files(submit: Submit, folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    (folder / "requirements.txt").write_text("other")
    assert submit().requirements == "other"


def test_sources_and_indexes_of_uv_are_followed(submit: Submit, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(
        PROJECT
        + '[[tool.uv.index]]\nname = "ours"\nurl = "https://ours.example/simple"\n'
        + '[tool.uv.sources]\ncolorama = { git = "https://git.example/colorama", tag = "0.4" }\n'
        + 'tomli-w = { index = "ours" }\n'
    )
    assert submit().requirements.splitlines() == [
        *("--extra-index-url https://ours.example/simple", "-e .", "colorama"),
        *("colorama @ git+https://git.example/colorama@0.4", "tomli-w>=1"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PROJECT.replace(">=3.11", "==3.8.*"), "Python 3.11 is the oldest"),
        (PROJECT.replace(">=3.11", "new"), "is not a limit such as"),
        ("[project\n", "is not valid TOML"),
        (f"{PROJECT}[tool.uv.sources]\ncolorama = {{ workspace = true }}\n", "run `uv lock`, and send uv.lock, too"),
    ],
)
def test_a_project_that_cannot_be_met_is_refused(submit: Submit, folder: Path, text: str, words: str) -> None:
    (folder / "pyproject.toml").write_text(text)
    assert words in refusal(submit)


def test_a_lock_decides_on_the_versions(submit: Submit, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(PROJECT + '[dependency-groups]\ndev = ["iniconfig"]\n')
    lock(folder)
    lines = submit().requirements.splitlines()
    assert [line.partition("==")[0] for line in lines if "==" in line] == ["colorama", "tomli-w"]
    assert all("--hash=sha256:" in line for line in lines if "==" in line)
    assert not any("iniconfig" in line for line in lines)


def test_a_lock_of_another_project_is_refused_with_the_command_that_mends_it(submit: Submit, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(PROJECT)
    lock(folder)
    (folder / "pyproject.toml").write_text(PROJECT.replace("colorama", "colorama>=0.4"))
    assert refusal(submit) == (
        "uv.lock does not fit pyproject.toml, which states colorama otherwise: run `uv lock`, and send both."
    )


@pytest.mark.parametrize("text", ["[[package", "version = 99\n"])
def test_a_lock_that_cannot_be_read_is_refused(submit: Submit, folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(PROJECT.replace(', "colorama"', "").replace('"tomli-w>=1"', ""))
    (folder / "uv.lock").write_text(text)
    assert refusal(submit).startswith("uv.lock ")
