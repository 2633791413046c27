from pathlib import Path

import pytest

from workers.executor.forkserver import Forkserver


@pytest.fixture
def forkserver(warm_forkserver: Forkserver) -> Path:
    """The socket of the forkserver that all tests share."""
    return warm_forkserver.socket
