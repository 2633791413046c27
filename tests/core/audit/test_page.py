"""Tests of the audit: the page, the API and the CSV file say the same, however much there is."""

import csv
import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from core.audit.entries import audit
from core.models import AuditEntry
from tests.html import html_of

#: All but the id.
COLUMNS = ", ".join(f'"{field.column}"' for field in AuditEntry._meta.fields if not field.primary_key)

pytestmark = pytest.mark.django_db


@pytest.fixture
def carols(carol: User) -> Client:
    client = Client()
    client.force_login(carol)
    return client


def entry(name: str, *, at: datetime | None = None, **values: Any) -> AuditEntry:
    usual = {"actor": "carol", "verb": "changed", "kind": "host", "key": "7", "at": at or timezone.now()}
    return AuditEntry.objects.create(name=name, **{**usual, **values})


def names(client: Client, query: str = "") -> list[str]:
    return [row["name"] for row in client.get(f"/api/v1/audit/{query}").json()["results"]]


def test_says_who_changed_what_from_what_to_what(carol: User, carols: Client) -> None:
    before = {"state": "ONLINE", "max_slots": 4, "members": ["alice", "bob"], "preemption": False, "quota": None}
    after = {"state": "DRAINING", "max_slots": 8, "members": ["bob", "dora"], "preemption": True, "quota": 3}
    audit(carol, "drained", kind="host", key=7, name="gpu<b>-1", before=before, after=after)

    content = html_of(carols.get("/audit/"))

    assert "drained host <b><bdi>gpu&lt;b&gt;-1</bdi></b>" in content
    for old, new in (("ONLINE", "DRAINING"), ("4", "8"), ("alice", "dora"), ("no", "yes"), ("nothing", "3")):
        assert f"<del>{old}</del>" in content
        assert f"<ins>{new}</ins>" in content
    assert "max slots" in content
    assert ">bob<" not in content


def test_a_long_value_is_cut_on_the_page_and_whole_in_the_file(carol: User, carols: Client) -> None:
    audit(carol, "changed", kind="host", key=7, name="h", before={"note": ""}, after={"note": "x" * 5000})

    assert "x" * 300 not in html_of(carols.get("/audit/"))
    assert "x" * 5000 in b"".join(carols.get("/api/v1/audit/export/").streaming_content).decode()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["new", "old", "older"]),
        ("?actor=dora", ["old"]),
        ("?kind=user", ["older"]),
        ("?kind=host&key=8", ["old"]),
        ("?search=LD", ["old", "older"]),
        ("?search=drain", ["old"]),
        ("?within=24h", ["new"]),
        ("?since=2020-01-02", ["new", "old"]),
        ("?until=2020-01-02", ["older"]),
        ("?since=2020-01-01&until=2020-01-01T12:00Z", ["older"]),
    ],
)
def test_filters(carols: Client, query: str, expected: list[str]) -> None:
    entry("older", at=datetime(2020, 1, 1, tzinfo=UTC), kind="user")
    entry("old", at=datetime(2020, 1, 2, tzinfo=UTC), actor="dora", key="8", verb="drained")
    entry("new")

    assert names(carols, query) == expected
    content = html_of(carols.get(f"/audit/{query}"))
    assert [name for name in ("new", "old", "older") if f"<bdi>{name}</bdi>" in content] == expected
    rows = list(
        csv.reader(io.StringIO(b"".join(carols.get(f"/api/v1/audit/export/{query}").streaming_content).decode()))
    )
    assert [row[5] for row in rows[1:]] == expected


@pytest.mark.parametrize("query", ["?within=soon", "?since=tomorrow", "?until=9999-99-99", "?after=x~y"])
def test_a_filter_that_is_none_is_refused_with_its_reason(carols: Client, query: str) -> None:
    entry("new")

    page = carols.get(f"/audit/{query}")
    assert page.status_code == 400
    assert "The filter was not applied" in html_of(page)
    assert carols.get(f"/api/v1/audit/{query}").json()["fields"]


def test_pages_by_key(carols: Client) -> None:
    at = timezone.now()
    for number in range(120):
        entry(f"n{number}", at=at)  # all at one moment: the id tells them apart

    seen, query = [], ""
    while True:
        page = carols.get(f"/api/v1/audit/?page_size=50{query}").json()
        seen += [row["name"] for row in page["results"]]
        if page["next"] is None:
            break
        query = "&after=" + page["next"].rpartition("after=")[2]

    assert seen == [f"n{number}" for number in reversed(range(120))]
    assert "Next page" in html_of(carols.get("/audit/"))


def test_formulas_are_text_in_the_file(carols: Client) -> None:
    entry("=1+1")

    assert "'=1+1" in b"".join(carols.get("/api/v1/audit/export/").streaming_content).decode()


def test_leads_to_what_was_changed(carols: Client) -> None:
    entry("alice", kind="user", key="3")

    assert '<a href="/users/3/"><bdi>alice</bdi></a>' in html_of(carols.get("/audit/"))


def test_an_empty_audit_says_what_leaves_a_line(carols: Client) -> None:
    assert "There are no changes yet" in html_of(carols.get("/audit/"))
    entry("new")
    assert "No change matches this filter" in html_of(carols.get("/audit/?actor=nobody"))


@pytest.mark.parametrize("path", ["/audit/", "/api/v1/audit/", "/api/v1/audit/export/"])
def test_only_cluster_admins_read_it(alice_client: Client, path: str) -> None:
    assert alice_client.get(path).status_code == 403


def test_asks_no_more_of_100_000_entries(carols: Client, django_assert_max_num_queries: Callable[[int], Any]) -> None:
    """The worst: a search that finds nothing reads everything."""
    now = timezone.now()
    AuditEntry.objects.bulk_create(
        AuditEntry(
            at=now - timedelta(minutes=number),
            actor=f"admin-{number % 7}",
            verb="changed",
            kind=("host", "user", "instance group")[number % 3],
            key=str(number % 500),
            name=f"thing-{number % 500}",
            after={"weight": number},
        )
        for number in range(3200)
    )
    for _ in range(5):
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO core_auditentry ({COLUMNS}) SELECT {COLUMNS} FROM core_auditentry")
    assert AuditEntry.objects.count() > 100_000
    for query in ("", "?kind=user&key=100", "?actor=admin-3", "?kind=host", "?search=no-such-thing", "?within=365d"):
        with django_assert_max_num_queries(9):
            assert carols.get(f"/audit/{query}").status_code == 200
