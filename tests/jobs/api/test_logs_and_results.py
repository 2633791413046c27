"""Logs are read piece by piece and results are sent as a stream; neither leads out of the job's folder."""

import io
import os
import zipfile

import pytest
from django.test import AsyncClient

from jobs.files.job_folder import job_folder
from jobs.files.logs import MAX_LOG_BYTES, first_written
from jobs.models import Generation, Job, Rank
from jobs.states import RankState
from tests.factories import set_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def started(alices_job):
    """A job in its second attempt; gives the folder of that attempt."""
    set_job(alices_job, attempt=2)
    folder = job_folder(alices_job)
    folder.start_attempt(1)
    current = folder.start_attempt(2)
    for number, (member_id, generation) in enumerate([("h.0.1", 1), ("h.1.1", 2), ("h.0.2", 2)]):
        Rank.objects.create(
            job=alices_job,
            attempt=2,
            member_id=member_id,
            host="h",
            slot=number % 2,
            pid=1,
            started_at=1.0,
            rank=[0, 1, 0][number],
            generation=generation,
        )
        (current / "log" / f"{member_id}.h").mkdir()
        (current / "log" / f"{member_id}.h" / "stdout").write_text(f"I am {member_id}\n")
    return current


def _log(api, job: Job, **query):
    return api.get(f"/api/v1/jobs/{job.pk}/logs/", query).json()


@pytest.mark.parametrize(("rank", "member_id"), [("h.0.1", "h.0.1"), ("0", "h.0.2"), ("1", "h.1.1"), ("", "h.0.2")])
def test_a_rank_by_id_or_number(alice_api, alices_job, started, rank, member_id):
    assert _log(alice_api, alices_job, rank=rank) == {
        "rank": member_id,
        "stream": "stdout",
        "text": f"I am {member_id}\n",
        "next": len(f"I am {member_id}\n"),
    }


def test_a_rank_that_has_ended_keeps_its_number_for_its_log(alice_api, alices_job, started):
    Rank.objects.filter(job=alices_job).update(rank=None, state=RankState.EXITED)
    members = [{"member_id": "h.1.1", "rank": 0, "host": "h", "slot": 1}]
    Generation.objects.create(job=alices_job, attempt=2, number=2, members=members, world_size=1)
    assert _log(alice_api, alices_job, rank="0")["rank"] == "h.1.1"
    assert _log(alice_api, alices_job)["rank"] == "h.1.1"
    assert alice_api.get(f"/api/v1/jobs/{alices_job.pk}/logs/?rank=1").status_code == 404


def test_the_log_to_open_first_has_content(alices_job, started):
    assert first_written(alices_job) == {"rank": "h.0.2", "stream": "stdout"}
    (started / "log" / "h.0.2.h" / "stdout").write_text("")
    assert first_written(alices_job) == {"rank": "h.0.1", "stream": "stdout"}
    (started / "log" / "h.0.2.h" / "stderr").write_text("a warning\n")
    assert first_written(alices_job) == {"rank": "h.0.2", "stream": "stderr"}


def test_no_log_is_opened_before_there_is_a_rank(alices_job):
    assert first_written(alices_job) is None


def test_a_rank_that_the_job_never_had(alice_api, alices_job, started):
    assert alice_api.get(f"/api/v1/jobs/{alices_job.pk}/logs/?rank=7").status_code == 404


def test_before_it_has_ranks_the_log_is_empty(alice_api, alices_job):
    assert _log(alice_api, alices_job) == {"rank": None, "stream": "stdout", "text": "", "next": 0}


def test_a_log_is_followed_from_where_one_was(alice_api, alices_job, started):
    file = started / "log" / "h.0.2.h" / "stderr"
    text = "grüße 🌊\n" * 20_000
    file.write_text(text)
    read, after = "", 0
    while piece := _log(alice_api, alices_job, stream="stderr", after=after)["text"]:
        assert len(piece.encode()) <= MAX_LOG_BYTES
        read += piece
        after += len(piece.encode())
    assert read == text
    with file.open("a") as stream:
        stream.write("more")
    assert _log(alice_api, alices_job, stream="stderr", after=after)["text"] == "more"


def test_without_an_offset_the_end_is_read(alice_api, alices_job, started):
    (started / "log" / "h.0.2.h" / "stdout").write_text("x" * 100_000 + "end")
    answer = _log(alice_api, alices_job)
    assert answer["text"].endswith("xend")
    assert (len(answer["text"]), answer["next"]) == (MAX_LOG_BYTES, 100_003)


