"""A scheduler's cycle without the garbage collector: the same decisions, and the collector is back after it."""

import gc
from contextlib import suppress

from hypothesis import given, settings

from core.process import without_collector
from scheduling.schedule import schedule
from scheduling.snapshot import Snapshot
from tests.scheduling.strategies import snapshots


@settings(deadline=None)
@given(snapshots())
def test_decisions_are_the_same(snapshot: Snapshot) -> None:
    with without_collector():
        plan = schedule(snapshot)
    assert plan == schedule(snapshot)


def test_it_is_back_even_after_an_error() -> None:
    with suppress(KeyError), without_collector():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
