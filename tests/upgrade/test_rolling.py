"""A site and its hosts are upgraded from the former release one after the other, under a training that is resized."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journey.conftest import fresh_home
from tests.journey.training import Training, register_model
from tests.upgrade.parts import ROOT, SITE, Parts, parts_of, tree_of_former
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.long, pytest.mark.timeout(1800)]

HOSTS = ("gpu1", "gpu2", "gpu3")
EPOCHS, SAMPLES = 60, 1438


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree_of_former(tmp_path_factory.mktemp("former"))


@pytest.fixture
def parts() -> Iterator[Parts]:
    with fresh_home() as home, parts_of(home) as started:
        yield started


@pytest.mark.parametrize("site_first", [True, False], ids=["site first", "hosts first"])
def test_an_upgrade_of_one_part_after_the_other_loses_no_step(parts: Parts, former: Path, site_first: bool) -> None:
    parts.start_site(former)
    for name in HOSTS:
        parts.manage(former, "enroll_host", name)
        parts.start_host(name, former)
    with parts.api() as api:
        wait_until(lambda: online(parts) == {*HOSTS}, parts.story)
        register_model(parts.home, api, "recorder")
        hurry = parts.signals / "hurry"
        options: dict[str, Any] = {"epochs": EPOCHS, "step-seconds": 0.6, "hurry": str(hurry)}
        training = Training(api, parts.home, "rolling", max_slots=6, **options)
        training.wait_for_size(6)
        makes_steps(training, parts)
        site, *hosts = ["site", *HOSTS] if site_first else [*HOSTS, "site"]
        for part in (site, *hosts):
            replaced(parts, part)
            wait_until(lambda: online(parts) == {*HOSTS}, parts.story)
            training.change(max_slots=3)  # whatever the parts are, they resize it together
            training.wait_for_size(3)
            training.change(max_slots=6)
            training.wait_for_size(6)
            makes_steps(training, parts)
        hurry.touch()
        training.wait_for_the_end()
        assert training.now["attempt"] == 1
        steps = [line["step"] for line in training.lines("metrics.jsonl")]
        assert sorted({*steps}) == [*range(1, max(steps) + 1)]
        seen = [(epoch, index) for (epoch, step), read in training.samples_by_step().items() for index in read]
        assert len(seen) == len({*seen}) == EPOCHS * SAMPLES


def replaced(parts: Parts, part: str) -> None:
    """Replace the part by the same one of this release."""
    if part == "site":
        parts.stop(*SITE)
        parts.start_site(ROOT)
    else:
        parts.stop(part)
        parts.start_host(part, ROOT)


def online(parts: Parts) -> set[str]:
    with parts.api() as api:
        hosts = api.get("hosts/").raise_for_status().json()["results"]
    return {host["name"] for host in hosts if host["state"] == "ONLINE"}


def makes_steps(training: Training, parts: Parts) -> None:
    made = training.steps
    wait_until(lambda: training.steps > made + 10, parts.story)
