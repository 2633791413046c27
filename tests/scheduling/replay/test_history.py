"""Recorded trainings played again: the same takes as long as it took, and a change has its effect."""

from dataclasses import replace

import pytest
from tidepool.goodput.model import Bounds, NoiseScale, Point, ThroughputParameters

from scheduling.policies.kind_ratios import MeasuredRatio
from scheduling.replay.history import (
    Alternative,
    History,
    KnownMeasures,
    PlayResult,
    RecordedJob,
    Recording,
    Segment,
    play,
)
from scheduling.replay.measuring import Measured
from scheduling.replay.outcome import errors_of, played, recorded
from scheduling.replay.physics import Physics
from scheduling.replay.world import Costs, JobChange, Pool
from scheduling.snapshot import GroupView, JobView, Share, SlotRef, SlotView

COSTS = Costs(start=5.0, pause=1.0, join=0.0, release=2.0, end=1.0)
GROUP = GroupView("all", "all", "fifo", preemption=False)
#: Computing shares perfectly, the sum costs nothing: twice the GPUs make it twice as fast.
PERFECT = ThroughputParameters(0.0, 0.01, 1e-8, 1e-8, 1e-8, 1e-8, 1.0)


def slots(count: int, host: str = "a") -> tuple[SlotView, ...]:
    return tuple(SlotView(SlotRef(host, index), ("all",), True) for index in range(count))


def job(number: int, seconds: float, **changes: object) -> RecordedJob:
    """On four GPUs from its submission on."""
    view = JobView(number, f"T{number}", "all", "PENDING", 5000, 0.0, 1, 4, started_at=0.0)
    usual = RecordedJob(
        view=view,
        outcome="over",
        segments=(Segment(seconds, (4,)),),
        ended_at=seconds + COSTS.start + COSTS.end,
        progress=1.0,
        held=((0.0, 4), (seconds + COSTS.start + COSTS.end, 0)),
    )
    seen = {name: value for name, value in changes.items() if hasattr(view, name)}
    others = {name: value for name, value in changes.items() if name not in seen}
    return replace(usual, view=replace(view, **seen), **others)  # type: ignore[arg-type]


def history(*jobs: RecordedJob, gpus: int = 4, **changes: object) -> History:
    usual = History(0.0, 1000.0, (GROUP,), slots(gpus), (), jobs, COSTS)
    return replace(usual, **changes)  # type: ignore[arg-type]


def again(past: History, **alternative: object) -> PlayResult:
    return play(past, Alternative(**alternative), "none", clock=lambda: 0.0, tick=lambda now: None)  # type: ignore[arg-type]


def ends(found: PlayResult) -> dict[int, float | None]:
    return {one.id: one.ended_at for one in found.jobs}


def test_the_same_rules_take_as_long_as_it_took() -> None:
    second = job(2, 50.0, started_at=106.0, ended_at=162.0, held=((106.0, 4), (162.0, 0)))
    past = history(job(1, 100.0), second)
    found = again(past)
    assert ends(found) == pytest.approx({1: 106.0, 2: 162.0})
    assert errors_of(past, found) == pytest.approx((0.0, 0.0, 0.0), abs=1e-9)
    assert played(past, found) == recorded(past, found.alone)
    assert played(past, found).gpu_hours == pytest.approx(4 * 162 / 3600)


def test_gpus_with_more_than_their_share_of_cores_count_as_several() -> None:
    first, second = job(1, 100.0, max_slots=2), job(2, 100.0, max_slots=2)
    past = history(first, second, shares={"a": Share(8, 0)})
    assert ends(again(past)) == pytest.approx({1: 106.0, 2: 106.0})
    wishes = [replace(one, view=replace(one.view, wish=Share(16, 0))) for one in past.jobs]
    # Two GPUs with 16 cores take all four slots of the host until the last rank has ended.
    assert ends(again(replace(past, jobs=tuple(wishes)))) == pytest.approx({1: 106.0, 2: 212.0})


def test_half_the_gpus_take_twice_as_long_where_more_help() -> None:
    known = KnownMeasures(Bounds(400), PERFECT, (Point(1, 4, 100, 1.0, 1.0, 50),))
    past = history(job(1, 100.0, known=known))
    assert ends(again(past))[1] == pytest.approx(106.0)
    assert ends(again(past, gpus=2))[1] == pytest.approx(206.0, rel=1e-3)
    assert ends(again(past, gpus=8))[1] == pytest.approx(106.0)  # the job asks for four


#: On "slow" a step takes a second on four GPUs, on "fast" half of that.
KINDS = KnownMeasures(
    Bounds(400),
    PERFECT,
    (Point(1, 4, 100, 1.0, 1.0, 50),),
    kind="slow",
    others={"fast": ((Point(1, 4, 100, 0.5, 0.5, 50),), replace(PERFECT, compute_per_sample=0.005))},
)


