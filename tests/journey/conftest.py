import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.journey.running_stack import RunningStack, free_port


@contextmanager
def fresh_home() -> Iterator[Path]:
    """A home with a short name, as people have: unix sockets lie below it."""
    home = Path(tempfile.mkdtemp(prefix="tidepool-"))
    yield home
    shutil.rmtree(home, ignore_errors=True)


@contextmanager
def demo_stack(*, is_walled: bool = False) -> Iterator[RunningStack]:
    """The stack as `make demo` starts it, but without the play."""
    with fresh_home() as home:
        running = RunningStack(home, free_port(), is_walled=is_walled)
        running.start()
        yield running
        running.stop()


@pytest.fixture(scope="module")
def short_home() -> Iterator[Path]:
    with fresh_home() as home:
        yield home


@pytest.fixture(scope="module")
def stack() -> Iterator[RunningStack]:
    with demo_stack() as running:
        yield running
