"""The list of jobs with 100,000 of them: CPU that a page costs the server, first and deep, by filter and order.

    python -m benchmarks.job_list [--json FILE] [--jobs 100000]

Each page is the whole answer: middleware, queries, 50 rows of HTML. On PostgreSQL (`TIDEPOOL_DATABASE_URL`) the CPU of
the database's own process is counted too. The competitor is the usual page: OFFSET, LIMIT and COUNT(*) over the same
filter and order, with the same rows drawn by the same template, in the same run. Uses a database of its own, which it
makes and drops.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import django

from benchmarks.results import Result, arguments, result, show

REPEATS = 9
PAGE = 50
#: Name -> what is asked for, and how deep into the list the page lies (0 to 1).
PAGES = {
    "first page": ("", 0.0),
    "page in the middle": ("", 0.5),
    "last page": ("", 0.999),
    "failed, deep": ("state=FAILED", 0.9),
    "one owner by priority, deep": ("owner=user-000&sort=priority", 0.9),
    "one model by name, deep": ("model=network-00&sort=name", 0.9),
    "a name that few have": ("search=sweep-deep-17", 0.0),
    "a name that nobody has": ("search=nothing+is+called+so", 0.0),
}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--jobs", type=int, default=100_000)
    options = parser.parse_args()
    show(with_database(lambda: measure(options.jobs)), options.json)


def with_database(work: Callable[[], list[Result]]) -> list[Result]:
    """Over a database of its own."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    from django.test.utils import setup_databases, teardown_databases

    databases = setup_databases(verbosity=0, interactive=False)
    try:
        return work()
    finally:
        teardown_databases(databases, verbosity=0)


def analysed() -> None:
    """As a database is that is looked after."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "PRAGMA wal_checkpoint(TRUNCATE)")


def measure(jobs: int) -> list[Result]:
    from django.test import Client

    from tests.factories import UserFactory
    from tests.many_jobs import make_many_jobs

    make_many_jobs(jobs)
    analysed()
    client = Client(headers={"host": "127.0.0.1"})
    user = UserFactory(is_staff=True)
    client.force_login(user)
    results = []
    for name, (query, depth) in PAGES.items():
        after = key_at(user, query, depth)
        address = f"/jobs/?{query}{'&' if query and after else ''}{after}"
        ours, theirs = [], []
        for _ in range(REPEATS + 1):
            ours.append(cpu_of(lambda address=address: content_of(client, address)))
            theirs.append(cpu_of(lambda query=query, depth=depth: page_by_offset(client, user, query, depth)))
        competitor = f"{name}, OFFSET + COUNT"
        results.append(result(competitor, "ms", theirs[1:]))
        results.append(result(name, "ms", ours[1:], competitor, theirs[1:]))
    return results


def content_of(client: object, address: str) -> str:
    answer = client.get(address)  # type: ignore[attr-defined]
    assert answer.status_code == 200, address
    return str(answer.content.decode())


def key_at(user: object, query: str, depth: float) -> str:
    """The parameter of the page so deep in the list."""
    if not depth:
        return ""
    from django.http import QueryDict

    from jobs.queries.listing import JobFilter, job_page_of, list_keys

    wanted = JobFilter(QueryDict(query).dict())
    skipped = int(list_keys(user, wanted).count() * depth)
    token = job_page_of(user, wanted, {}, max(1, skipped)).next
    return f"after={token}" if token else ""


def page_by_offset(client: object, user: object, query: str, depth: float) -> str:
    """What a page by number costs: the frame of a page without rows, the count, the rows at an offset, their HTML."""
    from django.core.paginator import Paginator
    from django.http import QueryDict
    from django.template.loader import render_to_string

    from jobs.queries.listing import JobFilter, list_keys

    wanted = JobFilter(QueryDict(query).dict())
    rows = list_keys(user, wanted).select_related("owner", "model__model", "dataset__dataset", "instance_group")  # type: ignore[arg-type]
    pages = Paginator(rows.order_by(*wanted.order.columns()), PAGE)
    page = pages.page(max(1, int(pages.num_pages * depth)))
    frame = content_of(client, "/jobs/?state=SUSPENDED&owner=nobody")
    return frame + "".join(render_to_string("jobs/list/_row.html", {"job": job}) for job in page)


def cpu_of(work: Callable[[], object]) -> float:
    """Milliseconds of this process and, with PostgreSQL, of the one that answers it."""
    database, own = database_cpu(), time.process_time()
    work()
    return 1000 * (time.process_time() - own + database_cpu() - database)


def database_cpu() -> float:
    """Seconds that the process of this connection has computed; 0 where the database is part of this process."""
    from django.db import connection

    if connection.vendor != "postgresql":
        return 0.0
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        row = cursor.fetchone()
    nanoseconds = re.match(r"\d+", Path(f"/proc/{row[0]}/schedstat").read_text())
    assert nanoseconds
    return int(nanoseconds[0]) / 1e9


if __name__ == "__main__":
    main()
