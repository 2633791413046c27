"""Tests of the shapes of projects: each is read, or refused with a sentence that says what to do.

The projects are small ones of our own, in the shapes of public ones.
"""

import subprocess
from pathlib import Path

import pytest
from uv import find_uv_bin

from jobs.actions.requirement_lines import RequirementsError
from jobs.actions.requirements import requirements_in

SCRIPT = "print('training')\n"
SETUP = "from setuptools import setup, find_packages\n"
PROJECT = '[project]\nname = "mine"\nversion = "1"\n'
POETRY = """[tool.poetry]
name = "mine"
[tool.poetry.dependencies]
python = "^3.11"
colorama = "^0.4.1"
tomli-w = { version = "~1.0", extras = ["all"] }
own = { path = "./own" }
forked = { git = "https://git.example/forked", tag = "v1" }
left-out = { version = "*", optional = true }
[tool.poetry.group.dev.dependencies]
pytest = "*"
"""
PIPFILE = """[[source]]
url = "https://pypi.org/simple"
[packages]
colorama = "*"
tomli-w = ">=1,<2"
[dev-packages]
pytest = "*"
[requires]
python_version = "3.12"
"""
PIPFILE_LOCK = """{"_meta": {"requires": {"python_version": "3.12"}},
"default": {"colorama": {"hashes": ["sha256:00"], "version": "==0.4.6", "markers": "python_version >= '3'"}},
"develop": {"pytest": {"version": "==8.0"}}}"""
CONDA = """name: mine
channels: [conda-forge, defaults]
dependencies:
  - python=3.12
  - pip
  - pip: [colorama==0.4.6]
prefix: /home/me/miniconda3/envs/mine
"""
NO_LINES: list[str] = []

#: Shape -> files, and the requirements.
READ: dict[str, tuple[dict[str, str], list[str]]] = {
    "a script alone": ({}, NO_LINES),
    "inline metadata": (
        {"train.py": '# /// script\n# dependencies = ["colorama"]\n# ///\n', "requirements.txt": "other"},
        ["colorama"],
    ),
    "requirements.txt with a base": (
        {"requirements.txt": "-r requirements/base.txt\ncolorama", "requirements/base.txt": "tomli-w # base"},
        ["colorama", "tomli-w"],
    ),
    "pip-tools, compiled": (
        {
            "requirements.in": "colorama",
            "requirements.txt": f"colorama==0.4.6 \\\n    --hash=sha256:{'0' * 64}\n    # via -r requirements.in\n",
        },
        [f"colorama==0.4.6 --hash=sha256:{'0' * 64}"],
    ),
    "pip-tools, not compiled": ({"requirements.in": "colorama>=0.4"}, ["colorama>=0.4"]),
    "src layout with setuptools": (
        {"pyproject.toml": f'{PROJECT}dependencies = ["colorama"]\n', "src/mine/__init__.py": ""},
        ["-e .", "colorama"],
    ),
    "hatch with environments of its own": (
        {
            "pyproject.toml": f'[build-system]\nrequires = ["hatchling"]\n{PROJECT}dependencies = ["colorama"]\n'
            '[tool.hatch.envs.test]\ndependencies = ["pytest"]\n'
        },
        ["-e .", "colorama"],
    ),
    "groups and extras beside dependencies": (
        {
            "pyproject.toml": f'{PROJECT}dependencies = ["colorama"]\n[project.optional-dependencies]\n'
            'fast = ["tomli-w"]\n'
            '[dependency-groups]\ndev = ["pytest"]\n'
        },
        ["-e .", "colorama"],
    ),
    "pyproject.toml of tools alone": (
        {"pyproject.toml": "[tool.ruff]\nline-length = 100\n", "requirements.txt": "colorama"},
        ["colorama"],
    ),
    "Poetry": (
        {"pyproject.toml": POETRY, "own/pyproject.toml": PROJECT},
        [
            *("-e .", "-e own", "colorama<0.5,>=0.4.1", "forked @ git+https://git.example/forked@v1"),
            "tomli-w[all]<1.1,>=1.0",
        ],
    ),
    "Poetry with an exported file": (
        {"pyproject.toml": POETRY, "poetry.lock": "# generated", "requirements.txt": "colorama==0.4.6"},
        ["colorama==0.4.6"],
    ),
    "Poetry 2 with a table of the standard": (
        {"pyproject.toml": f'{PROJECT}dependencies = ["colorama (>=0.4,<0.5)"]\n[tool.poetry]\npackages = []\n'},
        ["-e .", "colorama<0.5,>=0.4"],
    ),
    "Pipfile": ({"Pipfile": PIPFILE}, ["--python ==3.12.*", "colorama", "tomli-w<2,>=1"]),
    "Pipfile with its lock": (
        {"Pipfile": PIPFILE, "Pipfile.lock": PIPFILE_LOCK},
        ["--python ==3.12.*", 'colorama==0.4.6; python_version >= "3" --hash=sha256:00'],
    ),
    "setup.cfg alone": (
        {"setup.py": f"{SETUP}setup()\n", "setup.cfg": "[options]\ninstall_requires =\n    colorama\n    tomli-w>=1\n"},
        ["-e .", "colorama", "tomli-w>=1"],
    ),
    "setup.py alone": (
        {"setup.py": f'{SETUP}setup(name="mine", packages=find_packages(), install_requires=["colorama"])\n'},
        ["-e .", "colorama"],
    ),
    "setup.py that reads requirements.txt": (
        {
            "setup.py": f'{SETUP}setup(install_requires=open("requirements.txt").read().split())\n',
            "requirements.txt": "colorama",
        },
        ["colorama"],
    ),
    "dependencies that setuptools reads from a file": (
        {
            "pyproject.toml": f'{PROJECT}dynamic = ["dependencies"]\n'
            '[tool.setuptools.dynamic]\ndependencies = { file = ["deps/run.txt"] }\n',
            "deps/run.txt": "colorama\n",
        },
        ["colorama"],
    ),
    "conda's environment with pip's part": ({"environment.yml": CONDA}, ["--python ==3.12.*", "colorama==0.4.6"]),
    "pyenv's version beside requirements": (
        {".python-version": "3.12.4\n", "requirements.txt": "colorama"},
        ["--python ==3.12.*", "colorama"],
    ),
}

