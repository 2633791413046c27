"""The site within the process of a benchmark: a database of its own, a client, processor time."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django

from benchmarks.results import Result

__all__ = ["content_of", "cpu_of", "looked_after", "signed_in", "with_database"]


def with_database(work: Callable[[], list[Result]]) -> list[Result]:
    """Do the work over a database of its own. Only then models can be imported."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    from django.test.utils import setup_databases, teardown_databases

    databases = setup_databases(verbosity=0, interactive=False)
    try:
        return work()
    finally:
        teardown_databases(databases, verbosity=0)


def looked_after() -> None:
    """Bring the database into the state of one that is looked after."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "PRAGMA wal_checkpoint(TRUNCATE)")


def signed_in(user: Any) -> Any:
    from django.test import Client

    client = Client(headers={"host": "127.0.0.1"})
    client.force_login(user)
    return client


def content_of(client: Any, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return str(answer.content.decode())


def cpu_of(work: Callable[[], object]) -> float:
    """Milliseconds of this process and, with PostgreSQL, of the one that answers it."""
    database, own = _database_cpu(), time.process_time()
    work()
    return 1000 * (time.process_time() - own + _database_cpu() - database)


def _database_cpu() -> float:
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
