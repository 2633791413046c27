"""Recordings by REST and on the page: the request reaches the hosts, answers are read, and bad ones are let be."""

import gzip
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient
from tidepool.protocol import (
    FlameAnswer,
    RecordingKind,
    RecordingRequest,
    SampledFunction,
    SampledThread,
    TraceAnswer,
    TracedOperator,
    to_json,
)
from tidepool.recordings.requests import ANSWER_FILES, TRACE_FILE

from insights.recordings.flame import drawn_flame
from jobs.control.dispatch import build_sync
from jobs.files.job_folder import job_folder
from jobs.models import Job, JobRun, Rank
from jobs.queries.rank_numbers import rank_numbers
from jobs.states import JobState
from tests.factories import JobFactory, SlotClaimFactory, SlotFactory
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.models import Host, Slot

pytestmark = pytest.mark.django_db

Answer = Callable[..., None]


@pytest.fixture
def training(cluster: Cluster, submit: Submit) -> Job:
    """A training with 8 ranks on two hosts."""
    job = submit()
    cluster.turn(2)
    cluster.train(job)
    cluster.turn()
    job.refresh_from_db()
    assert job.ranks.count() == 8
    return job


def rank_of(job: Job, number: int) -> Rank:
    [member] = [member for member, rank in rank_numbers(job, job.run.attempt).items() if rank == number]
    return job.ranks.get(member_id=member)


def folder_of(job: Job, number: int) -> Path:
    rank = rank_of(job, number)
    folder = job_folder(job).attempt(job.run.attempt) / "log" / f"{rank.member_id}.{rank.host}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def answer(job: Job, answer: FlameAnswer | TraceAnswer, rank: int = 0) -> None:
    """Write what the rank would."""
    kind = "flame" if isinstance(answer, FlameAnswer) else "trace"
    (folder_of(job, rank) / ANSWER_FILES[kind]).write_text(json.dumps(to_json(answer)))


def sampled(job: Job, number: int = 1) -> FlameAnswer:
    """Return 100 samples: 60 in load, 30 in a library that step has called, 10 in step itself."""
    code = job_folder(job).code
    functions = [
        SampledFunction("run", "<frozen runpy>", 1),
        SampledFunction("main", f"{code}/train.py", 12),
        SampledFunction("load", f"{code}/dataset.py", 41),
        SampledFunction("step", f"{code}/train.py", 30),
        SampledFunction("Tensor.backward", "/venv/lib/python3.11/site-packages/torch/_tensor.py", 500),
    ]
    main = SampledThread("MainThread", True, [[0, 1, 2], [0, 1, 3, 4], [0, 1, 3]], [60, 30, 10])
    other = SampledThread("heartbeats", False, [[1]], [100])
    return FlameAnswer(number, seconds=10.02, samples=100, functions=functions, threads=[main, other])


def traced(number: int = 1, **changes: Any) -> TraceAnswer:
    operators = [TracedOperator("sgemm", True, 30, 0.2), TracedOperator("aten::mm", False, 30, 0.1)]
    given = {"steps": 3, "seconds": 0.4, "operators": operators, "cpu_seconds": 0.3, "gpu_seconds": 0.24}
    return TraceAnswer(number, **given | {"file_bytes": 2048} | changes)


def wanted(host: str, job: Job) -> RecordingRequest | None:
    [desired] = [each for each in build_sync(host).jobs if each.job == job.pk]
    return desired.recording


def later(job: Job, kind: RecordingKind, seconds: float) -> None:
    """Let the request have been made so long ago."""
    run = JobRun.objects.get(job=job)
    run.recordings[kind]["at"] = (timezone.now() - timedelta(seconds=seconds)).isoformat()
    run.save()


def test_a_flame_graph_is_requested_and_told_in_a_sentence_and_a_table(training: Job, alice_api: APIClient) -> None:
    address = f"/api/v1/jobs/{training.pk}/flame/"
    before = alice_api.get(address).json()
    assert (before["state"], before["number"], before["text"]) == ("none", 0, "")

    begun = alice_api.post(address, {"rank": 3, "seconds": 5}, format="json")
    assert begun.status_code == 202
    assert (begun.json()["state"], begun.json()["rank"], begun.json()["requested_by"]) == ("recording", 3, "alice")
    rank = rank_of(training, 3)
    assert wanted(rank.host, training) == RecordingRequest(1, "flame", rank.member_id, 5)

    answer(training, sampled(training), rank=3)
    found = alice_api.get(address).json()
    assert (found["state"], found["samples"], found["seconds"]) == ("recorded", 100, 10.0)
    assert found["text"] == "In 60 % of 100 samples within 10 s, rank 3 is in dataset.py line 41, in load."
    shares = {each["name"]: (each["is_own"], each["self_share"], each["total_share"]) for each in found["functions"]}
    assert shares == {
        "load": (True, 0.6, 0.6),
        "Tensor.backward": (False, 0.3, 0.3),
        "step": (True, 0.1, 0.4),
        "main": (True, 0.0, 1.0),
    }


