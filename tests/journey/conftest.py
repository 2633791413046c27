import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journey.running_stack import RunningStack, free_port


@pytest.fixture(scope="module")
def short_home() -> Iterator[Path]:
    """A fresh home with a short name, as people have: unix sockets lie below it."""
    home = Path(tempfile.mkdtemp(prefix="tidepool-"))
    yield home
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def stack(short_home: Path) -> Iterator[RunningStack]:
    """The stack as `make demo` starts it, but without the play."""
    running = RunningStack(short_home, free_port())
    running.start()
    yield running
    running.stop()
