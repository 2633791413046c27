"""Environments built before a job gets slots, by real uv from a folder of wheels."""

import os
from pathlib import Path

import pytest
from tidepool.protocol import EnvironmentState, WantedEnvironment

from tests.waiting import wait_until
from tests.workers.executor.environments.test_cache import Host, wheel
from workers.executor.environments.cache import Ready, collect
from workers.executor.environments.disk import size_on_disk
from workers.executor.environments.preparation import Preparation


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def preparation(host: Host) -> Preparation:
    return Preparation(host.environments)


def wanted(host: Host, requirements: str, number: int = 1, **given: bool) -> WantedEnvironment:
    return WantedEnvironment(requirements, number, requirements, str(host.log), **given)


def states(preparation: Preparation) -> list[EnvironmentState]:
    """Return the states once nothing is being built."""
    wait_until(lambda: all(one.state != "building" for one in preparation.states({})))
    return list(preparation.states({}))


def folder(host: Host, state: EnvironmentState) -> Path:
    return host.folder / state.digest


def test_what_is_wanted_is_built_and_told(host: Host, preparation: Preparation) -> None:
    preparation.accept([wanted(host, one) for one in ("tidesmall", "tideold", "torch>=2")])
    assert [one.state for one in preparation.states({})] == ["building"] * 3
    by_key = {one.key: one for one in states(preparation)}
    assert by_key["torch>=2"] == EnvironmentState("torch>=2", 1, "ready", "", "", 0)
    assert by_key["tideold"].state == "failed"
    assert "torch<2" in by_key["tideold"].why
    ready = by_key["tidesmall"]
    assert 0 < (ready.size_bytes or 0) < size_on_disk(folder(host, ready)), "all but the mark of a complete one"
    [told] = [one for one in preparation.states({ready.digest: 5}) if one.key == "tidesmall"]
    assert told.memory_bytes == 5
    job = host.ask("tidesmall")
    assert job == Ready(str(folder(host, ready)), size_bytes=ready.size_bytes), "the job finds it"


def test_an_answered_request_needs_no_text_and_a_failed_one_is_tried_again_by_a_new_request(
    host: Host, preparation: Preparation
) -> None:
    preparation.accept([wanted(host, "tidelate")])
    [failed] = states(preparation)
    wheel(host.wheels, "tidelate", "1.0")
    preparation.accept([WantedEnvironment("tidelate", 1)])
    assert states(preparation) == [failed]
    preparation.accept([wanted(host, "tidelate", 2)])
    [ready] = states(preparation)
    assert (ready.number, ready.state) == (2, "ready")


def test_what_is_not_wanted_any_longer_is_removed_unless_a_job_uses_it(host: Host, preparation: Preparation) -> None:
    preparation.accept([wanted(host, "tidesmall"), wanted(host, "tidehello")])
    hello, small = states(preparation)
    host.ask("tidehello")
    preparation.accept([])
    assert preparation.states({}) == ()
    wait_until(lambda: not folder(host, small).exists())
    assert folder(host, hello).exists()


def test_a_folder_that_is_gone_is_not_called_ready(host: Host, preparation: Preparation) -> None:
    preparation.accept([wanted(host, "tidesmall")])
    [ready] = states(preparation)
    os.rename(folder(host, ready), host.folder / "away")
    assert preparation.states({}) == (), "so that it is asked for again"


def test_a_fresh_one_is_built_again(host: Host, preparation: Preparation) -> None:
    preparation.accept([wanted(host, "tidesmall")])
    [ready] = states(preparation)
    (mark := folder(host, ready) / "mark").touch()
    preparation.accept([wanted(host, "tidesmall", 2, is_fresh=True)])
    [again] = states(preparation)
    assert (again.number, again.digest) == (2, ready.digest)
    assert not mark.exists()
    host.ask("tidesmall")
    (mark := folder(host, ready) / "mark").touch()
    preparation.accept([wanted(host, "tidesmall", 3, is_fresh=True)])
    states(preparation)
    assert mark.exists(), "a job uses it"


def test_above_its_limit_the_cache_goes_and_then_what_was_used_longest_ago(
    host: Host, preparation: Preparation
) -> None:
    names = ("tidehello", "tidesmall", "tidesmall>=0.1")
    preparation.accept([wanted(host, name) for name in names])
    folders = [folder(host, one) for one in states(preparation)]
    now = folders[0].stat().st_mtime
    for number, one in enumerate(folders):
        os.utime(one, (now - 100 + number, now - 100 + number))
    size = size_on_disk(host.folder)
    assert collect(host.folder, set, now, size) == []
    kept = {str(folders[0])}
    assert collect(host.folder, lambda: kept, now, 1) == [one.name for one in folders[1:]]
    assert folders[0].exists()
    assert not [*(host.folder / "cache").glob("archive*/*")], "uv's cache is emptied"


def test_above_its_limit_no_more_goes_than_has_to(host: Host, preparation: Preparation) -> None:
    preparation.accept([wanted(host, name) for name in ("tidehello", "tidesmall", "tidesmall>=0.1")])
    folders = [folder(host, one) for one in states(preparation)]
    now = folders[0].stat().st_mtime
    for number, one in enumerate(folders):
        os.utime(one, (now - 100 + number, now - 100 + number))
        (one / "large").write_bytes(bytes(1024 * 1024))
    assert collect(host.folder, set, now, size_on_disk(host.folder) - 512 * 1024) == [folders[0].name]
