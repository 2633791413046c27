"""Downloads of single result files: their names, their length, parts of them, and files that are gone."""

import os
from urllib.parse import quote

import pytest
from django.http import HttpResponse
from django.test import Client

from jobs.files.job_folder import job_folder
from jobs.files.result_files import result_files
from jobs.models import Job
from tests.factories import set_job
from tests.html import squeezed
from tests.jobs.conftest import Submit

CONTENT = bytes(range(256)) * 4


@pytest.fixture
def run(submit: Submit) -> Job:
    job = submit()
    set_job(job, attempt=1)
    current = job_folder(job).start_attempt(1)
    (current / "weights.bin").write_bytes(CONTENT)
    (current / "plans.jsonl").write_text("{}\n")
    (current / "metrics.jsonl").write_text("{}\n")
    return Job.objects.get(pk=job.pk)


def download(client: Client, job: Job, path: str = "weights.bin", **headers: str) -> HttpResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = client.get(f"/api/v1/jobs/{job.pk}/files/download/", {"path": path}, headers=named)
    answer.body = b"".join(answer)
    return answer


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("plots/loss.png", 'filename="loss.png"'),
        ("Grüße 学習.csv", f"filename*=utf-8''{quote('Grüße 学習.csv')}"),
        ('a "b" \\c.txt', 'filename="a \\"b\\" \\\\c.txt"'),
        ("two\nlines.txt", 'filename="two_lines.txt"'),
    ],
)
def test_a_file_keeps_its_name(run: Job, alice_api: Client, path: str, told: str) -> None:
    file = job_folder(run).attempt(1) / path
    file.parent.mkdir(exist_ok=True)
    file.write_text("x")
    assert download(alice_api, run, path)["Content-Disposition"] == f"attachment; {told}"


def test_a_zip_file_keeps_the_letters_of_its_training(run: Job, alice_api: Client) -> None:
    Job.objects.filter(pk=run.pk).update(name="Grüße/हिन्दी 1")
    told = alice_api.get(f"/api/v1/jobs/{run.pk}/result/")["Content-Disposition"]
    assert told == f"attachment; filename*=utf-8''{quote(f'Grüße-हिन्दी-1-{run.pk}.zip')}"


def test_the_length_is_told(run: Job, alice_api: Client) -> None:
    answer = download(alice_api, run)
    assert (answer.status_code, answer["Content-Length"], answer["Accept-Ranges"]) == (200, "1024", "bytes")
    assert answer.body == CONTENT


@pytest.mark.parametrize(
    ("asked", "told", "content"),
    [
        ("bytes=0-0", "bytes 0-0/1024", CONTENT[:1]),
        ("bytes=1000-", "bytes 1000-1023/1024", CONTENT[1000:]),
        ("bytes=1000-9999", "bytes 1000-1023/1024", CONTENT[1000:]),
        ("bytes=-24", "bytes 1000-1023/1024", CONTENT[1000:]),
        ("bytes=-9999", "bytes 0-1023/1024", CONTENT),
    ],
)
def test_a_part_is_sent(run: Job, alice_api: Client, asked: str, told: str, content: bytes) -> None:
    answer = download(alice_api, run, Range=asked)
    assert (answer.status_code, answer["Content-Range"]) == (206, told)
    assert (answer["Content-Length"], answer.body) == (str(len(content)), content)


@pytest.mark.parametrize("asked", ["bytes=0-1,4-5", "bytes=5-1", "bytes=-", "bytes=x", "lines=0-1", "bytes=²-"])
def test_what_is_no_single_range_gets_the_whole_file(run: Job, alice_api: Client, asked: str) -> None:
    answer = download(alice_api, run, Range=asked)
    assert (answer.status_code, answer.body) == (200, CONTENT)


@pytest.mark.parametrize("asked", ["bytes=1024-", "bytes=-0"])
def test_a_range_behind_the_end_is_refused(run: Job, alice_api: Client, asked: str) -> None:
    answer = download(alice_api, run, Range=asked)
    assert (answer.status_code, answer["Content-Range"]) == (416, "bytes */1024")
    assert answer.body == b""


def test_a_download_continues_only_while_the_file_is_the_same(run: Job, alice_api: Client) -> None:
    tag = download(alice_api, run)["ETag"]
    assert download(alice_api, run, Range="bytes=1000-", If_Range=tag).status_code == 206
    os.utime(job_folder(run).attempt(1) / "weights.bin", ns=(1, 1))
    answer = download(alice_api, run, Range="bytes=1000-", If_Range=tag)
    assert (answer.status_code, answer.body) == (200, CONTENT)


def test_a_browser_gets_a_page_in_words_for_a_file_that_is_gone(run: Job, alice_client: Client) -> None:
    sentence = "File not found among the results: it may have been replaced by a newer one."
    answer = download(alice_client, run, "gone.bin", Sec_Fetch_Mode="navigate")
    assert (answer.status_code, answer["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert sentence in squeezed(answer.content.decode())
    assert download(alice_client, run, "gone.bin").json()["error"] == sentence


def test_no_link_saves_the_words_of_an_error_as_a_file(run: Job, alice_client: Client) -> None:
    for page in ("", "results/", "file/?path=weights.bin"):
        shown = squeezed(alice_client.get(f"/jobs/{run.pk}/{page}").content.decode())
        assert "/download/" in shown
        assert " download>" not in shown


def test_files_of_tidepool_are_explained(run: Job, alice_client: Client) -> None:
    assert {file.path: file.note for file in result_files(run)} == {
        "weights.bin": "",
        "plans.jsonl": "Tidepool's record of the processes of each size",
        "metrics.jsonl": "Tidepool's record of the metrics of each step",
    }
    snapshot = job_folder(run).attempt(1) / "log" / "gpu1.0.1" / "gpu-memory.pickle"
    snapshot.parent.mkdir(parents=True)
    snapshot.write_bytes(b"..")
    notes = {file.shown_path: file.note for file in result_files(run)}
    assert "pytorch.org/memory_viz" in notes["gpu-memory.pickle"]
    assert "Tidepool's record" in alice_client.get(f"/jobs/{run.pk}/results/").content.decode().replace("&#x27;", "'")
