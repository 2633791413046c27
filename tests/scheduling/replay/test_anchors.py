"""The simulator meets published averages to the hundredth of a second, before any other figure of it is believed."""

import pytest

from benchmarks.anchors import ANCHORS, Anchor, average


@pytest.mark.parametrize("anchor", ANCHORS, ids=lambda anchor: f"{anchor.policy}, {anchor.trace}")
def test_meets_the_published_average(anchor: Anchor) -> None:
    assert round(average(anchor), anchor.digits) == anchor.seconds
