from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from core.audit.entries import audit
from core.models import AuditEntry

pytestmark = pytest.mark.django_db


def record(carol: User, **values: Any) -> AuditEntry | None:
    audit(carol, "changed", kind="host", key=7, name="gpu-host-1", **values)
    return AuditEntry.objects.first()


def test_only_what_differs_is_kept(carol: User) -> None:
    before = {"state": "ONLINE", "ngpus": 4, "note": "old"}
    after = {"state": "DRAINING", "ngpus": 4, "zone": "b"}

    entry = record(carol, before=before, after=after)

    assert entry is not None
    assert (entry.actor, entry.verb, entry.kind, entry.key, entry.name) == (
        "carol",
        "changed",
        "host",
        "7",
        "gpu-host-1",
    )
    assert (entry.before, entry.after) == ({"state": "ONLINE", "note": "old"}, {"state": "DRAINING", "zone": "b"})


def test_what_changes_nothing_is_not_recorded(carol: User) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)

    assert record(carol, before={"at": moment, "n": [1, 2]}, after={"at": moment, "n": (1, 2)}) is None


def test_what_was_made_removed_or_only_done(carol: User) -> None:
    made = record(carol, after={"weight": 1})
    assert made is not None
    assert (made.before, made.after) == ({}, {"weight": 1})
    assert record(carol, before={"weight": 1}).before == {"weight": 1}
    assert record(carol).after == {}
    assert AuditEntry.objects.count() == 3


@pytest.mark.parametrize("field", ["password", "api_token", "digest", "client_secret"])
def test_secrets_are_not_recorded(carol: User, field: str) -> None:
    with pytest.raises(AssertionError, match="secrets"):
        record(carol, after={field: "x"})


def test_it_is_kept_with_the_change_or_not_at_all(carol: User) -> None:
    with transaction.atomic():
        record(carol)
        transaction.set_rollback(True)

    assert not AuditEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_it_is_recorded_in_the_transaction_of_the_change() -> None:
    with pytest.raises(AssertionError, match="in the transaction"):
        audit("scheduler", "changed", kind="host", key=7, name="gpu-host-1")


def test_the_database_refuses_to_rewrite_an_entry(carol: User) -> None:
    record(carol, after={"weight": 1})

    with pytest.raises(IntegrityError, match="not rewritten"), transaction.atomic():
        AuditEntry.objects.update(actor="somebody else")
    assert AuditEntry.objects.get().actor == "carol"
