from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from core.row_updates import update_rows
from tests.factories import HostFactory
from workers.models import Host

pytestmark = pytest.mark.django_db
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_each_row_gets_values_of_its_own() -> None:
    hosts = [HostFactory() for _ in range(3)]
    for number, host in enumerate(hosts):
        host.clock_offsets, host.ncpus, host.virtual = [float(number)], number, number == 1
        host.last_report_at, host.address = AT + timedelta(seconds=number), f"10.0.0.{number}"
        host.nprocs = None if number == 0 else number
    columns = ["clock_offsets", "ncpus", "virtual", "last_report_at", "address", "nprocs", "clock_read_at"]
    assert update_rows(Host.objects.all(), hosts, columns) == 3
    for host in hosts:
        stored = Host.objects.get(pk=host.pk)
        assert [getattr(stored, name) for name in columns] == [getattr(host, name) for name in columns]


def test_rows_that_are_not_among_the_wanted_ones_stay() -> None:
    online, lost = HostFactory(state=Host.State.ONLINE), HostFactory(state=Host.State.LOST)
    for host in (online, lost):
        host.ncpus = 99
    assert update_rows(Host.objects.filter(state=Host.State.ONLINE), [online, lost], ["ncpus"]) == 1
    assert Host.objects.get(ncpus=99) == online


def test_more_rows_than_a_statement_takes(monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any) -> None:
    monkeypatch.setattr("core.row_updates._ROWS_AT_ONCE", 2)
    hosts = [HostFactory() for _ in range(5)]
    for host in hosts:
        host.ncpus = 7
    with django_assert_num_queries(5):  # with the savepoint
        assert update_rows(Host.objects.all(), hosts, ["ncpus"]) == 5
    assert Host.objects.filter(ncpus=7).count() == 5


def test_nothing_to_write_takes_no_query(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert update_rows(Host.objects.all(), [], ["ncpus"]) == 0