def test_bytes_that_are_no_text_do_no_harm(alice_api, alices_job, started):
    (started / "log" / "h.0.2.h" / "stdout").write_bytes(b"\xff\xfe\x00 ok \xf0\x9f")
    assert " ok " in _log(alice_api, alices_job, after=0)["text"]


@pytest.mark.parametrize("what", ["file", "folder", "pipe"])
def test_a_log_that_leads_elsewhere_is_not_read(alice_api, alices_job, started, tmp_path, what):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "stdout").write_text("secret")
    folder = started / "log" / "h.0.2.h"
    (folder / "stdout").unlink()
    if what == "file":
        (folder / "stdout").symlink_to(tmp_path / "elsewhere" / "stdout")
    elif what == "pipe":
        os.mkfifo(folder / "stdout")
    else:
        folder.rmdir()
        folder.symlink_to(tmp_path / "elsewhere")
    assert _log(alice_api, alices_job)["text"] == ""


def test_a_link_that_is_put_there_between_looking_and_opening_leads_nowhere(
    alice_api, alices_job, started, tmp_path, monkeypatch
):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "stdout").write_text("secret")
    folder = started / "log" / "h.0.2.h"
    (folder / "stdout").write_text("its own")
    really_open = os.open

    def as_late_as_possible(path, *args, **kwargs):
        if str(path).endswith("stdout") and not folder.is_symlink():
            folder.rename(folder.with_name("moved"))
            folder.symlink_to(tmp_path / "elsewhere")
        return really_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", as_late_as_possible)
    assert _log(alice_api, alices_job)["text"] == "its own"
    assert _log(alice_api, alices_job)["text"] == ""


@pytest.fixture
def results(started, tmp_path):
    (started / "model" / "train").mkdir(parents=True, exist_ok=True)
    (started / "model" / "train" / "weights.safetensors").write_bytes(os.urandom(3_000_000))
    (started / "metrics.jsonl").write_text('{"step": 1}\n')
    (started / "coordinator.json").write_text("{}")
    (tmp_path / "secret").write_text("secret")
    (started / "checkpoint" / "link").symlink_to(tmp_path / "secret")
    (started / "model" / "folder").symlink_to(tmp_path)
    os.mkfifo(started / "model" / "pipe")
    (started.parent / "_submitted_code" / "cnn" / "__pycache__").mkdir()
    (started.parent / "_submitted_code" / "cnn" / "__pycache__" / "main.pyc").write_text("")
    return started


def _names(archive: zipfile.ZipFile) -> set[str]:
    return {name for name in archive.namelist() if not name.startswith("log/")}


def test_the_result_is_what_the_job_published(alice_api, alices_job, results):
    answer = alice_api.get(f"/api/v1/jobs/{alices_job.pk}/result/")
    assert answer.streaming
    assert answer["Content-Disposition"] == f'attachment; filename="T1-{alices_job.pk}.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.getvalue())) as archive:
        assert archive.testzip() is None
        assert _names(archive) == {"model/train/weights.safetensors", "metrics.jsonl", "_submitted_code/cnn/main.py"}
        assert "log/h.0.1.h/stdout" in archive.namelist()
        weights = (results / "model" / "train" / "weights.safetensors").read_bytes()
        assert archive.read("model/train/weights.safetensors") == weights


def test_it_is_sent_while_it_is_made(alice_api, alices_job, results):
    chunks = [len(chunk) for chunk in alice_api.get(f"/api/v1/jobs/{alices_job.pk}/result/").streaming_content]
    assert max(chunks) < 1_000_000
    assert len(chunks) > 5


@pytest.mark.django_db(transaction=True)
async def test_an_asynchronous_server_streams_it_too(alice, alices_job, results):
    client = AsyncClient()
    await client.aforce_login(alice)
    answer = await client.get(f"/api/v1/jobs/{alices_job.pk}/result/")
    assert answer.is_async
    content = b"".join([chunk async for chunk in answer.streaming_content])
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert "metrics.jsonl" in archive.namelist()


def test_before_the_start_there_is_nothing_to_download(alice_api, alices_job):
    answer = alice_api.get(f"/api/v1/jobs/{alices_job.pk}/result/")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_name_cannot_break_the_header(alice_api, alices_job, results):
    Job.objects.filter(pk=alices_job.pk).update(name='x"; filename="y.exe ☃')
    header = alice_api.get(f"/api/v1/jobs/{alices_job.pk}/result/")["Content-Disposition"]
    assert header == f'attachment; filename="x---filename--y-exe-{alices_job.pk}.zip"'
