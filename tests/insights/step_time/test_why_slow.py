"""Time by cause: from the coordinator's journal to shares, the sentence, advice and the page."""

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient
from tidepool.protocol import SPENT_PARTS, RankSigns, to_json

from insights.step_time.advice import advice_on
from insights.step_time.answer import sentence_of
from insights.step_time.batch_costs import fixed_part
from insights.step_time.core_limits import core_limit_words
from insights.step_time.gpu_memory import MemoryAt, memory_warning, memory_words
from insights.step_time.outcomes import pace_of
from insights.step_time.page import WIDTH, bar_of
from insights.step_time.shares import rank_share, recent_shares, share_points
from jobs.control import time_by_cause
from jobs.models import Job, JobProfile, TimeByCause
from jobs.states import Reason
from tests.factories import JobFactory
from tests.insights.step_time.ranks import rank, shares
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.models import Host

pytestmark = pytest.mark.django_db


def seconds(**parts: float) -> list[float]:
    return [parts.get(part, 0.0) for part in SPENT_PARTS]


@pytest.fixture
def training(cluster: Cluster, submit: Submit) -> Job:
    job = submit(max_slots=2)
    cluster.turn(2)
    cluster.train(job)
    cluster.turn()
    job.refresh_from_db()
    return job


def tell(cluster: Cluster, job: Job, *ranks: dict[str, Any], step: int = 9) -> None:
    cluster.hosts[job.run.lead_host].write(job, "coordinator", "time_spent", step=step, ranks=list(ranks))
    cluster.report()


def told(member_id: str, *, steps: int = 9, **parts: float) -> dict[str, Any]:
    return {"member_id": member_id, "steps": steps, "seconds": seconds(**parts)}


def answer(api: APIClient, job: Job) -> Any:
    return api.get(f"/api/v1/jobs/{job.pk}/time/").json()


def test_sums_of_the_ranks_become_shares(training: Job, cluster: Cluster, alice_api: APIClient) -> None:
    first, second = training.ranks.order_by("rank").values_list("member_id", flat=True)
    tell(cluster, training, told(first, data=6, compute=4), told(second, data=4, compute=6))
    found = answer(alice_api, training)
    assert found["state"] == "measured"
    assert found["shares"] == shares(data=0.5, compute=0.5)
    assert found["text"] == "50 % of the time is spent waiting for data, 50 % computing."
    assert [(each["rank"], each["shares"]["data"]) for each in found["ranks"]] == [(0, 0.6), (1, 0.4)]
    assert [(advice["code"], advice["speedup"]) for advice in found["advice"]] == [("DATA", 2.0)]
    assert "Expected: up to 2 times as fast." in found["advice"][0]["text"]

    tell(cluster, training, told(first, data=6, compute=14), step=20)
    again = answer(alice_api, training)
    assert again["shares"] == {**shares(data=1 / 3, compute=2 / 3)} | {"data": 0.3333, "compute": 0.6667}
    assert [point["shares"]["data"] for point in again["points"]] == [0.5, 0.0]


def test_a_training_that_is_not_measured_says_why(
    alice: User, alice_api: APIClient, training: Job, cluster: Cluster
) -> None:
    assert answer(alice_api, training)["state"] == "waiting"
    plain = JobFactory(owner=alice, model__engine="fixed")
    assert answer(alice_api, plain)["state"] == "not_told_apart"
    assert alice_api.get(f"/api/v1/jobs/{plain.pk}/time/").json()["shares"] == {}


@pytest.mark.parametrize(
    "bad", [[1.0], [float("nan")] * len(SPENT_PARTS), [1e300] * len(SPENT_PARTS), [-1.0] * len(SPENT_PARTS)]
)
def test_implausible_sums_are_not_stored(
    training: Job, cluster: Cluster, alice_api: APIClient, bad: list[float]
) -> None:
    tell(cluster, training, {"member_id": "a.0.1", "steps": 1, "seconds": bad})
    assert not TimeByCause.objects.exists()


