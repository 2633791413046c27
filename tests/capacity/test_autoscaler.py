"""Tests of the autoscaler with commands that are real processes, and hosts that are not."""

import json
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from capacity.autoscaler import Autoscaler
from capacity.fleets import read_fleets
from capacity.models import FleetChange, FleetState
from capacity.queries import spent_this_month
from core.errors import UserError
from jobs.actions import cancel
from jobs.models import InstanceGroup, Job
from tests.jobs.cluster import Cluster, FakeHost
from tests.jobs.conftest import *  # noqa: F403
from tests.jobs.conftest import Submit
from tests.waiting import wait_until
from workers.actions import resume_host
from workers.models import CapacityPoint, Host

#: Writes what it is asked to a file, and answers.
HOOK = """
import json, sys, time
request = json.load(sys.stdin)
with open({calls!r}, "a") as calls:
    calls.write(json.dumps(request) + "\\n")
{body}
"""
ANSWERS = "print(json.dumps({'count': request['count'], 'message': 'Done.'}))"


class Scene:
    """A cluster with one fleet, whose command is a script of the test."""

    def __init__(self, folder: Path, cluster: Cluster, resource_group: str) -> None:
        self.folder, self.cluster, self.resource_group = folder, cluster, resource_group
        self.now: datetime = timezone.now()
        self.describe()
        self.answer(ANSWERS)
        self.autoscaler = Autoscaler(folder / "fleets.toml", lambda: self.now)

    def describe(self, **terms: Any) -> None:
        values = {
            "name": "spot", "resource_groups": [self.resource_group], "slots": 4, "most": 3, "surplus_seconds": 60,
            "kind": "virtual GPU (CPU)", "command": [sys.executable, str(self.folder / "hook.py")],
        } | terms  # fmt: skip
        lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
        (self.folder / "fleets.toml").write_text("\n".join(["[[fleets]]", *lines]))

    def answer(self, body: str) -> None:
        calls = str(self.folder / "calls")
        (self.folder / "hook.py").write_text(HOOK.format(calls=calls, body=body))

    @property
    def calls(self) -> list[dict[str, Any]]:
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def turn(self, seconds: float = 2) -> None:
        """Look once more, after so many seconds, and wait until no command runs."""
        self.now += timedelta(seconds=seconds)
        self.autoscaler.turn()
        wait_until(self._is_quiet, "the end of the command")

    def _is_quiet(self) -> bool:
        calling = FleetChange.objects.filter(state="CALLING").exists()
        if calling:
            self.autoscaler.turn()
        return not calling

    def come(self, *names: str) -> None:
        for name in names:
            self.cluster.hosts[name] = FakeHost(name, fleet="spot").enroll()
            self.cluster.hosts[name].send()

    @property
    def changes(self) -> list[tuple[str, str, int]]:
        return [(row.action, row.state, row.count) for row in FleetChange.objects.order_by("pk")]

    @property
    def sentence(self) -> str:
        return FleetState.objects.get(name="spot").sentence


@pytest.fixture
def scene(tmp_path: Path, cluster: Cluster, group: InstanceGroup) -> Iterator[Scene]:
    made = Scene(tmp_path, cluster, group.resource_group.name)
    yield made
    made.autoscaler.leave()


@pytest.fixture
def waiting(scene: Scene, submit: Submit) -> Job:
    """A training on all of the cluster, and one that waits."""
    for name in ("first", "second"):
        submit(name=name, max_slots=8, min_slots=8)
    scene.cluster.turn(2)
    return Job.objects.get(name="second")


def test_wanted_hosts_are_asked_for_and_counted_as_they_come(scene: Scene, waiting: Job) -> None:
    scene.turn()
    [call] = scene.calls
    assert (call["action"], call["count"], call["total"], call["fleet"]) == ("start", 2, 2, "spot")
    assert (call["resource_groups"], call["slots"]) == ([scene.resource_group], 4)
    assert call["why"] == "2 hosts more: 1 waiting training would take 8 GPUs now."
    scene.turn()
    assert scene.changes == [("start", "COMING", 2)]
    scene.come("new-1")
    scene.turn()
    assert scene.changes == [("start", "COMING", 2)]
    scene.come("new-2")
    scene.turn()
    scene.cluster.turn(2)
    scene.turn()
    assert (scene.changes, len(scene.calls)) == ([("start", "DONE", 2)], 1)
    waiting.refresh_from_db()
    assert waiting.state == "STARTING"