def test_functions_of_c_have_their_library_and_no_part_in_the_sentence(training: Job, alice_api: APIClient) -> None:
    address = f"/api/v1/jobs/{training.pk}/flame/"
    begun = alice_api.post(address, {"seconds": 5, "native": True}, format="json").json()
    assert begun["is_native"] is True
    rank = rank_of(training, 0)
    assert wanted(rank.host, training) == RecordingRequest(1, "flame", rank.member_id, 5, native=True)
    assert alice_api.post(address, {"seconds": 5}, format="json").status_code == 409, "the one with C is recorded"

    training.refresh_from_db()
    library = "/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"
    functions = [
        SampledFunction("load", f"{job_folder(training).code}/dataset.py", 41),
        SampledFunction("at::native::copy_", library, 0, is_native=True),
    ]
    main = SampledThread("MainThread", True, [[0, 1], [0]], [75, 25])
    answer(training, FlameAnswer(1, seconds=5.0, samples=100, functions=functions, threads=[main], is_native=True))
    found = alice_api.get(address).json()
    assert found["text"] == "In 100 % of 100 samples within 5 s, rank 0 is in dataset.py line 41, in load."
    assert [(each["name"], each["place"], each["is_own"], each["is_native"]) for each in found["functions"]] == [
        ("at::native::copy_", "torch/lib/libtorch_cpu.so", False, True),
        ("load", "dataset.py line 41", True, False),
    ]
    assert {box.name: box.kind for box in drawn_flame(training)} == {"load": "own", "at::native::copy_": "native"}


def test_without_py_spy_the_sentence_says_where_it_is_missing(training: Job, alice_api: APIClient) -> None:
    address = f"/api/v1/jobs/{training.pk}/flame/"
    alice_api.post(address, {"native": True}, format="json")
    training.refresh_from_db()
    later(training, "flame", 40)
    assert alice_api.get(address).json()["state"] == "recording", "py-spy looks up the names of functions"
    answer(training, FlameAnswer(1, "no_py_spy"))
    text = alice_api.get(address).json()["text"]
    assert text.startswith("Rank 0 has no py-spy")
    assert rank_of(training, 0).host in text


def test_the_drawing_has_each_function_below_its_caller(training: Job, alice_api: APIClient) -> None:
    alice_api.post(f"/api/v1/jobs/{training.pk}/flame/")
    training.refresh_from_db()
    answer(training, sampled(training))
    boxes = {box.name: (box.row, box.start, box.width, box.kind) for box in drawn_flame(training)}
    assert boxes == {
        "main": (0, 0.0, 100.0, "own"),
        "load": (1, 0.0, 60.0, "own"),
        "step": (1, 60.0, 40.0, "own"),
        "Tensor.backward": (2, 60.0, 30.0, "library"),
    }