def of_kind(kind: str, count: int = 4) -> tuple[SlotView, ...]:
    return tuple(replace(slot, device=kind) for slot in slots(count))


@pytest.mark.parametrize(("recorded_on", "seconds"), [("slow", 50.0), ("fast", 100.0), ("unknown", 50.0)])
def test_speeds_are_those_of_the_kind_of_gpu(recorded_on: str, seconds: float) -> None:
    """A kind on which it was never measured counts as the one on which it was measured most."""
    past = history(
        job(1, 100.0, known=KINDS, segments=(Segment(100.0, (4,), kind=recorded_on),)), slots=of_kind("fast")
    )
    found = again(past)
    assert ends(found)[1] == pytest.approx(seconds + 6, rel=1e-3)
    assert found.alone[1] == pytest.approx(seconds + 6, rel=1e-3)
    learnt = found.jobs[0].measured.view(found.jobs[0].physics, pause_seconds=1.0, start_seconds=1.0)
    assert learnt is not None
    assert list(learnt.parameters) == ["fast"]


def test_a_kind_on_which_it_was_never_measured_is_as_fast_as_to_others() -> None:
    """A training was on "slow" for 100 s, and others of its code on that and on "rapid", which is four times faster."""
    recorded = job(1, 100.0, known=KINDS, segments=(Segment(100.0, (4,), kind="slow"),))
    recorded = replace(recorded, view=replace(recorded.view, code="mine"))
    past = replace(
        history(recorded, slots=of_kind("rapid")),
        remembered=(MeasuredRatio(-1, "mine", "slow", "rapid", 0.25), MeasuredRatio(-2, "other", "slow", "rapid", 0.9)),
    )
    assert ends(again(past))[1] == pytest.approx(25.0 + 6, rel=1e-3)


def test_a_training_that_changes_hosts_goes_on_at_their_speed() -> None:
    """And keeps what it has measured on the former ones."""
    past = history(
        job(1, 100.0, known=KINDS, segments=(Segment(100.0, (4,), kind="slow"),)),
        slots=of_kind("slow"),
        changes=((55.0, Pool(tuple(replace(slot, ref=SlotRef("b", slot.ref.index)) for slot in of_kind("fast")))),),
    )
    found = again(past)
    assert ends(found)[1] == pytest.approx(55 + 5 + 25 + 1, abs=3.0)
    learnt = found.jobs[0].measured.view(found.jobs[0].physics, pause_seconds=1.0, start_seconds=1.0)
    assert learnt is not None
    assert sorted(learnt.parameters) == ["fast", "slow"]


#: Each step takes a second, whatever its batch.
FLAT = ThroughputParameters(1.0, 0.0, 1e-8, 1e-8, 1e-8, 1e-8, 1.0)
#: At first a step of more samples is worth no more; from the twentieth on it is worth what its samples are.
GROWING = ((0.0, NoiseScale(1e-6, 1.0)), (20.0, NoiseScale(1e6, 1.0)))
ADAPTS = KnownMeasures(Bounds(100, 400), FLAT, (Point(1, 2, 50, 1.0, 1.0, 50),), NoiseScale(1e6, 1.0), GROWING)


@pytest.mark.parametrize(("bounds", "largest"), [(Bounds(400, None, 1, 100), 400), (Bounds(100, 400, 1, 100), 200)])
def test_micro_batches_are_as_large_as_each_kind_of_gpu_allows(bounds: Bounds, largest: int) -> None:
    """One rank whose batch adapts has two, to measure its noise."""
    others = {"fast": ((), FLAT)}
    known = replace(ADAPTS, bounds=bounds, kind="slow", others=others, micro_batches={"fast": 400})
    one = job(1, 40.0, known=known, max_slots=1, segments=(Segment(40.0, (1,), kind="slow"),))
    pools = {kind: history(one, slots=of_kind(kind, 1)) for kind in ("slow", "fast")}
    micro = {kind: again(past).jobs[0].physics.batch.micro for kind, past in pools.items()}
    assert micro == {"slow": 100, "fast": largest}


def test_a_replayed_training_knows_micro_batches_of_the_kinds_where_it_was() -> None:
    measured = Measured(ADAPTS.bounds, kind="slow", parameters=FLAT, micro_batches={"slow": 100, "fast": 400})
    physics = Physics(Recording("1", ADAPTS, "linear"), measured.choose)
    profile = measured.view(physics, pause_seconds=1.0, start_seconds=0.0)
    assert profile is not None
    assert profile.micro_batches == {"slow": 100}


def test_noise_follows_progress_and_not_the_hour() -> None:
    pair = job(1, 100.0, known=ADAPTS, max_slots=2, segments=(Segment(100.0, (2,)),))
    found = again(history(pair, slots=slots(2)))
    assert found.jobs[0].physics.progress == pytest.approx(20 + 80 * 4, rel=0.01)
    assert ends(found)[1] == pytest.approx(106.0, rel=1e-3)
    assert found.alone[1] == pytest.approx(106.0, rel=1e-3)
    later = replace(pair, view=replace(pair.view, submitted_at=500.0, started_at=500.0))
    assert ends(again(history(later, slots=slots(2))))[1] == pytest.approx(606.0, rel=1e-3)


