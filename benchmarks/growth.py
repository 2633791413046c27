"""Growth of the database a day, for `benchmarks.control_plane`: sizes of rows in PostgreSQL, times their number.

Each host has 8 GPUs in use all day, and a training of 3 metrics a day whose curves are long.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from benchmarks.results import Result, result
from benchmarks.training_hosts import SLOTS, TrainingHosts

METRICS = 3
_ROWS, _TRAININGS = 3000, 10
#: Rows of a host's use of GPUs a day, once they are older than two days.
_SPANS_A_DAY = 96
#: Bytes of a row's head and of its place in the page.
_ROW_HEAD = 28


def growth(numbers: Sequence[int]) -> list[Result]:
    """Return what stays of a training and of a host's day, and with so many hosts: in bytes, kB and MB."""
    from jobs.control.series import ENDED_ROWS

    site = TrainingHosts(1)
    training = _of_training(site)
    point, spans = _of_point(site.jobs[0]), _of_spans()
    curves = METRICS * ENDED_ROWS * point
    a_day = _SPANS_A_DAY * spans + training + curves
    return [
        result("a training without its curves, in the database", "kB", [training / 1e3]),
        result("a point of a curve, in the database", "B", [point]),
        result(f"{METRICS} long curves, in the database, computed", "kB", [curves / 1e3]),
        result(f"the use of {SLOTS} GPUs over a day, in the database, computed", "kB", [_SPANS_A_DAY * spans / 1e3]),
        *(
            result(f"{number} hosts: growth of the database a day, computed", "MB", [number * a_day / 1e6])
            for number in numbers
        ),
    ]


def _of_training(site: TrainingHosts) -> float:
    """Return the bytes of all rows that a training leaves; their indexes count as much again."""
    jobs, before = site.jobs, 0
    for _ in range(_TRAININGS + 1):
        [job] = jobs
        site.cluster.finish(job)
        site.cluster.turn()
        job.refresh_from_db()
        assert job.state == "SUCCEEDED", job.state
        before = before or _bytes_of_rows()
        jobs = site.start(1)
    return 2 * (_bytes_of_rows() - before) / _TRAININGS


def _bytes_of_rows() -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        total = 0
        for table in connection.introspection.table_names(cursor):
            name = connection.ops.quote_name(table)
            cursor.execute(f"SELECT coalesce(sum(pg_column_size(one.*) + {_ROW_HEAD}), 0) FROM {name} AS one")
            total += int(cursor.fetchone()[0])
    return total


def _of_point(job: Any) -> float:
    from django.utils import timezone

    from jobs.models import MetricPoint

    now = timezone.now()
    return _size_of(
        [
            MetricPoint(job=job, name=f"metric-{number}", step=100 * step, epoch=1, value=1 / (1 + step), at=now)
            for number in range(METRICS)
            for step in range(1, _ROWS + 1)
        ]
    )


def _of_spans() -> float:
    from django.utils import timezone

    from jobs.control.gpu_spans import Span, to_json
    from jobs.gpu_time import MINUTE, to_ms
    from jobs.models import GpuSpans
    from workers.models import Host

    now, host = timezone.now(), Host.objects.get()
    length = 15 * MINUTE
    rows = []
    for number in range(_ROWS):
        start = to_ms(now) - number * length
        spans = [
            to_json(Span(1_000_000 + slot, start, start + length, 61.7 + slot, 7 * 2**30 + slot))
            for slot in range(SLOTS)
        ]
        at = now - timedelta(milliseconds=number * length)
        rows.append(GpuSpans(host=host, at=at, seconds=length // 1000, spans=spans))
    return _size_of(rows)


def _size_of(rows: Sequence[Any]) -> float:
    """Return the bytes of one of these rows with its part of the indexes."""
    from django.db import connection

    model = type(rows[0])
    model.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM FULL {model._meta.db_table}")
    model.objects.bulk_create(rows)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_total_relation_size(%s)", [model._meta.db_table])
        return int(cursor.fetchone()[0]) / len(rows)