def test_the_file_is_in_the_form_of_speedscope(training: Job, alice_api: APIClient) -> None:
    address = f"/api/v1/jobs/{training.pk}/flame.speedscope.json"
    assert alice_api.get(address).status_code == 404
    alice_api.post(f"/api/v1/jobs/{training.pk}/flame/")
    answer(training, sampled(training))
    response = alice_api.get(address)
    found = json.loads(b"".join(response.streaming_content))
    assert found["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    main, other = found["profiles"]
    assert (main["type"], main["unit"], main["startValue"], other["name"]) == ("sampled", "seconds", 0, "heartbeats")
    assert len(main["samples"]) == len(main["weights"])
    assert sum(main["weights"]) == pytest.approx(main["endValue"]) == pytest.approx(10.02)
    assert all(place < len(found["shared"]["frames"]) for stack in main["samples"] for place in stack)


def test_a_trace_is_requested_told_and_downloaded(training: Job, alice_api: APIClient) -> None:
    address = f"/api/v1/jobs/{training.pk}/trace/"
    assert alice_api.post(address, {"steps": 3}, format="json").json()["state"] == "recording"
    answer(training, traced())
    found = alice_api.get(address).json()
    assert found["text"] == (
        "3 steps of rank 0 took 400 ms: kernels ran on the GPU for 60 % of the time, operators on the CPU for 75 %."
    )
    assert (found["cpu_share"], found["gpu_share"], found["size_bytes"]) == (0.75, 0.6, 2048)
    first = {"name": "sgemm", "is_on_gpu": True, "calls": 30, "milliseconds": 200.0, "share": 0.5}
    assert found["operators"][0] == first

    file = f"/api/v1/jobs/{training.pk}/trace.json.gz"
    assert alice_api.get(file).status_code == 404
    (folder_of(training, 0) / TRACE_FILE).write_bytes(gzip.compress(b"{}"))
    assert gzip.decompress(b"".join(alice_api.get(file).streaming_content)) == b"{}"


def test_what_a_trace_says_without_a_gpu_when_cut_off_and_on_memory(training: Job, alice_api: APIClient) -> None:
    address = f"/api/v1/jobs/{training.pk}/trace/"
    alice_api.post(address)
    answer(training, traced(steps=1, seconds=21.0, cpu_seconds=4.2, gpu_seconds=None, is_cut=True))
    assert alice_api.get(address).json()["text"] == (
        "1 step of rank 0 took 21.0 s: operators ran for 20 % of the time, the rest is Python and waiting. The trace"
        " was ended early, because the steps took longer than 20 s."
    )
    memory = {"gpu_peak_bytes": 60 * 2**30, "gpu_reserved_bytes": 66 * 2**30, "gpu_total_bytes": 75 * 2**30}
    answer(training, traced(**memory))
    assert (
        alice_api.get(address)
        .json()["text"]
        .endswith(
            "Tensors have taken at most 60 GiB of the GPU's 75 GiB, and 66 GiB are reserved for them:"
            " 12 % below the limit."
        )
    )


def test_who_asks_for_the_same_shares_it_and_another_recording_waits(
    training: Job, alice_api: APIClient, carol_api: APIClient
) -> None:
    address = f"/api/v1/jobs/{training.pk}/flame/"
    assert [api.post(address).json()["number"] for api in (alice_api, carol_api)] == [1, 1]
    refused = carol_api.post(f"/api/v1/jobs/{training.pk}/trace/")
    assert refused.status_code == 409
    assert "alice records a flame graph of rank 0" in refused.json()["error"]
    answer(training, sampled(training))
    assert carol_api.post(f"/api/v1/jobs/{training.pk}/trace/").json()["number"] == 2
    kept = alice_api.get(address).json()
    assert (kept["number"], kept["state"]) == (1, "recorded")


@pytest.fixture
def sharer(training: Job, alice: User) -> Job:
    """Another training, with one rank on the GPU of the first one's rank 0."""
    first = rank_of(training, 0)
    Slot.objects.filter(host__name=first.host, index=first.slot).update(virtual=False, device_uuid="GPU-1")
    slot = SlotFactory(host=Host.objects.get(name=first.host), index=9, virtual=False, device_uuid="GPU-1")
    job = JobFactory(owner=alice, state=JobState.RUNNING, attempt=1)
    SlotClaimFactory(job=job, slot=slot)
    place = {"host": first.host, "slot": 9, "pid": 7, "started_at": 0.0}
    Rank.objects.create(job=job, attempt=1, member_id=f"{first.host}.9.1", rank=0, **place)
    return job


@pytest.mark.parametrize(("rank", "status"), [(0, 409), (1, 202)])
def test_a_gpu_is_traced_for_one_training_at_a_time(
    training: Job, sharer: Job, alice_api: APIClient, rank: int, status: int
) -> None:
    shared, other = (f"/api/v1/jobs/{job.pk}/trace/" for job in (sharer, training))
    assert alice_api.post(other, {"rank": rank, "steps": 3}, format="json").status_code == 202
    refused = alice_api.post(shared)
    assert refused.status_code == status
    if status == 409:
        assert refused.json()["error"].startswith("Another training on the same GPU of ")
        assert alice_api.post(f"/api/v1/jobs/{sharer.pk}/flame/").status_code == 202, "a flame graph needs no profiler"
        later(sharer, "flame", 90)
        answer(training, traced())
        assert alice_api.post(shared).status_code == 202


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        ("stopped", "is stopped, by SIGSTOP or a debugger"),
        ("ended", "has ended before"),
        ("busy", "still records"),
        ("no_torch", "has not imported torch"),
        ("profiled", "a profiler of torch of its own"),
        ("no_steps", "No optimizer of rank 0"),
        ("too_long", "did not come to the end of a step"),
        ("too_large", "more than a million events"),
        ("failed", "could not record: {odd}"),
    ],
)
def test_a_rank_that_cannot_record_says_why(training: Job, alice_api: APIClient, problem: Any, words: str) -> None:
    address = f"/api/v1/jobs/{training.pk}/trace/"
    alice_api.post(address)
    answer(training, TraceAnswer(1, problem, "{odd}"))
    found = alice_api.get(address).json()
    assert found["state"] == "failed"
    assert words in found["text"]
    assert alice_api.post(address).json()["number"] == 2


def test_a_rank_that_ends_meanwhile_is_named(training: Job, alice_api: APIClient) -> None:
    address = f"/api/v1/jobs/{training.pk}/flame/"
    alice_api.post(address)
    Rank.objects.filter(pk=rank_of(training, 0).pk).update(exit={"code": None, "signal": 9, "error": None})
    found = alice_api.get(address).json()
    assert (found["state"], found["text"]) == ("failed", "Rank 0 has ended before it had recorded anything.")


