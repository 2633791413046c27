"""Tests of packages that an operator adds beside a running site: no process has to be restarted."""

import sys
from pathlib import Path

import pytest

from jobs.actions.requirements import importable_modules
from workers.executor.environments.requirements import installed


@pytest.fixture
def site_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return tmp_path


def add(folder: Path, name: str, version: str) -> None:
    """Install a package with one module, as pip and uv do."""
    (folder / f"{name}.py").write_text(f"version = '{version}'\n")
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (metadata / "RECORD").write_text(f"{name}.py,,\n")


def test_what_is_added_is_known_at_once(site_packages: Path) -> None:
    assert "tp-added" not in installed()
    assert "tp_added" not in importable_modules()
    add(site_packages, "tp_added", "1.0")
    assert installed()["tp-added"] == "1.0"
    assert "tp_added" in importable_modules()


def test_a_package_that_is_replaced_has_its_new_version(site_packages: Path) -> None:
    add(site_packages, "tp_added", "1.0")
    assert installed()["tp-added"] == "1.0"
    (site_packages / "tp_added-1.0.dist-info").rename(site_packages / "tp_added-2.0.dist-info")
    metadata = site_packages / "tp_added-2.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("1.0", "2.0"))
    assert installed()["tp-added"] == "2.0"


def test_nothing_is_read_again_while_nothing_changes(site_packages: Path) -> None:
    assert installed() is installed()
    assert importable_modules() is importable_modules()
