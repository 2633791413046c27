"""Tests of the names and versions that an executor records of an environment."""

import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tidepool.env import site_of

from workers.executor.environments import software
from workers.executor.environments.cache import Ready
from workers.executor.environments.software import software_in, why_driver_is_too_old


def add(folder: Path, name: str, number: str, origin: object = None) -> None:
    metadata = folder / f"{name}-{number}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    if origin is not None:
        (metadata / "direct_url.json").write_text(origin if isinstance(origin, str) else json.dumps(origin))


def test_the_clusters_packages_are_recorded() -> None:
    found = software_in(Ready())
    assert found.python == platform.python_version()
    assert found.packages["torch"] == version("torch")
    assert "torch" not in sys.modules or found.cuda == (sys.modules["torch"].version.cuda or "")


def test_an_environments_own_packages_come_first(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    add(site, "Django", "0.1")
    add(site, "own_thing", "1.0", {"url": "https://u:p@host/r.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}})
    add(site, "odd", "1.0", "no json")
    found = software_in(Ready(str(tmp_path)))
    assert (found.packages["django"], found.packages["own-thing"]) == ("0.1", "1.0")
    assert found.packages["torch"] == version("torch")
    assert found.origins["own-thing"] == "git+https://host/r.git@abc"
    assert found.origins["odd"] == "an address that its metadata does not tell"


def test_the_driver_is_read_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "_DRIVER", tmp_path / "version")
    assert software_in(Ready()).driver == ""
    (tmp_path / "version").write_text("580.95.05\n")
    assert software_in(Ready()).driver == "580.95.05"


@pytest.mark.parametrize(
    ("cuda", "driver", "needed"),
    [
        ("13.2", "550.54.15", "580.65.06"),
        ("13.2", "580.65.06", ""),
        ("12.8", "550.54.15", ""),
        ("12.8", "470.82", "525.60.13"),
        ("", "470.82", ""),
        ("13.2", "", ""),
        ("99.1", "550.54.15", ""),
    ],
)
def test_a_driver_that_is_too_old_for_the_torch_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: str, driver: str, needed: str
) -> None:
    monkeypatch.setattr(software, "_DRIVER", tmp_path / "driver")
    if driver:
        (tmp_path / "driver").write_text(f"{driver}\n")
    (torch := site_of(tmp_path) / "torch").mkdir(parents=True)
    (torch / "version.py").write_text(f"cuda = {cuda or None!r}\n")
    why = why_driver_is_too_old(Ready(str(tmp_path), is_whole=True, torch="2.15.0"))
    assert bool(why) == bool(needed)
    for part in filter(None, (needed, needed and cuda, needed and driver)):
        assert part in why
