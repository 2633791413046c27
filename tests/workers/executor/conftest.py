"""A broker and a host of each test's own, with nothing left afterwards."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.executor.embedded import Broker, Host, running_broker
from workers.executor.forkserver import Forkserver


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    with tempfile.TemporaryDirectory(prefix="tide") as folder, running_broker(Path(folder)) as started:
        yield started


@pytest.fixture
def host(broker: Broker, warm_forkserver: Forkserver, tmp_path: Path) -> Iterator[Host]:
    """A running executor on a home of its own, with the forkserver that all tests share."""
    yield from _running(Host(broker, tmp_path, warm_forkserver=warm_forkserver.socket))


@pytest.fixture
def whole_host(broker: Broker, tmp_path: Path) -> Iterator[Host]:
    """A running executor that starts a forkserver of its own."""
    yield from _running(Host(broker, tmp_path))


def _running(host: Host) -> Iterator[Host]:
    host.start()
    yield host
    host.close()
