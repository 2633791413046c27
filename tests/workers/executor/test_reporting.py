"""Check that what a report carried and could not be delivered is in the next one."""

import os
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from tidepool.journal import Journal
from tidepool.protocol import JournalEntry, RankExited, RankStarted, RankStatus, Report

from tests.runtime.process_tree import launch_spec
from tests.workers.executor.embedded import desired_job
from workers.executor.config import ExecutorConfig
from workers.executor.journals import Journals
from workers.executor.probe import make_probe
from workers.executor.reporting import Delivery, Reporter
from workers.executor.supervisor import Observation


class Broker:
    """Fails at first, in one of the two ways; then takes what comes."""

    def __init__(self, first: Delivery | OSError) -> None:
        self._first: Delivery | OSError | None = first
        self.received: list[int] = []
        self.has_received = threading.Event()

    def send(self, report: Report, most_waiting: int) -> Delivery:
        outcome, self._first = self._first, None
        if isinstance(outcome, OSError):
            raise outcome
        if outcome is not None:
            return outcome
        self.received += [entry.number for entry in report.entries]
        if report.entries:
            self.has_received.set()
        return Delivery(sent=True, waiting=0)


@pytest.mark.parametrize("first", [OSError("no broker"), Delivery(sent=False, waiting=200)])
def test_a_report_that_could_not_be_sent_loses_nothing(tmp_path: Path, first: Delivery | OSError) -> None:
    # The clock stands still: a wait for an answer would never end.
    journals = Journals("host-a", tmp_path / "journals.json", lambda: 0.0)
    desired = desired_job(launch_spec(tmp_path, ""), [0])
    journals.follow(desired)
    with closing(Journal(Path(desired.launch.folder) / "journal/shim.host-a.jsonl")) as journal:
        journal.append(RankStarted("host-a.0.1", 0, 1000, 1.0, at=1.0))
        journal.append(RankExited("host-a.0.1", 0, 1000, code=0, at=2.0))
    config = ExecutorConfig(tmp_path, "host-a", "", virtual_slots=1, address="127.0.0.1", lifeline_fd=None)
    broker = Broker(first)
    reporter = Reporter(config, make_probe(config), journals, observe=Observation, send=broker.send, clock=time.time)
    reporter.start()
    assert broker.has_received.wait(30)
    reporter.leave()
    assert broker.received == [1, 2]


@pytest.mark.parametrize(("has_ranks", "sent"), [(True, [0, 1, 2, 3, 4]), (False, [0, 2, 4])])
def test_a_host_without_ranks_reports_every_other_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_ranks: bool, sent: list[int]
) -> None:
    config = ExecutorConfig(tmp_path, "host-a", "", virtual_slots=1, address="127.0.0.1", lifeline_fd=None)
    rank = RankStatus(
        job=1, attempt=1, member_id="host-a.0.1", slot=0, pid=os.getpid(), state="RUNNING", started_at=1.0
    )
    observation = Observation(ranks=[rank] if has_ranks else [])
    at, seconds = list[int](), [0]
    monkeypatch.setattr(time, "monotonic", lambda: 100.0 + seconds[0])

    def send(report: Report, most_waiting: int) -> Delivery:
        at.append(seconds[0])
        return Delivery(sent=True, waiting=0)

    journals = Journals("host-a", tmp_path / "journals.json")
    reporter = Reporter(config, make_probe(config), journals, observe=lambda: observation, send=send, clock=time.time)
    for seconds[0] in range(5):
        reporter.turn()
    assert at == sent


class Steps:
    """Journals that always have a further step to send."""

    def has_unsent(self) -> bool:
        return True

    def has_urgent(self) -> bool:
        return False

    def take(self, limit: int) -> list[JournalEntry]:
        return []

    def put_back(self, entries: list[JournalEntry]) -> None:
        pass


@pytest.mark.parametrize(
    ("hosts", "waiting", "pauses"),
    [
        (0, 0, 0.4),  # not told yet
        (2, 3, 0.5),
        (2, 8, 3.0),
        (30, 3, 0.5),
        (60, 7, 1.0),
        (1000, 125, 1.0),
        (1000, 250, 1.0),
        (1000, 375, 2.0),
        (1000, 5000, 3.0),
    ],
)
def test_steps_come_less_often_the_more_hosts_and_reports_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: int, waiting: int, pauses: float
) -> None:
    config = ExecutorConfig(tmp_path, "host-a", "", virtual_slots=1, address="127.0.0.1", lifeline_fd=None)
    rank = RankStatus(
        job=1, attempt=1, member_id="host-a.0.1", slot=0, pid=os.getpid(), state="RUNNING", started_at=1.0
    )
    observation, seconds, at = Observation(ranks=[rank], hosts=hosts), [0.0], list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: 100.0 + seconds[0])

    def send(report: Report, most_waiting: int) -> Delivery:
        at.append(seconds[0])
        return Delivery(sent=True, waiting=waiting)

    probe, steps = make_probe(config), cast(Journals, Steps())
    reporter = Reporter(config, probe, steps, observe=lambda: observation, send=send, clock=time.time)
    for tick in range(100):
        seconds[0] = tick / 20
        reporter.turn()
    assert at[:2] == pytest.approx([0.0, pauses], abs=0.06)


def test_a_host_that_finds_the_queue_full_has_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ExecutorConfig(tmp_path, "host-a", "", virtual_slots=1, address="127.0.0.1", lifeline_fd=None)
    seconds, limits = [0.0], list[int]()
    monkeypatch.setattr(time, "monotonic", lambda: 100.0 + seconds[0])

    def send(report: Report, most_waiting: int) -> Delivery:
        limits.append(most_waiting)
        return Delivery(sent=most_waiting > 500, waiting=500)

    probe, steps = make_probe(config), cast(Journals, Steps())
    reporter = Reporter(config, probe, steps, observe=Observation, send=send, clock=time.time)
    for seconds[0] in (0.0, 4.0, 8.0, 12.0, 3600.0):
        reporter.turn()
    assert limits == [200, 360, 520, 360, 1000]
