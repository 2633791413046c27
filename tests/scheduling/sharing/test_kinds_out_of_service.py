"""A kind of GPU of which all hosts are out of service."""

from dataclasses import replace

from tidepool.goodput.model import Bounds, ThroughputParameters

from scheduling.schedule import schedule
from scheduling.snapshot import ProfileView, Snapshot
from tests.scheduling.cluster import group, job, of_kinds, targets


def test_a_kind_that_is_out_of_service_is_nobodys_part() -> None:
    """The parts of groups named kinds of which no host was in service, and the weight of a late job asked for them."""
    speed = ThroughputParameters(0.01, 0.002, 0.02, 0.002, 0.04, 0.002, 1.0)
    profile = ProfileView(Bounds(64, 512), {"Turing": speed}, remaining_steps=1e5, done_steps=1e5)
    jobs = (job(1, group="a", profile=profile), job(2, group="b", profile=profile))
    groups = (group("goodput", name="a"), group("goodput", name="b"))
    places = tuple(
        replace(slot, claimable=slot.device != "Hopper")
        for slot in of_kinds((4, "Turing"), (4, "Ampere"), (4, "Hopper"))
    )
    assert sum(targets(schedule(Snapshot(10_000.0, groups, places, jobs))).values()) == 8