@pytest.mark.parametrize(
    ("workers", "cores", "words"),
    [
        (
            0,
            8.0,
            "num_workers=7. A worker keeps up to one core busy, of which the training has 8 with each GPU",
        ),
        (0, 1.5, "num_workers=1."),
        (0, None, "num_workers=4. A worker keeps up to one core busy. Expected: up to 2 times as fast."),
        (32, 8.0, "has 32 workers of its loader and 8 cores"),
        (4, 8.0, "Read data ahead"),
        (32, None, "Read data ahead"),
        (None, 8.0, "Read data ahead"),
    ],
)
def test_advice_on_data_counts_workers_and_cores(workers: int | None, cores: float | None, words: str) -> None:
    ranks = [replace(rank(number, data=0.5, compute=0.5), workers=workers) for number in (0, 1)]
    [advice] = advice_on(shares(data=0.5, compute=0.5), ranks, None, cores)
    assert words in advice.text


@pytest.mark.parametrize(
    ("busy", "words"),
    [(0.04, "Copy the data to a fast disk"), (0.9, "it decodes"), (0.5, None), (None, None)],
)
def test_advice_on_data_tells_waiting_from_decoding(busy: float | None, words: str | None) -> None:
    ranks = [replace(rank(number, data=0.5, compute=0.5), workers=0, data_busy=busy) for number in (0, 1)]
    [advice] = advice_on(shares(data=0.5, compute=0.5), ranks, None)
    assert ("processor is busy" in advice.text) == (words is not None)
    assert words is None or words in advice.text
    assert ("give the loader num_workers" in advice.text) == (busy != 0.04), "workers bring no faster storage"


@pytest.mark.parametrize(
    ("size", "hosts", "is_slow"), [(4_000_000, 2, True), (4_000_000, 1, False), (10**9, 2, False), (0, 2, False)]
)
def test_a_slow_network_is_named_with_its_speed(size: int, hosts: int, is_slow: bool) -> None:
    both = [rank(number, communication=0.5, compute=0.5) for number in (0, 1)]
    ranks = [replace(each, sum_bytes=size, host=f"gpu{number % hosts}") for number, each in enumerate(both)]
    [advice] = advice_on(shares(communication=0.5, compute=0.5), ranks, None)
    assert advice.text.startswith("The network between the hosts is slow: each step sums 3.8 MiB") == is_slow


def test_reads_in_each_step_are_named_with_their_line() -> None:
    both = [rank(number, script=0.5, compute=0.5) for number in (0, 1)]
    ranks = [replace(each, reads=2.0, read_share=0.4, read_place="train.py line 30") for each in both]
    every = shares(script=0.5, compute=0.5)
    advice = advice_on(every, ranks, None)
    assert [(one.code, one.fraction, one.speedup) for one in advice] == [("READS", 0.4, 1.67)]
    assert "2 times in each step" in advice[0].text
    assert sentence_of(every, ranks, None, advice) == (
        "40 % of the time is spent waiting for numbers from the GPU in train.py line 30."
    )
    seldom = [replace(each, reads=0.01) for each in ranks]
    assert [one.code for one in advice_on(every, seldom, None)] == ["SCRIPT"]


def test_time_that_the_gpu_computes_is_not_the_reads() -> None:
    signs = to_json(RankSigns(reads=50, read_seconds=80.0, gpu_seconds=70.0, read_place="train.py line 30"))
    values = {"seconds": seconds(compute=100.0), "steps": 50, "caused": 0.0, "sums": 0, "last_in": 0, "signs": signs}
    assert rank_share("gpu0.0.1", 1, {}, values).read_share == 0.3


def test_a_batch_that_is_too_small_is_named() -> None:
    every = shares(compute=0.6, optimizer=0.2, script=0.05, communication=0.15)
    ranks = [rank(0, compute=0.6, optimizer=0.2, script=0.05, communication=0.15)]
    [advice] = advice_on(every, ranks, None, fixed_computing=0.9)
    assert (advice.code, advice.fraction) == ("BATCH", 0.89)
    assert sentence_of(every, [], None, [advice]).startswith("89 % of the time does not depend on the size")
    long = shares(compute=0.3, optimizer=0.35, script=0.05, communication=0.3)
    [first] = advice_on(long, [replace(ranks[0], shares=long)], None, fixed_computing=0.9)
    assert (first.code, first.fraction) == ("BATCH", 0.92), "an update of many small layers takes as long as they do"
    slow_data = shares(compute=0.2, data=0.7, optimizer=0.1)
    advised = advice_on(slow_data, [replace(ranks[0], shares=slow_data)], None, fixed_computing=0.9)
    assert [one.code for one in advised] == ["DATA", "OPTIMIZER"], "data may take the same for each batch"
    for fixed in (None, 0.05):
        assert [one.code for one in advice_on(every, ranks, None, fixed_computing=fixed)] == ["OPTIMIZER"]


