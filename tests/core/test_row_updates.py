from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from core.row_updates import update_rows, upsert_rows
from jobs.models import MetricPoint
from tests.factories import HostFactory, JobFactory
from workers.models import Host

pytestmark = pytest.mark.django_db
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
COLUMNS = (["job", "name", "step"], ["value", "is_even"])


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


def test_rows_are_inserted_or_written_over() -> None:
    check_upsert()


@pytest.mark.services
def test_rows_are_inserted_or_written_over_by_postgresql() -> None:
    check_upsert()


def check_upsert() -> None:
    job = JobFactory()
    point = {"job": job, "name": "loss", "epoch": 1, "at": AT}
    upsert_rows(
        MetricPoint, [MetricPoint(**point, step=1, value=0.5), MetricPoint(**point, step=2, value=None)], *COLUMNS
    )
    upsert_rows(
        MetricPoint,
        [MetricPoint(**point, step=2, value=0.25, is_even=False), MetricPoint(**point, step=3, value=0.1)],
        *COLUMNS,
    )
    upsert_rows(MetricPoint, [], *COLUMNS)
    rows = MetricPoint.objects.order_by("step").values_list("step", "value", "is_even", "epoch", "at")
    assert [*rows] == [(1, 0.5, True, 1, AT), (2, 0.25, False, 1, AT), (3, 0.1, True, 1, AT)]
