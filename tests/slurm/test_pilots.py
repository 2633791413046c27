"""Pilots in a real Slurm: a training outlives three of them, and a pilot that nobody wants ends."""

import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journey.running_stack import ROOT
from tests.journey.training import Training, register_model
from tests.missing import leave_out
from tests.slurm.cluster import Slurm, running_slurm, why_impossible
from tests.upgrade.parts import Parts, parts_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.timeout(2400)]

EPOCHS, SAMPLES = 30, 1438


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    if reason := why_impossible():
        leave_out(reason)
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, running_slurm(Path(folder), nodes=3) as running:
        yield running


@pytest.fixture
def site() -> Iterator[Parts]:
    with tempfile.TemporaryDirectory(prefix="tidepool-") as folder, parts_of(Path(folder)) as parts:
        parts.start_site(ROOT)
        yield parts


def pilot(slurm: Slurm, site: Parts, *options: str, idle_minutes: float = 10, name: str = "") -> str:
    """Submit a pilot with two virtual GPUs, and return its job's number."""
    token = site.manage(ROOT, "join_token", "--url", site.url).split("--token ")[1].split()[0]
    words = [sys.executable, "-m", "workers.executor.pilot", "--url", site.url, "--token", token]
    words += ["--home", str(site.home), "--virtual-slots", "2", "--idle-minutes", str(idle_minutes)]
    if name:  # a folder for each, as on nodes of their own
        words += ["--name", name, "--folder", tempfile.mkdtemp(dir=slurm.folder)]
    variables = f"TMPDIR={slurm.folder} TIDEPOOL_DRAIN_SECONDS=30 TIDEPOOL_TRAINING_READS={site.signals}"
    script = slurm.folder / "pilot.sh"
    script.write_text(f"#!/bin/sh\ncd {ROOT} && {variables} exec {shlex.join(words)}\n")
    return slurm.submit(script, *options)


def is_over(slurm: Slurm, job: str) -> bool:
    return slurm.state(job) in ("TIMEOUT", "COMPLETED")


def states(site: Parts) -> dict[str, str]:
    with site.api() as api:
        return {host["name"]: host["state"] for host in api.get("hosts/").raise_for_status().json()["results"]}


def test_a_training_outlives_three_pilots(slurm: Slurm, site: Parts) -> None:
    with site.api() as api:
        register_model(site.home, api, "recorder")
        first, second = pilot(slurm, site, "--time=3"), pilot(slurm, site, "--time=5")
        wait_until(lambda: states(site).get(f"slurm-{first}") == "ONLINE", slurm.story)
        wait_until(lambda: states(site).get(f"slurm-{second}") == "ONLINE", slurm.story)
        hurry = site.signals / "hurry"
        options: dict[str, Any] = {"epochs": EPOCHS, "step-seconds": 1.0, "hurry": str(hurry)}
        training = Training(api, site.home, "outlives", max_slots=2, **options)
        training.wait_for_size(2)
        third = pilot(slurm, site, "--time=20")
        wait_until(lambda: states(site).get(f"slurm-{third}") == "ONLINE", slurm.story)
        wait_until(lambda: is_over(slurm, first), slurm.story, seconds=600)
        assert states(site)[f"slurm-{third}"] == "ONLINE", slurm.story()
        wait_until(lambda: is_over(slurm, second), slurm.story, seconds=600)
        hurry.touch()
        training.wait_for_the_end()
        assert training.now["attempt"] == 1
        hosts = {rank["host"] for rank in api.get(f"jobs/{training.id}/ranks/").json()["results"]}
        assert f"slurm-{third}" in hosts
        seen = [(epoch, index) for (epoch, _), read in training.samples_by_step().items() for index in read]
        assert len(seen) == len({*seen}) == EPOCHS * SAMPLES


def test_a_pilot_that_nobody_wants_ends(slurm: Slurm, site: Parts) -> None:
    job = pilot(slurm, site, "--time=30", idle_minutes=0.2)
    wait_until(lambda: f"slurm-{job}" in states(site), slurm.story)
    wait_until(lambda: slurm.state(job) == "COMPLETED", slurm.story, seconds=300)
    assert states(site)[f"slurm-{job}"] == "OFFLINE"
    assert "no training for 0.2 minutes: this host leaves." in (slurm.folder / f"{job}.out").read_text()


def test_a_second_pilot_of_one_name_is_refused_and_the_first_goes_on(slurm: Slurm, site: Parts) -> None:
    first = pilot(slurm, site, "--time=30", name="twin")
    wait_until(lambda: states(site).get("twin") == "ONLINE", slurm.story)
    second = pilot(slurm, site, "--time=30", name="twin")
    wait_until(lambda: slurm.state(second) == "FAILED", slurm.story)
    said = (slurm.folder / f"{second}.out").read_text()
    assert "A host named twin is already reporting: choose another name, or stop its executor first." in said
    assert (states(site)["twin"], slurm.state(first)) == ("ONLINE", "RUNNING")
    slurm.run("scancel", first)
    wait_until(lambda: slurm.state(first) not in ("RUNNING", "COMPLETING"), slurm.story)


def test_a_pilot_without_a_wall_time_is_refused(slurm: Slurm, site: Parts) -> None:
    job = pilot(slurm, site)
    wait_until(lambda: slurm.state(job) == "FAILED", slurm.story)
    said = (slurm.folder / f"{job}.out").read_text()
    assert said == "pilot: this job has no wall time: give sbatch --time, as trainings have to know when it ends.\n"