def test_who_was_there_before_goes_on_in_its_phase() -> None:
    refs = tuple(slot.ref for slot in slots(2))
    there = job(1, 100.0, submitted_at=-60.0, started_at=-60.0, slots=refs, before=1, known=ADAPTS, max_slots=2)
    there = replace(there, segments=(Segment(40.0, (2,)), Segment(60.0, (2,))))
    found = again(history(there, slots=slots(2)))
    assert found.jobs[0].physics.progress == pytest.approx(20 + 80 * 4, rel=0.01)
    assert ends(found)[1] == pytest.approx(61.0, rel=1e-3)


def test_one_whose_sizes_were_measured_by_another_training_begins_where_it_was() -> None:
    refs = tuple(slot.ref for slot in slots(4))
    there = job(1, 60.0, submitted_at=-60.0, slots=refs, before=1, known=KnownMeasures(Bounds(400), PERFECT))
    found = again(history(replace(there, segments=(Segment(60.0, (4,)), Segment(60.0, (4,))))))
    assert ends(found)[1] == pytest.approx(61.0)


def test_an_unmeasured_one_is_played_both_ways() -> None:
    past = history(job(1, 100.0))
    few = Alternative(gpus=2)
    spans = [
        play(past, few, way, clock=lambda: 0.0, tick=lambda now: None).jobs[0].ended_at for way in ("linear", "none")
    ]
    assert spans == pytest.approx([206.0, 106.0])


def test_more_gpus_are_further_hosts_for_who_waits() -> None:
    past = history(job(1, 100.0), job(2, 50.0))
    assert ends(again(past, gpus=8)) == pytest.approx({1: 106.0, 2: 56.0})


def test_another_policy_shares_what_the_first_held_alone() -> None:
    past = history(job(1, 100.0), job(2, 50.0))
    found = again(past, groups={"all": {"policy": "fairshare"}})
    assert found.jobs[1].started_at == pytest.approx(0.0)


def test_who_was_there_before_begins_with_what_it_held() -> None:
    refs = tuple(slot.ref for slot in slots(4))
    there = job(1, 100.0, submitted_at=-60.0, started_at=-60.0, slots=refs, before=1)
    there = replace(there, segments=(Segment(40.0, (4,)), Segment(60.0, (4,))))
    assert ends(again(history(there)))[1] == pytest.approx(61.0)


def test_what_people_asked_happens_when_they_asked_it() -> None:
    asked = (
        (10.0, JobChange(1, "hold")),
        (50.0, JobChange(1, "resume")),
        (60.0, JobChange(2, "withdraw")),
        (70.0, JobChange(1, "change", {"priority": 1})),
    )
    gone = job(2, 50.0, outcome="withdrawn", progress=None)
    found = again(history(job(1, 100.0), gone, changes=asked))
    # The first has done five seconds; the second takes its place until it is withdrawn, and the first starts anew.
    assert ends(found)[2] == 60.0
    assert ends(found)[1] == pytest.approx(62 + 5 + 95 + 1)
    assert found.jobs[0].view.priority == 1


def test_a_host_that_leaves_takes_its_ranks_along() -> None:
    pool = (*slots(2), *slots(2, "b"))
    past = history(job(1, 100.0), slots=pool, changes=((55.0, Pool(slots(2))),))
    found = again(past)
    assert ends(found)[1] == pytest.approx(107.0)  # one pause; more GPUs do not help it
    assert [(one.at, one.slots) for one in found.held][-3:-1] == [(55.0, 2), (106.0, 2)]


def test_unfinished_ones_are_played_and_not_counted() -> None:
    going = job(
        2, 50.0, outcome="unfinished", ended_at=None, progress=0.5, max_slots=1, segments=(Segment(50.0, (1,)),)
    )
    endless = replace(going, view=replace(going.view, id=3), progress=None)
    past = history(job(1, 100.0, max_slots=2), going, endless)
    found = again(past)
    assert ends(found) == {1: pytest.approx(106.0), 2: pytest.approx(106.0), 3: None}
    assert played(past, found).jobs == 1


@pytest.mark.timeout(60)
def test_moments_may_be_unix_seconds() -> None:
    """Use moments less than a quarter of a microsecond apart, which are the same number."""
    at, seconds = 1763000028.3474765, 43.27670679050534
    known = KnownMeasures(Bounds(64), replace(PERFECT, compute_per_sample=0.008357651039198697))
    past = history(job(1, seconds, known=known, submitted_at=at, started_at=at), start=at, end=at + 600)
    assert again(past).jobs[0].ended_at == pytest.approx(at + 6 + seconds, abs=1e-3)
