"""Reports of hosts that have a key: only what such a host has signed itself, for the first time, is stored."""

import itertools
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest
from tidepool.protocol import Envelope, Report, Sync, from_json, is_genuine, seal, to_json

from jobs.control.dispatch import acknowledge, send_sync
from jobs.control.envelopes import Envelopes
from jobs.control.intake import batch_of
from jobs.control.steady_hosts import SteadyHosts
from jobs.management.commands.take_reports import store
from jobs.tasks import ingest_report
from tests.jobs.cluster import FakeHost
from tests.jobs.control.test_dispatch import Mailbox, mailbox
from tests.jobs.control.test_intake import REPORT, message
from workers.actions import enroll_host
from workers.executor.signing import Signer
from workers.host_keys import host_key, new_key, present_key
from workers.models import Host, Intake

__all__ = ["mailbox"]

pytestmark = pytest.mark.django_db


class SigningHost:
    def __init__(self, name: str, boot: int = 1) -> None:
        self.fake = FakeHost(name)
        enroll_host(name, "a test")
        self.key = present_key(name)
        self.signer = Signer(name, self.key, boot)

    def report(self, **changes: Any) -> dict[str, Any]:
        return self.signer.sealed(from_json(Report, self.fake.report(**changes)))


@pytest.fixture
def host(mailbox: Mailbox) -> SigningHost:
    return SigningHost("gpu-host-1")


@pytest.fixture(autouse=True)
def _own_envelopes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process remembers of keys is not for the next test, whose hosts have the same names."""
    monkeypatch.setattr("jobs.tasks._envelopes", Envelopes())


Take = Callable[..., list[str]]


@pytest.fixture
def take() -> Take:
    """Takes messages as one process does, seconds apart; returns why reports were refused."""
    seconds = itertools.count(step=10.0)
    envelopes = Envelopes(clock=lambda: next(seconds))

    def do(*reports: dict[str, Any]) -> list[str]:
        batch = batch_of([message(REPORT, report) for report in reports], envelopes.open)
        assert not batch.dropped
        store(batch, SteadyHosts())
        return batch.forged

    return do


def refused() -> int:
    return sum(Intake.objects.values_list("forged", flat=True))


def test_what_a_host_signs_is_stored(host: SigningHost, take: Take) -> None:
    assert take(host.report()) == []
    row = Host.objects.get(name="gpu-host-1")
    assert (row.state, row.key_boot) == (Host.State.ONLINE, 1)
    assert refused() == 0


def test_the_task_of_former_workers_opens_envelopes_as_well(host: SigningHost) -> None:
    ingest_report(host.report())
    assert Host.objects.get(name="gpu-host-1").state == Host.State.ONLINE
    ingest_report(host.fake.report())
    assert refused() == 1


def forged_reports(host: SigningHost) -> dict[str, dict[str, Any]]:
    genuine, plain = host.report(), from_json(Report, host.fake.report())
    other = SigningHost("gpu-host-2")
    place = {"host": "gpu-host-1", "boot": 1, "number": 99}
    return {
        "without an envelope": to_json(plain),
        "with the key of another host": to_json(seal(other.key, "report", plain, **place)),
        "of another host in the name of this one": other.signer.sealed(plain),
        "with an empty key": to_json(seal("", "report", plain, **place)),
        "signed as a desired state": to_json(seal(host.key, "sync", plain, **place)),
        "with another number": {**genuine, "number": 77},
        "with another start": {**genuine, "boot": 77},
        "with another body": {**genuine, "body": genuine["body"].replace("boot-1", "boot-2")},
        "of a host that is none": to_json(seal("k", "report", plain, host="nowhere", boot=1, number=1)),
    }


def test_nothing_that_is_forged_is_stored(host: SigningHost, take: Take) -> None:
    forged = forged_reports(host)
    before = list(Host.objects.order_by("pk").values())
    for name, report in forged.items():
        assert len(take(report)) == 1, name
    assert list(Host.objects.order_by("pk").values()) == before
    assert refused() == len(forged)


def test_a_report_counts_once(host: SigningHost, take: Take) -> None:
    first, second = host.report(), host.report()
    assert take(second, first) == [], "they may overtake each other"
    assert len(take(first, second)) == 2


def test_a_report_of_an_earlier_start_is_refused_by_every_process(host: SigningHost, take: Take) -> None:
    earlier = host.report()
    host.signer = Signer("gpu-host-1", host.key, boot=2)
    assert take(host.report()) == []
    for envelopes in (Envelopes(), Envelopes()):
        batch = batch_of([message(REPORT, earlier)], envelopes.open)
        assert batch.forged == ["a report of an earlier start of gpu-host-1"]


def test_a_former_key_is_worth_nothing_after_joining_again(host: SigningHost, take: Take) -> None:
    old = host.report()
    assert take(old) == []
    key = new_key("gpu-host-1")
    assert len(take(host.report())) == 1
    host.signer = Signer("gpu-host-1", key, boot=1)
    assert take(host.report()) == [], "starts are counted anew"


def test_a_host_without_a_key_reports_as_before(take: Take, mailbox: Mailbox) -> None:
    enroll_host("gpu-host-3", "a test")
    assert take(FakeHost("gpu-host-3").report()) == []
    assert Host.objects.get(name="gpu-host-3").state == Host.State.ONLINE


def test_an_envelope_that_holds_no_report_is_dropped(host: SigningHost) -> None:
    nonsense = to_json(seal(host.key, "report", Sync("gpu-host-1", 1, 0.0, []), host="gpu-host-1", boot=1, number=1))
    batch = batch_of([message(REPORT, nonsense), message(REPORT, {"proof": 1})], Envelopes().open)
    assert len(batch.dropped) == 2
    assert not batch.reports


def test_a_desired_state_is_signed_for_the_start_that_was_heard(
    host: SigningHost, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Envelope] = []
    monkeypatch.setattr(
        "jobs.control.dispatch._send", lambda task, args, queue, what: sent.append(from_json(Envelope, args[0]))
    )
    send_sync("gpu-host-1")
    take(host.report())
    send_sync("gpu-host-1")
    assert [(each.host, each.boot) for each in (sent[0], sent[-1])] == [("gpu-host-1", 0), ("gpu-host-1", 1)]
    assert all(is_genuine(host.key, "sync", each) for each in sent)
    assert len({each.number for each in sent}) == len(sent)
    assert host.signer.opened(to_json(sent[-1])).host == "gpu-host-1"


def test_an_acknowledgement_is_signed_as_well(host: SigningHost, take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []

    def task_message(task: str, args: list[Any], queue: str) -> bytes:
        sent.append(args[0])
        return b""

    monkeypatch.setattr("jobs.control.dispatch.task_message", task_message)
    monkeypatch.setattr("jobs.control.dispatch.connect", MagicMock())
    take(host.report(applied_revision=1))
    acknowledge([(Host.objects.get(name="gpu-host-1"), {"1.1.metrics": 3})])
    assert [host.signer.opened(values).acknowledged for values in sent] == [{"1.1.metrics": 3}]


def test_keys_differ_by_host_and_number() -> None:
    assert len({host_key(*of) for of in (("a", 1), ("a", 2), ("b", 1), ("a.1", 1), ("a", 11))}) == 5
