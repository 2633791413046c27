"""Tests of a run's files: listed, previewed and in the zip, wherever they were put; none is in a clone's code."""

import io
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from django.test import Client

from jobs import actions
from jobs.files.job_folder import job_folder
from jobs.files.result_files import MAX_FILES, code_files, result_files, sized_zip
from jobs.models import Job
from tests.factories import set_job
from tests.html import html_of, squeezed
from tests.jobs.conftest import Submit

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


@pytest.fixture
def run(submit: Submit) -> Job:
    """A run that has written into each of its folders."""
    job = submit()
    set_job(job, attempt=1)
    folder = job_folder(job)
    current = folder.start_attempt(1)
    log = current / "log" / "h.0.1.h"
    log.mkdir()
    for name in ("stdout", "stderr", "error.json", "fatal"):
        (log / name).write_text("ours")
    (log / "events.tfevents").write_bytes(b"\0\1")
    ours = ("coordinator.json", "launch.gpu-host-1.json", ".launch.gpu-host-2.json.new", "journal/shim.jsonl")
    for name in (*ours, "log/shim.h.err"):
        (current / name).write_text("ours, with s3cr3ts")
    (current / "scores.csv").write_text("epoch,loss\n1,0.5\n")
    (current / "plots").mkdir()
    (current / "plots/a.png").write_bytes(PNG)
    (folder.code / "notes.txt").write_text("hello <b>\n")
    (folder.code / "out").mkdir()
    (folder.code / "out/weights.bin").write_bytes(b"\0" * 10)
    (folder.code / "link").symlink_to("/etc/passwd")
    return Job.objects.get(pk=job.pk)


def below(job: Job, name: str) -> str:
    return f"_submitted_code/{job_folder(job).code_name}/{name}"


def test_everything_that_the_run_wrote_is_listed(run: Job) -> None:
    assert {(file.place, file.shown_path) for file in result_files(run)} == {
        ("RESULT_DIR", "scores.csv"),
        ("RESULT_DIR", "plots/a.png"),
        ("LOG_DIR", "events.tfevents"),
        ("working folder", "notes.txt"),
        ("working folder", "out/weights.bin"),
    }
    [log] = [file for file in result_files(run) if file.place == "LOG_DIR"]
    assert log.member == "h.0.1.h", "two ranks may write files of the same name"


@pytest.mark.parametrize("seconds", [-1e9, 7_500_000_000, 1e15])
def test_a_file_may_have_any_time(run: Job, alice_api: Client, seconds: float) -> None:
    os.utime(job_folder(run).attempt(1) / "scores.csv", (seconds, seconds))
    assert alice_api.get(f"/api/v1/jobs/{run.pk}/files/").status_code == 200
    answer = alice_api.get(f"/api/v1/jobs/{run.pk}/result/")
    assert "scores.csv" in zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content))).namelist()


def test_a_submitted_file_that_the_run_has_changed_is_its_own(run: Job) -> None:
    script = job_folder(run).code / "main.py"
    os.utime(script, ns=(1, 1))
    assert "main.py" in {file.shown_path for file in result_files(run)}


def test_each_is_in_the_zip_and_downloaded_by_itself(run: Job, alice_api: Client) -> None:
    answer = alice_api.get(f"/api/v1/jobs/{run.pk}/result/")
    names = set(zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content))).namelist())
    listed = alice_api.get(f"/api/v1/jobs/{run.pk}/files/").json()["results"]
    assert len(listed) == 5
    assert {file["path"] for file in listed} <= names
    assert below(run, "main.py") in names
    assert not {name for name in names if name.startswith(("launch.", ".launch.", "coordinator.", "journal"))}
    whole = b"".join(sized_zip(run).chunks())
    assert not [name for name in zipfile.ZipFile(io.BytesIO(whole)).namelist() if "launch." in name]
    for file in listed:
        got = alice_api.get(f"/api/v1/jobs/{run.pk}/files/download/", {"path": file["path"]})
        assert len(b"".join(got.streaming_content)) == file["size_bytes"]


def test_the_code_is_what_was_submitted_and_nothing_that_the_run_wrote(run: Job) -> None:
    (job_folder(run).code / "main.py").write_text("changed by the run")
    assert [file.name for file in code_files(run)] == ["main.py"]


@pytest.fixture
def continued(run: Job) -> Job:
    """The same after two more attempts; the second has left nothing, the third a folder with a former one's name."""
    set_job(run, attempt=3)
    folder = job_folder(run)
    current = folder.start_attempt(3)
    (current / "scores.csv").write_text("epoch,loss\n2,0.25\n")
    (current / "attempt-1").mkdir()
    (current / "attempt-1/scores.csv").write_text("its own")
    return Job.objects.get(pk=run.pk)


def test_files_of_former_attempts_are_listed_behind_with_a_name_of_their_own(continued: Job) -> None:
    rows = [(file.attempt, file.place, file.shown_path, file.path) for file in result_files(continued)]
    assert rows == [
        (3, "RESULT_DIR", "scores.csv", "scores.csv"),
        (3, "RESULT_DIR", "attempt-1/scores.csv", "attempt-3/attempt-1/scores.csv"),
        (None, "working folder", "notes.txt", below(continued, "notes.txt")),
        (None, "working folder", "out/weights.bin", below(continued, "out/weights.bin")),
        (1, "RESULT_DIR", "scores.csv", "attempt-1/scores.csv"),
        (1, "LOG_DIR", "events.tfevents", "attempt-1/log/h.0.1.h/events.tfevents"),
        (1, "RESULT_DIR", "plots/a.png", "attempt-1/plots/a.png"),
    ]


