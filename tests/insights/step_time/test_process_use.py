"""What the processes of a training use, of any program: the sentence, the ranks, the course, the page and REST."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient
from tidepool.protocol import DeviceReading, ProcessUse

from insights.step_time.process_use import UseAt, mean_within, process_use, use_words
from jobs.control.gpu_spans import SPAN, HostUse, Span, store, to_json
from jobs.gpu_time import moment, to_ms
from jobs.models import Job, Rank, SlotClaim
from jobs.states import JobState
from models_registry.models import RegisteredModelVersion
from tests.factories import HostFactory, JobFactory, SlotClaimFactory, SlotFactory
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.models import GpuReading, Host

pytestmark = pytest.mark.django_db

NOW = moment(to_ms(timezone.now()) // SPAN * SPAN)
_MEBIBYTE = 2**20


@pytest.fixture
def program(alice: User) -> Job:
    """A program that is no Python script, one process for all of its GPUs, since two minutes."""
    engine = RegisteredModelVersion.Engine.SINGLE
    return JobFactory(
        owner=alice,
        model__engine=engine,
        state=JobState.RUNNING,
        attempt=1,
        started_at=NOW - timedelta(minutes=2),
    )


def held(job: Job, host: Host, index: int, use: HostUse, *, busy: float | None = 35.0, seconds: int = 120) -> SlotClaim:
    slot = SlotFactory(host=host, index=index, virtual=host.virtual)
    end = to_ms(NOW)
    claim = SlotClaimFactory(slot=slot, job=job, claimed_at=NOW - timedelta(seconds=seconds))
    spans = [Span(claim.pk, at, at + SPAN, busy, 1, use) for at in range(end - seconds * 1000, end - SPAN, SPAN)]
    store(host.pk, spans)
    GpuReading.objects.create(slot=slot, at=NOW, open_span=to_json(Span(claim.pk, end - SPAN, end, busy, 1, use)))
    return claim


@pytest.fixture
def host(db: None) -> Host:
    return HostFactory(name="gpu1", virtual=False, cores=8.0, usable_memory_bytes=2**34, ngpus=4)


def answer(api: APIClient, job: Job) -> dict[str, object]:
    found: dict[str, object] = api.get(f"/api/v1/jobs/{job.pk}/time/").json()
    return found


def test_a_program_without_causes_shows_what_its_processes_use(
    program: Job, host: Host, alice_api: APIClient, alice: User
) -> None:
    Rank.objects.create(job=program, attempt=1, member_id="gpu1.0.1", host="gpu1", slot=0, pid=7, started_at=0.0)
    for index in (0, 1):
        held(program, host, index, HostUse(0.45, 60 * _MEBIBYTE, 0.0))
    found = answer(alice_api, program)
    sentence = "Its processes use 0.9 of 4 cores, read 120 MiB/s from disk, and the GPUs compute 35 % of the time."
    assert found["processes"] == (f"{sentence} Their network is not counted, because they share that of their host.")
    assert found["state"] == "not_told_apart"
    assert str(found["text"]).startswith(sentence)
    assert found["process_ranks"] == [
        {
            "rank": None,
            "host": "gpu1",
            "gpus": 2,
            "cores": 0.9,
            "share_cores": 4.0,
            "read_rate": 120.0 * _MEBIBYTE,
            "written_rate": 0.0,
            "received_rate": None,
            "sent_rate": None,
            "gpu_busy": 0.35,
        }
    ]
    points = found["process_points"]
    assert isinstance(points, list)
    assert len(points) == 12
    assert {(point["cores"], point["read_rate"], point["gpu_busy"]) for point in points} == {
        (0.9, 120.0 * _MEBIBYTE, 0.35)
    }


def test_reports_of_an_executor_come_to_the_page(cluster: Cluster, submit: Submit, alice_api: APIClient) -> None:
    job = submit(max_slots=1)
    cluster.turn(2)
    cluster.train(job)
    claim = SlotClaim.objects.select_related("slot__host").get(job=job)
    reporting, index = cluster.hosts[claim.slot.host.name], claim.slot.index
    use = ProcessUse(1.5, 2.0 * _MEBIBYTE, 0.0)
    devices = [DeviceReading(index, "virtual GPU (CPU)", True, 100.0, 2**20, None, processes=use)]
    # A reading covers the time from the one before it.
    SlotClaim.objects.update(claimed_at=timezone.now() - timedelta(minutes=1))
    GpuReading.objects.update(at=timezone.now() - timedelta(seconds=12))
    reporting.send(devices=devices)
    found = answer(alice_api, job)
    assert str(found["text"]).startswith("Its processes use 1.5 cores and read 2 MiB/s from disk.")
    assert isinstance(found["process_ranks"], list)
    [rank] = found["process_ranks"]
    assert (rank["rank"], rank["host"], rank["cores"]) == (0, claim.slot.host.name, 1.5)


def test_the_page_draws_what_is_known(program: Job, host: Host, client: Client, alice: User) -> None:
    held(program, host, 0, HostUse(1.5, 3 * _MEBIBYTE, 0.0))
    client.force_login(alice)
    page = client.get(reverse("jobs:part", args=[program.pk, "slow"])).content.decode()
    assert "Its processes use 1.5 of 2 cores" in page
    assert "Cores over time: now 1.5 cores, upper edge 1.5 cores" in page
    assert "Read from disk over time: now 3 MiB/s" in page
    assert "Written to disk over time" not in page, "a course that is 0 all the time says nothing"
    assert "Received over time" not in page


def test_nothing_is_said_before_anything_is_known(program: Job, host: Host, alice_api: APIClient) -> None:
    assert answer(alice_api, program)["processes"] == ""
    held(program, host, 0, HostUse())
    found = answer(alice_api, program)
    assert (found["processes"], found["process_ranks"], found["process_points"]) == ("", [], [])


def test_a_gpu_that_joined_late_counts_for_its_time(program: Job, host: Host) -> None:
    held(program, host, 0, HostUse(1.0))
    held(program, host, 1, HostUse(2.0), seconds=30)
    found = process_use(program, NOW)
    assert [point.cores for point in found.points] == [1.0] * 9 + [3.0] * 3
    assert sum(rank.cores or 0.0 for rank in found.ranks) == pytest.approx(2.0), "a process holds both on average"


def test_a_virtual_gpu_is_a_processor_and_says_nothing_beside_it(program: Job) -> None:
    held(program, HostFactory(virtual=True), 0, HostUse(1.0, 0.0, 0.0))
    text = process_use(program, NOW).text
    assert text.startswith("Its processes use 1.0 cores and hardly use a disk.")
    assert "GPU" not in text


def test_a_training_that_is_over_tells_of_its_last_minute(program: Job, host: Host) -> None:
    held(program, host, 0, HostUse(1.0, 0.0, 5.0 * _MEBIBYTE))
    SlotClaim.objects.update(released_at=NOW)
    program.state, program.finished_at = JobState.SUCCEEDED, NOW
    found = process_use(program, NOW + timedelta(hours=1))
    assert found.text.startswith(
        "In its last minute, its processes used 1.0 of 2 cores, wrote 5 MiB/s to disk, and the GPU computed 35 %"
    )
    assert len(found.ranks) == 1


USE = UseAt(NOW, 2.0, 2e6, 3e6, 4e6, 5e6, 0.5)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (
            USE,
            "use 2.0 of 4 cores, read 1.9 MiB/s from disk, write 2.9 MiB/s to disk,"
            " receive 3.8 MiB/s and send 4.8 MiB/s over the network, and the GPU computes 50 % of the time.",
        ),
        (replace(USE, read_rate=None), "What they read and write on disks is not known: the kernel does not tell"),
        (replace(USE, sent_rate=None, received_rate=None), "Their network is not counted, because they share"),
        (replace(USE, received_rate=0.0, sent_rate=0.0), "hardly use the network, and"),
    ],
)
def test_a_sentence_says_what_is_missing(use: UseAt, words: str) -> None:
    assert words in use_words(use, 4.0, 1)


def test_a_figure_that_one_rank_lacks_is_unknown_for_all() -> None:
    spans = {
        1: [Span(1, 0, SPAN, 50.0, 1, HostUse(1.0, 10.0, 10.0))],
        2: [Span(2, 0, SPAN, None, 1, HostUse(1.0, None, 10.0))],
    }
    use = mean_within(spans, {1, 2}, 0, SPAN)
    assert use == UseAt(moment(SPAN), 2.0, None, 20.0, None, None, 0.5)
    assert mean_within(spans, {1, 2}, SPAN, 2 * SPAN) is None