def test_sums_of_a_tiny_batch_are_part_of_what_it_takes() -> None:
    every = shares(compute=0.35, communication=0.37, optimizer=0.12, script=0.16)
    ranks = [replace(rank(number), shares=every) for number in (0, 1)]
    [first, *others] = advice_on(every, ranks, None, fixed_computing=0.6)
    assert (first.code, first.fraction) == ("BATCH", 0.7)
    assert [one.code for one in others] == ["SCRIPT"], "its sums and updates are no advice of their own"
    slow = [replace(each, sum_bytes=4_000_000) for each in ranks]
    assert [one.code for one in advice_on(every, slow, None, fixed_computing=0.6)] == [
        *("COMMUNICATION", "BATCH", "SCRIPT")
    ], "a larger batch makes no network faster"
    long = shares(compute=0.3, communication=0.66, optimizer=0.04)
    both = [replace(each, shares=long) for each in ranks]
    assert [one.code for one in advice_on(long, both, None, fixed_computing=0.05)] == ["COMMUNICATION"]


@pytest.mark.parametrize(
    ("points", "fixed"),
    [
        ([], None),
        ([(4, 0.01, 100)], None),
        ([(4, 0.01, 100), (5, 0.011, 100)], None),
        ([(4, 0.014, 100), (2, 0.012, 20)], 10 / 14),
        ([(4, 0.004, 100), (8, 0.008, 20)], 0.0),
        ([(4, 0.010, 100), (8, 0.009, 20)], 1.0),
    ],
)
def test_what_each_batch_takes_is_told_by_two_sizes(points: list[tuple[int, float, int]], fixed: float | None) -> None:
    found = fixed_part(points)
    assert found == (None if fixed is None else pytest.approx(fixed, abs=1e-6))


def test_cores_that_are_used_up_are_named_with_the_limit() -> None:
    ranks = [replace(rank(number), core_limit=1.5, core_limit_share=share) for number, share in ((0, 0.43), (1, 0.05))]
    assert core_limit_words(ranks) == (
        "On gpu0, the training uses up the cores that it may use there: its processes had to wait in 43 % of the tenths"
        " of a second, with a limit of 1.5 cores. Ask for more cores with each GPU (--cpus), or start fewer workers."
    )
    assert core_limit_words([ranks[0], replace(ranks[1], core_limit_share=0.2)]).startswith(
        "On gpu0 and on 1 other host,"
    )
    assert core_limit_words([ranks[1]]) == core_limit_words([rank(0)]) == ""
    signs = to_json(RankSigns(core_limit=4.0, core_periods=200, core_periods_used_up=50))
    values = {"seconds": seconds(compute=100.0), "steps": 50, "caused": 0.0, "sums": 0, "last_in": 0, "signs": signs}
    assert (
        rank_share("gpu0.0.1", 1, {}, values).core_limit,
        rank_share("gpu0.0.1", 1, {}, values).core_limit_share,
    ) == (*(4.0, 0.25),)


def test_memory_says_how_far_the_limit_is() -> None:
    gib = 1024**3
    known = [replace(rank(number), gpu_limit_bytes=80 * gib, gpu_peak_step=9) for number in (0, 1)]
    peaks = zip(known, (40, 60), strict=True)
    ranks = [replace(each, gpu_peak_bytes=peak * gib, gpu_reserved_bytes=72 * gib) for each, peak in peaks]
    assert memory_words(ranks) == (
        "Rank 1 comes closest to the limit of its GPU's memory: its tensors have taken up to 60 GiB of 80 GiB, 25 %"
        " below the limit, first at its step 9. torch's allocator holds 72 GiB."
    )
    assert memory_words([rank(0)]) == "No rank computes on a GPU, so no memory of a GPU is measured."
    assert memory_words([]) == ""