#: Shape -> files, and words of the refusal: the cause, and what to do.
REFUSED: dict[str, tuple[dict[str, str], tuple[str, str]]] = {
    "Poetry with its lock alone": (
        {"pyproject.toml": POETRY, "poetry.lock": "# generated"},
        ("poetry.lock is read by Poetry only", "poetry export -o requirements.txt"),
    ),
    "dependencies that a build works out": (
        {"pyproject.toml": f'{PROJECT}dynamic = ["dependencies"]\n[tool.hatch.metadata.hooks.vcs]\n'},
        ("(dynamic)", "name them in dependencies"),
    ),
    "dependencies from a file that is not sent": (
        {
            "pyproject.toml": f'{PROJECT}dynamic = ["dependencies"]\n'
            '[tool.setuptools.dynamic]\ndependencies = { file = "deps.txt" }\n'
        },
        ("reads its dependencies from deps.txt", "send it, too"),
    ),
    "setup.py that works its requirements out": (
        {"setup.py": f"{SETUP}setup(install_requires=[*base(), *more()])\n"},
        ("setup.py works its install_requires out", "write them as a list of texts"),
    ),
    "a member of a workspace without the lock": (
        {"pyproject.toml": f'{PROJECT}dependencies = ["lib"]\n[tool.uv.sources]\nlib = {{ workspace = true }}\n'},
        ("can be read from a lock only", "run `uv lock`"),
    ),
    "Pipfile.lock that is not JSON": ({"Pipfile.lock": "<<<<<<< ours"}, ("is not valid JSON", "run `pipenv lock`")),
}


def project(folder: Path, files: dict[str, str]) -> Path:
    for name, text in {"train.py": SCRIPT, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("shape", READ)
def test_a_project_is_read(tmp_path: Path, shape: str) -> None:
    files, lines = READ[shape]
    found = requirements_in(project(tmp_path, files), "train.py")
    assert (found.usable, found.unusable) == (lines, [])


@pytest.mark.parametrize("shape", REFUSED)
def test_a_project_is_refused_with_what_to_do(tmp_path: Path, shape: str) -> None:
    files, words = REFUSED[shape]
    with pytest.raises(RequirementsError) as refused:
        requirements_in(project(tmp_path, files), "train.py")
    assert [word for word in words if word not in str(refused.value)] == []


def test_lines_of_conda_that_only_conda_has_are_named(tmp_path: Path) -> None:
    files = {"environment.yml": "dependencies:\n  - python=3.12.4=h5148396_1\n  - libgcc-ng=13.2.0=h1234\n"}
    [unusable] = requirements_in(project(tmp_path, files), "train.py").unusable
    assert "libgcc-ng is a package of conda" in unusable.why


def test_a_member_of_a_workspace_has_the_lock_at_its_top(tmp_path: Path) -> None:
    """Packages of the workspace itself come from the training's folder, and need no index."""
    member = '[project]\nname = "{}"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = [{}]\n{}'
    source = "[tool.uv.sources]\nlib = { workspace = true }\n"
    files = {
        "pyproject.toml": '[tool.uv.workspace]\nmembers = ["packages/*"]\n',
        "packages/app/pyproject.toml": member.format("app", '"lib"', source),
        "packages/app/train.py": SCRIPT,
        "packages/lib/pyproject.toml": member.format("lib", "", ""),
    }
    project(tmp_path, files)
    subprocess.run([find_uv_bin(), "lock", "--quiet", "--offline"], cwd=tmp_path, check=True)
    found = requirements_in(tmp_path, "packages/app/train.py")
    assert found.unusable == []
    assert found.usable == ["-e packages/lib"]
