"""The clock of events, with trainings whose every figure can be worked out by hand."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tidepool.goodput.model import Bounds

from benchmarks.errors import Errors
from benchmarks.trace_files import trace
from scheduling.policies.kind_ratios import MeasuredRatio
from scheduling.policies.target_hold import hold_targets
from scheduling.replay.measuring import Measured
from scheduling.replay.physics import Physics
from scheduling.replay.profiles import Application, application
from scheduling.replay.world import Costs, Pool, Replayed, World
from scheduling.snapshot import GroupView, JobView, KindRatio, SlotRef, SlotView, Snapshot

PLACEMENTS = "placement,local_bsz,step_time,sync_time\n" + "".join(
    f"{placement},{micro},1.0,0.0\n" for placement in ("1", "2", "11", "12", "22") for micro in (1, 4, 8)
)
SCALABILITY = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
#: Two epochs of 100 steps, in which no larger batch is worth anything.
EPOCHS = "progress,iteration,metric,grad_sqr,grad_var\n100,100,0,1,0\n200,200,0,1,0\n"
START, PAUSE = 30.0, 1.0


@pytest.fixture
def plain() -> Application:
    """A step takes a second on any GPUs."""
    files = {"placements.csv": PLACEMENTS, "scalability.csv": SCALABILITY}
    return application("plain", {**files, "validation-8.csv": EPOCHS, "validation-16.csv": EPOCHS})


def world_of(policy: str = "fairshare", *, join: float = 0.0) -> World:
    slots = tuple(SlotView(SlotRef(host, index), ("all",), True) for host in ("a", "b") for index in range(2))
    group = GroupView("all", "all", policy, preemption=True)  # type: ignore[arg-type]
    return World((group,), Costs(START, PAUSE, join), slots, clock=lambda: 0.0)


@pytest.fixture
def training(plain: Application) -> Callable[..., Replayed]:
    def make(number: int, submitted_at: float, *, most: int = 4) -> Replayed:
        measured = Measured(Bounds(8, None, 1, 8))
        view = JobView(number, f"T{number}", "all", "PENDING", 5000, submitted_at, 1, most)
        return Replayed(view, Physics(plain, measured.choose), measured)

    return make


def test_alone_it_takes_its_start_and_its_steps(training: Callable[..., Replayed]) -> None:
    job = training(1, 5.0)
    world_of().play([job])
    assert job.completion_seconds == pytest.approx(START + 200)
    assert job.physics.gpu_seconds == pytest.approx(4 * (START + 200))
    assert job.physics.lost == pytest.approx(4 * START)


def test_who_gives_gpus_back_pauses_before_they_are_free(training: Callable[..., Replayed]) -> None:
    first, second = training(1, 0.0), training(2, 100.0)
    world_of().play([first, second])
    # The first shrinks at 100 s; it grows again when the second is over, but is over before that.
    assert first.completion_seconds == pytest.approx(START + 200 + PAUSE)
    assert second.started_at == pytest.approx(100 + PAUSE)
    assert first.physics.resizes == 1


def test_who_grows_trains_on_until_new_ranks_are_ready(training: Callable[..., Replayed]) -> None:
    first, second = training(1, 0.0), training(2, 0.0)
    second.view = replace(second.view, max_slots=2)
    second.physics.progress, second.physics.epoch = 100.0, 1
    world_of(join=10.0).play([first, second])
    # The second is over after 130 s; the first pauses only ten seconds later, for its larger group.
    assert first.completion_seconds == pytest.approx(START + 200 + PAUSE)
    assert first.physics.lost == pytest.approx(2 * START + 2 * 10 + 4 * PAUSE)


@pytest.mark.parametrize("join", [0.0, 5.0])
def test_more_gpus_during_a_start_do_not_shorten_it(training: Callable[..., Replayed], join: float) -> None:
    first, second = training(1, 0.0, most=2), training(2, 220.0)
    world_of(join=join).play([first, second])
    assert first.ended_at == START + 200
    # The second begins on two GPUs and gets two more after ten seconds.
    assert second.completion_seconds == pytest.approx(START + 200)


def test_gpus_of_who_is_over_are_free_once_its_ranks_are_gone(training: Callable[..., Replayed]) -> None:
    first, second = training(1, 0.0), training(2, 10.0)
    world = world_of("fifo")
    world.costs = replace(world.costs, end=2.0, free=3.0)
    world.groups = (replace(world.groups[0], preemption=False),)
    world.play([first, second])
    assert first.ended_at == START + 200 + 2
    assert second.started_at == START + 200 + 2 + 3
    assert [(held.at, held.slots) for held in world.held if held.job == 1][-1] == (second.started_at, 0)


class Off:
    """Steps take twice as long, and seem to take half as long again."""

    def pace(self) -> float:
        return 2.0

    def measured(self, value: float) -> float:
        return 1.5 * value


def test_what_is_measured_has_errors_and_is_measured_anew(training: Callable[..., Replayed]) -> None:
    job = training(1, 0.0)
    job.measured.errors = Off()
    world_of("goodput").play([job])
    # The job trains for ten seconds on two GPUs, then on four, before it is measured for the first time.
    assert job.completion_seconds > START + 2 * 200 - 2 * 20
    by_shape = [(point.size, point.step_seconds) for point in job.measured.points]
    assert len({size for size, _ in by_shape}) == len(by_shape)
    assert by_shape[-1][1] == pytest.approx(1.5 * 2.0)


@pytest.mark.parametrize(("declared", "remaining"), [(1.0, 150.0), (4.0, 750.0), (0.1, 0.0), (None, None)])
def test_its_rest_is_known_as_it_declares_it(
    declared: float | None, remaining: float | None, training: Callable[..., Replayed]
) -> None:
    job = training(1, 0.0)
    world_of().play([job])
    job.measured.declared, job.physics.progress = declared, 50.0
    profile = job.measured.view(job.physics, pause_seconds=PAUSE, start_seconds=0.0)
    assert profile is not None
    assert profile.remaining_steps == remaining


def test_a_trace_has_so_many_times_its_trainings_in_the_same_hours() -> None:
    once = trace("workload-6")
    for load in (1.0, 1.5, 2.0, 2.5):
        more = trace("workload-6", load)
        names = {submission.name for submission in more}
        assert len(names) == len(more) == load * len(once)
        assert [submission for submission in more if "+" not in submission.name] == once
        assert more[-1].at < once[-1].at + once[-1].at / len(once)


def test_errors_are_the_same_for_the_same_seed() -> None:
    first, same, other = (Errors(seed, spread=2.0, error=0.2) for seed in ("1/a", "1/a", "2/a"))
    paces = [first.pace() for _ in range(20)]
    assert paces == [same.pace() for _ in range(20)] != [other.pace() for _ in range(20)]
    assert all(2**-0.5 <= pace <= 2**0.5 for pace in paces)


@pytest.mark.parametrize("policy", ["fifo", "fairshare", "goodput"])
def test_all_are_over_and_no_gpu_is_used_twice(policy: str, training: Callable[..., Replayed]) -> None:
    jobs = [training(number, 20.0 * number, most=1 + number % 4) for number in range(8)]
    world = world_of(policy)
    world.play(jobs)
    assert all(job.ended_at is not None for job in jobs)
    assert sum(job.physics.gpu_seconds for job in jobs) <= 4 * world.now
    assert all(job.physics.progress == pytest.approx(200) for job in jobs)


def test_targets_are_kept_as_the_scheduler_keeps_them(training: Callable[..., Replayed]) -> None:
    """The world kept targets over the start of a training, after which the scheduler decides again."""
    seen: list[Snapshot] = []
    world = world_of("goodput")
    world.on_plan = lambda at, result: seen.append(result.index.snapshot) if result else None
    world.play([training(number, 20.0 * number, most=1 + number % 4) for number in range(8)])
    hold = None
    for snapshot in seen:
        unseen = replace(snapshot, groups=tuple(replace(group, shared_at=None) for group in snapshot.groups))
        kept, hold = hold_targets(unseen, hold)
        assert kept.groups == snapshot.groups
    assert {snapshot.groups[0].shared_at is None for snapshot in seen} == {True, False}


def test_ratios_of_kinds_are_remembered_beyond_the_end_of_a_training(training: Callable[..., Replayed]) -> None:
    """The first one is on both kinds, one after the other; the second one comes when it is over."""
    first, second = training(1, 0.0, most=1), training(2, 1000.0, most=1)
    for job in (first, second):
        job.view = replace(job.view, code="same")
    kinds = {kind: tuple(SlotView(SlotRef(kind, 0), ("all",), True, device=kind) for _ in "1") for kind in ("A", "B")}
    world = world_of("goodput")
    world.slots, world.changes = kinds["A"], [(100.0, Pool(kinds["B"])), (900.0, Pool(kinds["A"] + kinds["B"]))]
    world.remembered = [MeasuredRatio(-1, "other", "B", "A", 3.0)]
    seen: dict[float, tuple[KindRatio, ...]] = {}
    world.on_plan = lambda at, result: seen.setdefault(at, result.index.snapshot.ratios) and None if result else None
    world.play([first, second])
    assert first.ended_at is not None
    assert first.ended_at < 1000.0
    assert seen[0.0] == (KindRatio("B", "A", 3.0, 1),)
    # Both kinds are equally fast to it, and the median is of the two trainings.
    assert seen[1000.0] == (KindRatio("B", "A", 2.0, 2), KindRatio("B", "A", 1.0, 1, "same"))