def test_nothing_is_asked_for_without_a_waiting_training(scene: Scene) -> None:
    scene.turn()
    assert (scene.calls, scene.sentence) == ([], "0 hosts: no more are wanted.")


def test_a_spare_host_drains_before_its_command_is_called(scene: Scene, submit: Submit) -> None:
    scene.come("new-1")
    job = submit(max_slots=12)
    scene.cluster.turn(2)
    scene.cluster.train(job)
    scene.turn()
    assert "can be missed: the 4 GPUs that are used move live" in scene.sentence
    scene.turn(60)
    assert (scene.changes, Host.objects.get(name="new-1").state) == ([("stop", "DRAINING", 1)], "DRAINING")
    assert scene.calls == []
    scene.cluster.turn()
    scene.cluster.train(job, 2)
    scene.cluster.settle()
    scene.turn()
    [call] = scene.calls
    assert (call["action"], call["hosts"]) == ("stop", ["new-1"])
    assert scene.changes == [("stop", "DONE", 1)]
    assert Host.objects.get(name="new-1").removed_at is not None
    job.refresh_from_db()
    assert (job.run.attempt, job.state) == (1, "RUNNING")


def test_a_host_that_drains_is_kept_if_it_is_wanted_again(scene: Scene, submit: Submit) -> None:
    scene.come("new-1")
    job = submit(name="runs", max_slots=12, min_slots=8)
    scene.cluster.turn(2)
    scene.cluster.train(job)
    scene.turn()
    scene.turn(60)
    submit(name="comes", max_slots=4, min_slots=4)
    scene.turn()
    assert scene.changes == [("stop", "CANCELLED", 1)]
    assert FleetChange.objects.get().note == "new-1 stays: 1 waiting training would take 4 GPUs now."
    assert (Host.objects.get(name="new-1").state, scene.calls) == ("ONLINE", [])


def test_an_administrator_can_keep_a_draining_host(scene: Scene, submit: Submit) -> None:
    scene.come("new-1")
    job = submit(max_slots=12)
    scene.cluster.turn(2)
    scene.cluster.train(job)
    scene.turn()
    scene.turn(60)
    resume_host("new-1", "carol")
    scene.turn()
    assert scene.changes == [("stop", "CANCELLED", 1)]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("sys.exit('no such region')", "ended with code 1: no such region."),
        ("print('started!')", "answered 'started!' instead of a JSON object"),
        ("print(json.dumps({'count': 'two'}))", "instead of a JSON object"),
        ("print(json.dumps({'count': -1}))", "answered with a count of -1."),
        ("print(json.dumps({'count': 0, 'message': 'No capacity.'}))", "The command starts no host. No capacity."),
        ("import os; os.kill(os.getpid(), 9)", "ended by signal 9."),
        ("print('x' * 2_000_000, flush=True); time.sleep(600)", "printed more than a megabyte, and was ended."),
    ],
)
def test_a_command_that_fails_is_told_and_tried_later(scene: Scene, waiting: Job, body: str, words: str) -> None:
    scene.answer(body)
    scene.turn()
    scene.turn()
    assert words in FleetChange.objects.get().note
    assert words in scene.sentence
    assert len(scene.calls) == 1
    scene.answer(ANSWERS)
    scene.turn(3600)
    assert scene.changes[1:] == [("start", "COMING", 2)]


def test_a_command_that_hangs_is_ended_with_what_it_started(scene: Scene, waiting: Job) -> None:
    scene.describe(timeout_seconds=1)
    scene.answer("import subprocess; subprocess.run(['sleep', '600'])")
    scene.turn()
    assert "took longer than 1 s, and was ended." in FleetChange.objects.get().note


def test_a_program_that_is_not_there_is_told(scene: Scene, waiting: Job) -> None:
    scene.describe(command=["/no/such/program"])
    scene.turn()
    assert FleetChange.objects.get().note == "/no/such/program cannot be run (No such file or directory)."


