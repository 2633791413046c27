"""The background worker as a real process, with checks that end, are stopped, and are killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone

from core.file_sources import Source
from datasets.actions import DatasetRegistration, register
from datasets.models import DatasetVersion
from tests.processes import database_url
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

#: A file of so many bytes takes longer to read than any test takes; on the disk it is a hole.
_ENDLESS_BYTES = 2**40


@contextmanager
def worker(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "TIDEPOOL_DATABASE_URL": database_url(), "TIDEPOOL_HOME": str(home)}
    command = [sys.executable, "manage.py", "run_background"]
    with subprocess.Popen(command, env=environment, cwd=settings.BASE_DIR) as process:
        try:
            yield process
        finally:
            process.kill()


def registered(owner: User, size_bytes: int) -> DatasetVersion:
    """Return a version that is too large for the request that registers it."""
    folder = settings.TIDEPOOL_DATA_ROOTS[0] / "large"
    folder.mkdir()
    with (folder / "zeros.bin").open("wb") as file:
        file.truncate(size_bytes)
    return register(owner, DatasetRegistration("large", Source(path=str(folder))))


def reached(version: DatasetVersion, state: str) -> bool:
    version.refresh_from_db()
    return version.state == state


def children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the worker's children. Those of other tasks prune and end soon after the start."""
    found: list[psutil.Process] = psutil.Process(process.pid).children()
    return found


def test_a_check_runs_in_a_child_that_ends_with_it(alice: User, home: Path) -> None:
    version = registered(alice, 17 * 1024**2)
    with worker(home) as process:
        wait_until(lambda: reached(version, "READY"), "the version is checked")
        wait_until(lambda: not children(process), "the child has ended")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_sigterm_gives_a_check_back(alice: User, home: Path) -> None:
    version = registered(alice, _ENDLESS_BYTES)
    with worker(home) as process:
        wait_until(lambda: reached(version, "CHECKING"), "the check has begun")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    version.refresh_from_db()
    assert (version.state, version.claim, version.claimed_until) == ("WAITING", "", None)


def test_a_check_that_is_killed_is_begun_anew_by_another_child(alice: User, home: Path) -> None:
    version = registered(alice, _ENDLESS_BYTES)
    with worker(home) as process:
        wait_until(lambda: reached(version, "CHECKING"), "the check has begun")
        first = version.claim
        wait_until(lambda: len(children(process)) == 1, "only the check is left")
        children(process)[0].kill()
        wait_until(lambda: not children(process), "the worker has noticed")
        # The test does not wait until the claim expires by itself.
        DatasetVersion.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
        wait_until(lambda: reached(version, "CHECKING") and version.claim != first, "another child checks")
        assert process.poll() is None
