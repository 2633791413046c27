"""Check that everything that states the version of Tidepool states the same one."""

import re
import subprocess
import sys

import pytest
from django.test import Client
from setuptools.config.pyprojecttoml import read_configuration
from tidepool.version import VERSION

from tests.test_architecture import ROOT
from webapp.wheel import WHEEL


def test_packages_take_the_version_of_the_module() -> None:
    for project in ("pyproject.toml", "runtime/pyproject.toml"):
        assert read_configuration(ROOT / project)["project"]["version"] == VERSION


def test_no_other_module_states_a_version() -> None:
    run = subprocess.run(
        ["git", "grep", "-lE", r'^(__version__|VERSION) = "'], cwd=ROOT, capture_output=True, text=True
    )
    assert run.stdout.split() == ["runtime/tidepool/version.py"]


def test_the_newest_release_in_the_changelog_is_this_version() -> None:
    releases = re.findall(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0] == VERSION


def test_documents_name_the_wheel_of_this_version() -> None:
    named = re.findall(r"tidepool_runtime-[\w.]+-py3-none-any", (ROOT / "docs/user/cli.md").read_text())
    assert set(named) == {WHEEL}


@pytest.mark.parametrize("argument", ["version", "--version"])
def test_manage_py_tells_the_version(argument: str) -> None:
    command = [sys.executable, "manage.py", argument]
    path = {"PYTHONPATH": str(ROOT / "runtime")}
    said = subprocess.run(command, cwd=ROOT, env=path, check=True, capture_output=True, text=True).stdout
    assert said.startswith(f"tidepool {VERSION} (Django ")


def test_the_site_tells_the_version(client: Client, alices: Client) -> None:
    assert client.get("/healthz").json()["version"] == VERSION
    assert f"Tidepool {VERSION}" in alices.get("/account/connect/").content.decode()
    assert alices.get("/api/v1/schema/?format=json").json()["info"]["version"].split()[0] == VERSION
