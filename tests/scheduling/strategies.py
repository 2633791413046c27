"""Random snapshots: small, consistent, and full of corner cases."""

from hypothesis import strategies as st
from tidepool.goodput.model import Bounds, NoiseScale, ThroughputParameters

from scheduling.snapshot import GroupView, JobView, ProfileView, SlotRef, SlotView, Snapshot

#: Holds slots, but is not among the snapshot's jobs: it is being stopped.
ENDING = 99


@st.composite
def snapshots(draw: st.DrawFn, max_groups: int = 3, max_jobs: int = 5) -> Snapshot:
    groups = draw(_groups(max_groups))
    numbers = range(1, draw(st.integers(0, max_jobs)) + 1)
    group_of = {number: draw(st.sampled_from(groups)) for number in numbers}
    slots = draw(_slots(group_of))
    jobs = tuple(draw(_job(number, group_of[number], slots)) for number in numbers)
    return Snapshot(at=100.0, groups=groups, slots=slots, jobs=jobs)


@st.composite
def _groups(draw: st.DrawFn, most: int) -> tuple[GroupView, ...]:
    names = "abc"[: draw(st.integers(1, most))]
    return tuple(
        GroupView(
            name=name,
            resource_group=draw(st.sampled_from(["r1", "r2"])),
            policy=draw(st.sampled_from(["fairshare", "fairshare", "priority", "fifo", "goodput", "goodput"])),
            preemption=draw(st.booleans()),
            quota=draw(st.sampled_from([None, None, 1, 3, 6])),
            weight=draw(st.sampled_from([0, 1, 1, 2, 3])),
            borrows=draw(st.integers(0, 4)) > 0,
            lends=draw(st.integers(0, 4)) > 0,
            minimum_run_seconds=draw(st.sampled_from([0, 0, 60])),
            started=draw(st.integers(0, 6)) > 0,
            aim=draw(st.sampled_from(["soon", "even", "used"])),
            gpu_weights=draw(st.sampled_from([(), (), (("A", 1.0), ("B", 4.0))])),
        )
        for name in names
    )


@st.composite
def _slots(draw: st.DrawFn, group_of: dict[int, GroupView]) -> tuple[SlotView, ...]:
    slots = []
    kinds = draw(st.sampled_from([("",), ("",), ("A", "B"), ("A", "B", "C")]))
    for host in range(1, draw(st.integers(1, 3)) + 1):
        claimable = draw(st.integers(0, 4)) > 0
        offers = draw(st.sampled_from([("r1", "r2"), ("r1", "r2"), ("r1",), ("r2",)]))
        kind, other = draw(st.sampled_from(kinds)), draw(st.sampled_from(kinds))
        for index in range(draw(st.integers(1, 4))):
            holder = draw(st.sampled_from([None, None, ENDING, *group_of, *group_of]))
            vacating = holder is not None and draw(st.integers(0, 3)) == 0
            device = other if index == 3 else kind  # hardly anywhere, but nothing forbids it
            slots.append(SlotView(SlotRef(f"h{host}", index), offers, claimable, holder, vacating, device))
    return tuple(slots)


@st.composite
def _job(draw: st.DrawFn, number: int, group: GroupView, slots: tuple[SlotView, ...]) -> JobView:
    places = [slot.ref.host for slot in slots if slot.held_by == number and not slot.vacating]
    held = len(places)
    elastic = draw(st.integers(0, 3)) > 0
    least = draw(st.integers(1, held or 5)) if elastic else held or draw(st.integers(1, 5))
    return JobView(
        id=number,
        name=f"T{number}",
        group=group.name,
        state=draw(st.sampled_from(["STARTING", "RUNNING"])) if held else "PENDING",
        priority=draw(st.sampled_from([1, 2500, 5000, 5000, 10000])),
        submitted_at=float(draw(st.integers(1, 4))),
        min_slots=least,
        max_slots=draw(st.integers(least, 10)) if elastic else least,
        elastic=elastic,
        owner=draw(st.sampled_from([1, 2])),
        started_at=draw(st.sampled_from([10.0, 90.0])) if held else None,
        lasts=draw(st.sampled_from([None, 20.0, 100.0])),
        ends_at=draw(st.sampled_from([None, 90.0, 150.0, 300.0])) if held else None,
        backfilled_for=draw(st.sampled_from([None, None, *{1, 2, 3} - {number}])) if held and elastic else None,
        profile=draw(_profile()) if group.policy == "goodput" else None,
        gpu_seconds=draw(st.sampled_from([0.0, 500.0])) if group.policy == "goodput" else 0.0,
        one_host=not elastic and len(set(places)) < 2 and draw(st.booleans()),
        bundle=draw(st.sampled_from([None, None, 1, 2])),
        bundle_rank=draw(st.integers(0, 1)),
    )


@st.composite
def _profile(draw: st.DrawFn) -> ProfileView | None:
    """Draw no profile, or that of a job that gains from each GPU, from the first few, or from none."""
    if draw(st.booleans()):
        return None
    sums = draw(st.sampled_from([0.0, 0.02, 1.0]))
    parameters = ThroughputParameters(0.01, 0.002, sums, sums / 10, 2 * sums, sums / 10, 1.5)
    faster = ThroughputParameters(0.004, 0.001, sums, sums / 10, 2 * sums, sums / 10, 1.5)
    by_kind = {"": parameters, "A": parameters, "B": faster}
    kinds = draw(st.sampled_from([("",), ("",), ("A", "B"), ("A",), ("B",)]))
    return ProfileView(
        bounds=Bounds(64, draw(st.sampled_from([None, 512]))),
        parameters={kind: by_kind[kind] for kind in kinds},
        noise=draw(st.sampled_from([None, NoiseScale(100.0, 1.0)])),
        largest_ranks=draw(st.sampled_from([1, 2, 8])),
        remaining_steps=draw(st.sampled_from([None, 100.0, 1e5])),
    )