def test_hosts_that_never_come_are_told_and_asked_for_again(scene: Scene, waiting: Job) -> None:
    scene.turn()
    scene.turn(599)
    assert scene.changes == [("start", "COMING", 2)]
    scene.turn(10)
    assert scene.changes == [("start", "FAILED", 2)]
    assert FleetChange.objects.get().note.startswith("2 hosts have not reported within 600 s of the command's call.")
    scene.turn(3600)
    assert len(scene.calls) == 2


def test_hosts_beyond_the_most_leave_again(scene: Scene, waiting: Job) -> None:
    scene.answer("print(json.dumps({'count': 5}))")
    scene.turn()
    scene.turn()
    assert "It says that it starts 5 hosts, and was asked for 2." in FleetChange.objects.get().note
    scene.come(*(f"new-{number}" for number in range(1, 6)))
    scene.turn(120)
    scene.turn()
    stopped = FleetChange.objects.filter(action="stop")
    assert stopped.count() == 2
    assert "It has 5 hosts, and it has 3 hosts at most." in stopped[0].why


def test_a_training_may_ask_for_hosts_that_can_come(scene: Scene, submit: Submit, settings: Any) -> None:
    with pytest.raises(UserError, match="8 GPUs"):
        submit(max_slots=20, min_slots=20)
    settings.TIDEPOOL_FLEETS_FILE = scene.folder / "fleets.toml"
    submit(max_slots=20, min_slots=20)
    scene.turn()
    assert scene.calls[0]["count"] == 3


def test_a_queue_that_comes_and_goes_calls_the_command_once_in_the_hysteresis(scene: Scene, submit: Submit) -> None:
    scene.describe(hold_seconds=120, surplus_seconds=0)
    submit(name="runs", max_slots=8, min_slots=8)
    scene.cluster.turn(2)
    called: list[float] = []
    flapping: Job | None = None
    for second in range(0, 300, 20):
        if flapping is None:
            flapping = submit(name=f"comes-{second}", max_slots=4, min_slots=4)
        else:
            cancel(flapping.pk, "alice")
            flapping = None
        known = len(scene.calls)
        scene.turn(20)
        called += [second] * (len(scene.calls) - known)
        if scene.changes and scene.changes[-1][:2] == ("start", "COMING"):
            scene.come(f"new-{second}")
        scene.cluster.settle()
    assert len(called) >= 2
    assert min(later - earlier for earlier, later in pairwise(called)) >= 120


def test_another_autoscaler_goes_on_and_asks_for_nothing_twice(scene: Scene, waiting: Job) -> None:
    scene.answer("time.sleep(600)")
    scene.now += timedelta(seconds=2)
    scene.autoscaler.turn()
    wait_until(lambda: scene.calls, "the command")
    scene.autoscaler.leave()
    scene.autoscaler = Autoscaler(scene.folder / "fleets.toml", lambda: scene.now)
    scene.turn()
    scene.turn()
    assert scene.changes == [("start", "COMING", 2)]
    assert len(scene.calls) == 1


def test_a_file_with_a_mistake_leaves_the_fleets_as_they_were(scene: Scene) -> None:
    scene.turn()
    (scene.folder / "fleets.toml").write_text("[[fleets")
    scene.turn()
    assert "is not TOML" in scene.sentence


def test_a_host_that_is_gone_without_notice_leaves_the_lists(scene: Scene) -> None:
    scene.come("new-1")
    Host.objects.filter(name="new-1").update(state="LOST", last_report_at=scene.now - timedelta(minutes=11))
    scene.turn()
    host = Host.objects.get(name="new-1")
    assert (host.state, host.removed_at is not None) == ("OFFLINE", True)


def test_the_price_of_a_month_counts_hours_in_service(scene: Scene) -> None:
    scene.come("new-1", "new-2")
    scene.describe(price=2.0)
    [fleet] = read_fleets(scene.folder / "fleets.toml")
    start = datetime(2026, 3, 1, tzinfo=timezone.get_fixed_timezone(0))
    CapacityPoint.objects.all().delete()
    one, two = Host.objects.filter(fleet="spot").order_by("name")
    for host, at, slots in (
        (one, start - timedelta(hours=5), 4), (one, start + timedelta(hours=3), 0),
        (two, start + timedelta(hours=1), 4),
    ):  # fmt: skip
        CapacityPoint.objects.create(host=host, at=at, slots=slots)
    assert spent_this_month(fleet, start + timedelta(hours=4)) == pytest.approx(2.0 * (3 + 3))
