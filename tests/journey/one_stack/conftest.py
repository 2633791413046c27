"""Journeys that share one stack, in the order of their files' names: none minds what the others have left."""

from collections.abc import Iterator

import pytest

from tests.journey.conftest import demo_stack
from tests.journey.running_stack import RunningStack
from tests.journey.training import register_recorder


@pytest.fixture(scope="package")
def stack() -> Iterator[RunningStack]:
    with demo_stack(is_walled=True) as running:
        yield running


@pytest.fixture(scope="package")
def recorder(stack: RunningStack) -> None:
    with stack.api() as api:
        register_recorder(stack, api)