def test_a_rank_that_does_not_answer_is_named(training: Job, alice_api: APIClient) -> None:
    address = f"/api/v1/jobs/{training.pk}/flame/"
    alice_api.post(address, {"seconds": 10}, format="json")
    later(training, "flame", 20)
    assert alice_api.get(address).json()["state"] == "recording"
    later(training, "flame", 30)
    found = alice_api.get(address).json()
    assert found["state"] == "failed"
    assert "Rank 0 has not answered" in found["text"]
    assert alice_api.post(address).json()["number"] == 2


@pytest.mark.parametrize("content", ["", "\0", "[]", "[" * 100_000, '{"number": 1, "problem": "?"}', '{"number": 2}'])
def test_what_a_script_writes_in_its_place_is_no_answer(training: Job, alice_api: APIClient, content: str) -> None:
    address = f"/api/v1/jobs/{training.pk}/flame/"
    alice_api.post(address)
    (folder_of(training, 0) / ANSWER_FILES["flame"]).write_text(content)
    assert alice_api.get(address).json()["state"] == "recording"


def test_stacks_that_name_functions_which_are_not_there_are_let_be(training: Job, alice_api: APIClient) -> None:
    address = f"/api/v1/jobs/{training.pk}/flame/"
    alice_api.post(address)
    threads = [SampledThread("MainThread", True, [[7], [], [0]], [1, 1])]
    answer(training, FlameAnswer(1, samples=3, functions=[SampledFunction("<b>", "\ud800", 0)], threads=threads))
    found = alice_api.get(address).json()
    assert (found["state"], found["functions"]) == ("recorded", [])
    assert found["text"] == "Rank 0 was in no function of Python in 3 samples."


@pytest.mark.parametrize(
    ("body", "field"),
    [({"seconds": 4}, "seconds"), ({"seconds": 61}, "seconds"), ({"rank": -1}, "rank"), ({"rank": 8}, "rank")],
)
def test_other_amounts_and_ranks_are_refused(
    training: Job, alice_api: APIClient, body: dict[str, int], field: str
) -> None:
    refused = alice_api.post(f"/api/v1/jobs/{training.pk}/flame/", body, format="json")
    assert (refused.status_code, set(refused.json()["fields"])) == (400, {field})


def test_a_training_without_ranks_is_refused(alice: User, alice_api: APIClient, cluster: Cluster) -> None:
    waiting = JobFactory(owner=alice)
    over = JobFactory(owner=alice, state="FAILED", finished_at=timezone.now())
    for job, words in ((waiting, "holds no GPU"), (over, "is over")):
        refused = alice_api.post(f"/api/v1/jobs/{job.pk}/trace/")
        assert refused.status_code == 409
        assert words in refused.json()["error"]


def test_a_request_to_a_former_attempt_is_not_sent_again(training: Job, alice_api: APIClient) -> None:
    alice_api.post(f"/api/v1/jobs/{training.pk}/flame/")
    JobRun.objects.filter(job=training).update(attempt=2)
    assert wanted("gpu-host-1", training) is None
    assert alice_api.get(f"/api/v1/jobs/{training.pk}/flame/").json()["state"] == "failed"


def test_the_buttons_show_what_came_of_them(training: Job, alice_client: Client) -> None:
    address = reverse("insights:record", args=[training.pk, "flame"])
    hx = {"HX-Request": "true"}
    shown = alice_client.post(address, {"rank": "0", "amount": "10"}, headers=hx).content.decode()
    assert "Rank 0 records for 10 s." in shown
    answer(training, sampled(training))
    part = alice_client.get(reverse("jobs:part", args=[training.pk, "recordings"])).content.decode()
    assert "rank 0 is in dataset.py line 41, in load." in part
    assert part.count("<title>") == 4
    other = reverse("insights:record", args=[training.pk, "trace"])
    assert alice_client.post(other, {"rank": "0", "amount": "2"}).status_code == 302
    answer(training, traced(2))
    part = alice_client.get(reverse("jobs:part", args=[training.pk, "recordings"])).content.decode()
    assert "kernels ran on the GPU for 60 % of the time" in part
    assert "200.0 ms" in part
    assert alice_client.post(address.replace("flame", "film"), headers=hx).status_code == 404


@pytest.mark.parametrize(
    ("body", "words"),
    [({}, "Give the number of a rank"), ({"rank": "0", "amount": "99"}, "5 to 60 seconds, not 99")],
)
def test_a_button_says_why_not(training: Job, alice_client: Client, body: dict[str, str], words: str) -> None:
    address = reverse("insights:record", args=[training.pk, "flame"])
    assert words in alice_client.post(address, body, headers={"HX-Request": "true"}).content.decode()
