from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.lab import Lab, running_forkserver


@pytest.fixture(scope="session")
def forkserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_forkserver(tmp_path_factory.mktemp("forkserver")) as path:
        yield path


@pytest.fixture
def make_lab(forkserver: Path, tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """Build labs in the test's own folder; all of their processes end with the test."""
    labs: list[Lab] = []

    def make(script: str, **options: Any) -> Lab:
        labs.append(Lab(forkserver, tmp_path / f"job-{len(labs)}", script, **options))
        return labs[-1]

    yield make
    for lab in labs:
        lab.stop()
