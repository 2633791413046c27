"""Ranks that are threads of a test."""

from typing import Any

import pytest

from tests.runtime.rank.test_losses import no_labels, prepared_loop, session_loop
from tests.runtime.replicas import on_ranks


@pytest.mark.parametrize("loop", [prepared_loop, session_loop])
@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_that_fails_ends_the_others(loop: Any, failing: int) -> None:
    ranks = iter(range(2))

    def train() -> None:
        fails = next(ranks) == failing
        loop(no_labels, weight=lambda labels: 1 // 0 if fails else None)

    with pytest.raises(ZeroDivisionError):
        on_ranks(2, train)
