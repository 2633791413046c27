from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workers.executor.devices.fake_driver import FakeDriver, compiled


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def driver(library: Path, tmp_path: Path) -> FakeDriver:
    return FakeDriver(library, tmp_path / "driver.state")


@pytest.fixture
def ask(driver: FakeDriver) -> Callable[[str], str]:
    """Run an expression of Python beside the fake driver; returns what it prints."""

    def run(expression: str) -> str:
        done = driver.run("-c", expression)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run
