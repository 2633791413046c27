from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tidepool.torch.rank import prepared

from tests.runtime.lab import Lab
from workers.executor.forkserver import Forkserver


@pytest.fixture
def forkserver(warm_forkserver: Forkserver) -> Path:
    """The socket of the forkserver that all tests share."""
    return warm_forkserver.socket


@pytest.fixture(autouse=True)
def _no_optimizer_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """`prepare` watches what its process makes from then on, and this one runs all tests."""
    monkeypatch.setattr(prepared, "watch", lambda later: None)


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