def test_where_the_folder_is_gone_nothing_is_listed(continued: Job, alice_client: Client) -> None:
    shutil.rmtree(job_folder(continued).path)
    assert result_files(continued) == []
    assert alice_client.get(f"/jobs/{continued.pk}/results/").status_code == 200


def test_files_of_former_attempts_are_previewed_downloaded_and_in_the_zip(
    continued: Job, alice_api: Client, alice_client: Client
) -> None:
    answer = alice_api.get(f"/api/v1/jobs/{continued.pk}/result/")
    whole = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
    listed = alice_api.get(f"/api/v1/jobs/{continued.pk}/files/").json()["results"]
    for file in listed:
        got = alice_api.get(f"/api/v1/jobs/{continued.pk}/files/download/", {"path": file["path"]})
        content = b"".join(got.streaming_content)
        assert whole.read(file["path"]) == content
        assert len(content) == file["size_bytes"]
        assert alice_client.get(f"/jobs/{continued.pk}/file/", {"path": file["path"]}).status_code == 200
    former = alice_client.get(f"/jobs/{continued.pk}/file/", {"path": "attempt-1/scores.csv"}).content
    assert b"<td>0.5</td>" in former
    picture = alice_client.get(f"/jobs/{continued.pk}/picture/", {"path": "attempt-1/plots/a.png"})
    assert b"".join(picture.streaming_content) == PNG
    page = alice_client.get(f"/jobs/{continued.pk}/results/").content
    assert page.count(b'scope="rowgroup"') == 3


@pytest.mark.parametrize(
    "path",
    [
        *("attempt-1/launch.gpu-host-1.json", "attempt-1/journal/shim.jsonl", "attempt-4/scores.csv", "attempt-1"),
        *("attempt-1/", "attempt-0/scores.csv", "attempt-1/../attempt-1/scores.csv", "attempt-01/scores.csv"),
    ],
)
def test_nothing_else_of_a_former_attempt_is_given_out(continued: Job, alice_api: Client, path: str) -> None:
    (job_folder(continued).path / "attempt-4").mkdir()
    (job_folder(continued).path / "attempt-4/scores.csv").write_text("of a database that is gone")
    answer = alice_api.get(f"/api/v1/jobs/{continued.pk}/files/download/", {"path": path})
    assert answer.status_code in (400, 404)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("scores.csv", '<th scope="col">loss</th>'),
        ("plots/a.png", "/picture/?path=plots%2Fa.png"),
        ("notes.txt", "hello &lt;b&gt;"),
        ("out/weights.bin", "neither text nor an image"),
    ],
)
def test_a_file_is_previewed(run: Job, alice_client: Client, path: str, shown: str) -> None:
    path = path if path in ("scores.csv", "plots/a.png") else below(run, path)
    page = alice_client.get(f"/jobs/{run.pk}/file/", {"path": path}).content.decode()
    assert shown in page
    assert f"/files/download/?path={path.replace('/', '%2F')}" in page


def test_a_picture_is_sent_as_one_and_nothing_else_is(run: Job, alice_client: Client) -> None:
    sent = alice_client.get(f"/jobs/{run.pk}/picture/", {"path": "plots/a.png"})
    assert (sent.headers["Content-Type"], b"".join(sent.streaming_content)) == ("image/png", PNG)
    assert sent.headers["X-Content-Type-Options"] == "nosniff"
    (job_folder(run).attempt(1) / "x.svg").write_text("<svg onload='alert(1)'/>")
    for path in ("x.svg", "scores.csv"):
        assert alice_client.get(f"/jobs/{run.pk}/picture/", {"path": path}).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "", ".", "..", "/etc/passwd", "../1/scores.csv", "journal/shim.jsonl", "launch.gpu-host-1.json",
        "coordinator.json", "_submitted_code/../code.json", "code.json", "_submitted_code/digits-cnn/link",
        "_submitted_code/digits-cnn/../../code.json", "gone.txt", "plots",
    ],
)  # fmt: skip
def test_nothing_else_is_given_out(run: Job, alice_client: Client, alice_api: Client, path: str) -> None:
    assert alice_client.get(f"/jobs/{run.pk}/file/", {"path": path}).status_code == 404
    assert alice_client.get(f"/jobs/{run.pk}/picture/", {"path": path}).status_code == 404
    assert alice_api.get(f"/api/v1/jobs/{run.pk}/files/download/", {"path": path}).status_code in (400, 404)


def test_a_clone_has_the_code_and_nothing_that_the_run_wrote(run: Job) -> None:
    (Path(run.model.path) / "main.py").write_text("changed since")
    copy = actions.clone(run, run.owner)
    code = job_folder(copy).code
    assert sorted(path.name for path in code.rglob("*")) == ["main.py"]
    assert (code / "main.py").read_text() == "print('training')\n"
    again = actions.clone(copy, run.owner)
    assert (job_folder(again).code / "main.py").read_text() == "print('training')\n"


def test_a_list_that_leaves_files_out_says_so(run: Job, alice_client: Client) -> None:
    part = f"/jobs/{run.pk}/results/"
    assert "All files that the training has written" in squeezed(html_of(alice_client.get(part)))
    for number in range(MAX_FILES):
        (job_folder(run).attempt(1) / f"sample-{number}.txt").touch()
    content = squeezed(html_of(alice_client.get(part)))
    assert "The first 1,000 of the files that the training has written" in content
    assert "The zip file has all of them." in content
    assert content.count("Download</a>") == MAX_FILES
