"""The simulator meets published averages to the hundredth of a second, before any other figure of it is believed."""

import pytest

from benchmarks.anchors import ANCHORS, Anchor, average


@pytest.mark.parametrize(
    "anchor",
    [
        pytest.param(
            anchor,
            marks=[] if anchor.trace == "workload-6" else pytest.mark.long,
            id=f"{anchor.policy}, {anchor.trace}",
        )
        for anchor in ANCHORS
    ],
)
def test_meets_the_published_average(anchor: Anchor) -> None:
    assert round(average(anchor), anchor.digits) == anchor.seconds