def course(*peaks: int, limit: int = 80, each: int = 100) -> list[MemoryAt]:
    """Peaks in GiB, each so many steps after the one before."""
    gib = 1024**3
    return [
        MemoryAt(timezone.now(), each * (place + 1), peak * gib, (peak + 2) * gib, limit * gib)
        for place, peak in enumerate(peaks)
    ]


def test_a_peak_that_grows_is_named_before_the_memory_is_full() -> None:
    leak = course(20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, limit=40)
    assert memory_warning(leak).startswith(
        "The memory of a GPU fills up: its peak has grown to 31 GiB, and at this rate it reaches the limit of 40 GiB at"
        " about step 2,100. Look for tensors that are kept from step to step"
    )


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([], ""),
        (course(60, 61, 62, 62, 62, 62, 62, 62), ""),
        (course(10, 11, 12, 13, 14, 15, 16, 17, limit=800), ""),
        (course(70, 71, 72, 72, 72, 72, 72, 72), "Less than 12 % of a GPU's memory is left"),
        (course(20, 25, 30, 35, 40, 50, 55, 60, 20, 20), ""),
        (course(80, 80, 80, 80), "Less than 12 %"),
    ],
    ids=["unknown", "steady", "far from the limit", "nearly full", "a new attempt", "full"],
)
def test_memory_warns_only_where_there_is_a_reason(points: list[MemoryAt], words: str) -> None:
    assert memory_warning(points).startswith(words)
    assert bool(memory_warning(points)) == bool(words)


