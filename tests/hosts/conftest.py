"""Machines of a test's own. Where none can be made, the tests that need them are left out, with the reason."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.hosts.machines import Network, running_machines, why_impossible
from tests.missing import leave_out


@pytest.fixture
def machines() -> Iterator[Callable[..., Network]]:
    """Makes so many machines on one network; options are those of `running_machines`."""
    if reason := why_impossible():
        leave_out(f"no machines of our own: {reason}")
    with ExitStack() as stack:
        yield lambda count, **options: stack.enter_context(running_machines(count, **options))