def test_memory_of_the_fullest_gpu_is_kept_by_step_and_one_event_warns(
    training: Job, cluster: Cluster, alice_api: APIClient, alice_client: Client
) -> None:
    first, second = training.ranks.order_by("rank").values_list("member_id", flat=True)
    gib = 1024**3
    for step, peak in [(10, 40), (20, 72), (30, 74)]:
        memory = {"peak_bytes": peak * gib, "reserved_bytes": 75 * gib, "limit_bytes": 80 * gib, "peak_step": step}
        small = memory | {"peak_bytes": gib}
        full, other = (told(first, compute=step), memory), (told(second, compute=step), small)
        ranks = [sums | {"signs": {"gpu_memory": used}} for sums, used in (full, other)]
        tell(cluster, training, *ranks, step=step)
    found = answer(alice_api, training)
    assert [(point["step"], point["peak_bytes"] // gib) for point in found["memory_points"]] == [
        *((10, 40), (20, 72), (30, 74))
    ]
    assert found["memory_warning"].startswith("Less than 12 %")
    [event] = [event.text for event in training.events.filter(reason=Reason.OUT_OF_MEMORY)]
    assert "tensors have taken up to 72 GiB of 80 GiB, 10 % below the limit" in event
    shown = alice_client.get(reverse("jobs:part", args=[training.pk, "slow"])).content.decode()
    assert shown.count('class="memory-peak"') == 3
    assert "Step 30: peak 74 GiB, held 75 GiB" in shown


def test_a_loader_without_workers_is_named_with_the_cores_of_its_hosts(
    training: Job, cluster: Cluster, alice_api: APIClient
) -> None:
    Host.objects.update(cores=16.0, ngpus=4, memory_bytes=2**36, usable_memory_bytes=2**36)
    members = training.ranks.order_by("rank").values_list("member_id", flat=True)
    tell(cluster, training, *(told(member, data=6, compute=4) | {"workers": 0} for member in members))
    Host.objects.update(cores=16.0, ngpus=4, memory_bytes=2**36, usable_memory_bytes=2**36)
    found = answer(alice_api, training)
    assert [each["workers"] for each in found["ranks"]] == [0, 0]
    assert (
        "num_workers=3. A worker keeps up to one core busy, of which the training has 4 with each GPU"
        in found["advice"][0]["text"]
    )


def test_cores_that_were_asked_for_count_instead_of_the_share(
    training: Job, cluster: Cluster, alice_api: APIClient
) -> None:
    """Workers as many as `num_workers="auto"` starts were said to be more than the cores."""
    Job.objects.filter(pk=training.pk).update(cpus_per_gpu=16)
    members = training.ranks.order_by("rank").values_list("member_id", flat=True)
    tell(cluster, training, *(told(member, data=6, compute=4) | {"workers": 15} for member in members))
    Host.objects.update(cores=16.0, ngpus=4, memory_bytes=2**36, usable_memory_bytes=2**36)
    assert "more workers than cores" not in answer(alice_api, training)["advice"][0]["text"]


def test_a_rank_for_which_nobody_waits_any_more_is_not_named(
    training: Job, cluster: Cluster, alice_api: APIClient
) -> None:
    first, second = training.ranks.order_by("rank").values_list("member_id", flat=True)
    late, on_time = {"sums": 1000, "last_in": 1000, "caused_seconds": 700.0}, {"sums": 1000, "last_in": 0}
    waits, slow = told(first, compute=900, data=2000, straggling=700), told(second, compute=900, data=2700)
    tell(cluster, training, waits | on_time, slow | late, step=1000)
    assert answer(alice_api, training)["straggler"] == 1
    row = TimeByCause.objects.get(job=training)
    row.points[-1]["at"] -= 600
    row.save()
    mended = told(first, compute=1500, data=2000, straggling=700), told(second, compute=1500, data=2700)
    tell(cluster, training, mended[0] | on_time, mended[1] | late, step=2000)
    found = answer(alice_api, training)
    assert (found["straggler"], found["advice"]) == (None, [])
    assert found["text"] == "The ranks spend 100 % computing: no other part takes 10 % of the time."


def test_sums_of_nothing_are_not_measured(training: Job, cluster: Cluster, alice_api: APIClient) -> None:
    tell(cluster, training, *(told(member) for member in training.ranks.values_list("member_id", flat=True)), step=0)
    assert answer(alice_api, training)["state"] == "waiting"


def test_rows_stay_small(
    training: Job, cluster: Cluster, alice_api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_by_cause, "MOST_RANKS", 3)
    monkeypatch.setattr(time_by_cause, "MOST_POINTS", 8)
    for number in range(20):
        tell(cluster, training, told(f"gpu-host-1.0.{number}", compute=3, data=1), step=number)
    row = TimeByCause.objects.get(job=training)
    assert (len(row.ranks), len(row.points) <= 8) == (3, True)
    assert row.points[-1]["seconds"] == seconds(compute=60, data=20), "nothing is lost of those that have left"
    assert [point["at"] for point in row.points] == sorted(point["at"] for point in row.points)


def test_who_may_not_see_the_job_is_told_nothing(training: Job, bob_api: APIClient) -> None:
    assert bob_api.get(f"/api/v1/jobs/{training.pk}/time/").status_code == 404


def test_the_page_draws_bars_of_a_hundred_percent(training: Job, cluster: Cluster, alice_client: Client) -> None:
    first, second = training.ranks.order_by("rank").values_list("member_id", flat=True)
    tell(cluster, training, told(first, data=6, compute=4), told(second, data=4, compute=6))
    tell(cluster, training, told(first, data=6, compute=9), step=12)
    shown = alice_client.get(reverse("jobs:part", args=[training.pk, "slow"])).content.decode()
    assert 'class="part-data"' in shown
    assert "slow-columns" in shown
    assert "Read data ahead" in shown
    tabs = alice_client.get(reverse("jobs:detail", args=[training.pk])).content.decode()
    assert "Why this speed" in tabs


def test_segments_fill_the_bar() -> None:
    bar = bar_of(shares(data=0.62, compute=0.3, script=0.08))
    assert sum(segment.length for segment in bar.segments) == pytest.approx(WIDTH)
    assert bar.text == "Compute 30 %, Data 62 %, Script 8.0 %"


def test_a_training_that_computes_gets_no_advice() -> None:
    every = shares(compute=0.95, data=0.03, optimizer=0.02)
    assert advice_on(every, [rank(0, compute=0.95)], None) == []
    assert sentence_of(every, [], None) == "The ranks spend 95 % computing: no other part takes 10 % of the time."


def test_now_is_the_newest_minute() -> None:
    points = [
        {"at": 0.0, "step": 1, "seconds": seconds(data=10)},
        {"at": 100.0, "step": 2, "seconds": seconds(data=110)},
        {"at": 170.0, "step": 3, "seconds": seconds(data=110, compute=70)},
    ]
    assert recent_shares(points) == shares(compute=1.0)
    assert recent_shares([]) == {}
    assert [each.shares["data"] for each in share_points(points)] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("jump", [3600.0, -3600.0, 0.0])
def test_now_is_the_newest_minute_also_after_the_clock_was_set(jump: float) -> None:
    points = [
        {"at": 30.0 * number + jump * (number >= 4), "step": number, "seconds": seconds(data=10 * number)}
        for number in range(5)
    ]
    for number in range(5, 9):
        computed = seconds(data=40, compute=30 * (number - 4))
        points.append({"at": 30.0 * number + jump, "step": number, "seconds": computed})
    assert recent_shares(points) == shares(compute=1.0)


def test_compare_has_a_bar_for_each_training_that_is_measured(
    training: Job, cluster: Cluster, alice: User, alice_client: Client
) -> None:
    other = JobFactory(owner=alice)
    address = f"/jobs/compare/?jobs={training.pk},{other.pk}"
    assert "Time by cause" not in alice_client.get(address).content.decode()
    first = training.ranks.order_by("rank").values_list("member_id", flat=True)[0]
    tell(cluster, training, told(first, data=6, compute=4))
    shown = alice_client.get(address).content.decode()
    assert shown.count('class="slow-bar"') == 1
    assert "Compute 40 %, Data 60 %" in shown


def test_the_next_training_says_what_came_of_the_advice(cluster: Cluster, submit: Submit, alice_api: APIClient) -> None:
    first, second = (measured(cluster, submit, step_seconds) for step_seconds in (0.4, 0.25))
    assert answer(alice_api, first)["outcomes"] == []
    [outcome] = answer(alice_api, second)["outcomes"]
    assert (outcome["job"], outcome["code"], outcome["speedup"]) == (first.pk, "DATA", 1.6)
    assert (outcome["share_before"], outcome["share_after"]) == (0.5, 0.2)
    assert "was advised about data (50 % of its time, up to 2 times as fast)" in outcome["text"]


def measured(cluster: Cluster, submit: Submit, step_seconds: float) -> Job:
    """A training on one rank that computes 0.2 s in each step, and waits for data in the rest of it."""
    job = submit(max_slots=1)
    cluster.turn(2)
    cluster.train(job)
    cluster.turn()
    job.refresh_from_db()
    data = step_seconds - 0.2
    JobProfile.objects.create(job=job, batch_size=64, at=timezone.now())
    row = TimeByCause(job=job, at=timezone.now(), ranks={}, points=[])
    for step in (0, 100):
        spent = seconds(compute=0.2 * step, data=data * step)
        row.points.append({"at": 1000.0 + step_seconds * step, "step": step, "seconds": spent})
    row.save()
    return job


@pytest.mark.parametrize(
    "points",
    [
        [],
        [{"at": 0.0, "step": 0, "seconds": seconds()}],
        [{"at": 0.0, "step": 0, "seconds": seconds()}, {"at": 5.0, "step": 9, "seconds": seconds(data=5)}],
        [{"at": 0.0, "step": 9, "seconds": seconds()}, {"at": 50.0, "step": 9, "seconds": seconds(data=5)}],
    ],
)
def test_a_pace_is_told_only_where_it_is_known(points: list[dict[str, Any]]) -> None:
    assert pace_of(points, 64) is None
    whole = [{"at": 0.0, "step": 0, "seconds": seconds()}, {"at": 20.0, "step": 40, "seconds": seconds(data=40)}]
    assert pace_of(whole, 64) == (128.0, 2.0)


def test_a_pace_is_that_of_the_time_in_which_ranks_trained() -> None:
    """Four ranks that waited half of the time were compared with two."""
    points = [
        {"at": at, "step": step, "seconds": seconds(compute=spent)}
        for at, step, spent in ((0.0, 0, 0.0), (500.0, 1000, 2000.0), (999.0, 1000, 2000.1), (1499.0, 2000, 4000.1))
    ]
    assert pace_of(points, 64) == (128.0, 4.0)
