"""`tidepool adaptdl`: the commands of AdaptDL's program, as its documentation shows them."""

from pathlib import Path
from typing import Any

import pytest

from jobs.files.job_folder import job_folder
from jobs.models import Job
from tests.client.conftest import Call
from tests.jobs.api.test_stream import begin, end
from tests.scene import Scene

pytestmark = pytest.mark.django_db

MANIFEST = """
apiVersion: adaptdl.petuum.com/v1
kind: AdaptDLJob
metadata:
  generateName: hello-world-
spec:
  template:
    spec:
      containers:
      - name: main
        command: [python3, /root/hello_world.py]
        args: [--epochs, 2]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "hello_world"
    folder.mkdir()
    (folder / "hello_world.py").write_text("print('Hello, world!')\n")
    (folder / "Dockerfile").write_text("FROM python:3.7-slim\n")
    (folder / "adaptdljob.yaml").write_text(MANIFEST)
    return folder


def shown(job: Job) -> str:
    return f"{job.name.replace(' ', '-')}-{job.pk}"


def submitted(answer: tuple[int, str, str]) -> Job:
    assert answer[0] == 0, answer[2]
    return Job.objects.get(pk=int(answer[1]))


class TestSubmit:
    def test_a_project_with_its_manifest(self, logged_in: Scene, tidepool: Call, project: Path) -> None:
        job = submitted(tidepool("adaptdl", "submit", project, "-q"))
        assert (job.name, job.arguments) == ("hello-world", ["--epochs", "2"])
        assert job.model.entry_point == "hello_world.py"
        said = tidepool("adaptdl", "submit", project)[2]
        assert f"adaptdl logs hello-world-{job.pk + 1}" in said

    def test_another_file_name_and_words(self, logged_in: Scene, tidepool: Call, project: Path) -> None:
        file = (project / "adaptdljob.yaml").rename(project.parent / "other.yaml")
        job = submitted(tidepool("adaptdl", "submit", project, "-q", "-f", file, "-n", "mine", "--", "--lr", "0.1"))
        assert (job.name, job.arguments) == ("mine", ["--lr", "0.1"])
        code, _, said = tidepool("adaptdl", "submit", project)
        assert (code, f"There is no {project / 'adaptdljob.yaml'}" in said) == (2, True)

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("-d", "Dockerfile"),
            ("--dockerfile", "Dockerfile"),
            ("--tensorboard", "mine"),
            ("--checkpoint-storage-size", "1Gi"),
            ("--checkpoint-storage-class", "fast"),
            ("--proxy-port", "59283"),
        ],
    )
    def test_what_is_not_here_is_refused_by_name(
        self, logged_in: Scene, tidepool: Call, project: Path, option: str, value: str
    ) -> None:
        before = Job.objects.count()
        code, _, said = tidepool("adaptdl", "submit", project, option, value)
        assert (code, Job.objects.count()) == (2, before)
        assert f"{'--dockerfile' if option == '-d' else option} is not supported: " in said


def test_ls_has_the_columns_of_adaptdl(logged_in: Scene, tidepool: Call) -> None:
    code, out, _ = tidepool("adaptdl", "ls")
    heads, *rows = [line.split() for line in out.splitlines()]
    assert (code, heads) == (0, ["Name", "Status", "Start(UTC)", "Runtime", "Rplc", "Rtrt"])
    by_name = {row[0]: row for row in rows}
    first, waiting, done = map(shown, (logged_in.first, logged_in.waiting, logged_in.done))
    assert (by_name[first][1], by_name[first][-2:]) == ("Running", ["3", "0"])
    assert by_name[waiting][1] == "Pending"
    assert by_name[done][1] == "Succeeded"
    assert [row[0] for row in rows][-1] == waiting, "the newest comes last"
    assert tidepool("adaptdl", "ls", "-q")[1].split() == [row[0] for row in rows]


class TestNames:
    def test_a_training_is_named_as_ls_shows_it_or_by_number_or_name(self, logged_in: Scene, tidepool: Call) -> None:
        job = logged_in.first
        log = begin(job, 2)
        log.write_text("one\ntwo\n")
        end(job)
        for name in (shown(job), job.pk, job.name):
            assert tidepool("adaptdl", "logs", name)[:2] == (0, "one\ntwo\n"), name
        assert tidepool("adaptdl", "logs", job.pk, "-f", "--tail", "1")[:2] == (0, "two\n")

    def test_a_name_that_several_have_needs_the_number(self, logged_in: Scene, tidepool: Call, project: Path) -> None:
        jobs = [submitted(tidepool("adaptdl", "submit", project, "-q", "-n", "mnist-2")) for _ in range(2)]
        code, _, said = tidepool("adaptdl", "logs", "mnist-2")
        assert code == 2
        assert all(f"mnist-2-{job.pk}" in said for job in jobs)

    @pytest.mark.parametrize("name", ["nothing", "nothing-1", "nothing-999999", "999999"])
    def test_an_unknown_one_is_not_found(self, logged_in: Scene, tidepool: Call, name: str) -> None:
        code, _, said = tidepool("adaptdl", "logs", name)
        assert (code, f"There is no training {name}: " in said) == (4, True)


class TestCp:
    @pytest.fixture
    def name(self, logged_in: Scene) -> str:
        job = logged_in.done
        folder = job_folder(job)
        (folder.path / "code.json").write_text("{}")
        (folder.code / "out/deep").mkdir(parents=True)
        (folder.code / "foo.txt").write_text("Hello, world!")
        (folder.code / "out/deep/a.txt").write_text("a")
        events = folder.attempt(Job.objects.get(pk=job.pk).run.attempt) / "tensorboard/x"
        events.mkdir(parents=True)
        (events / "events").write_text("e")
        return shown(job)

    def test_a_file_of_the_share_path(self, name: str, tidepool: Call, tmp_path: Path) -> None:
        for target, file in ((tmp_path / "new/foo.txt", tmp_path / "new/foo.txt"), (tmp_path, tmp_path / "foo.txt")):
            assert tidepool("adaptdl", "cp", f"{name}:/adaptdl/share/foo.txt", target)[0] == 0
            assert file.read_text() == "Hello, world!"

    def test_a_folder(self, name: str, tidepool: Call, tmp_path: Path) -> None:
        assert tidepool("adaptdl", "cp", f"{name}:/adaptdl/share/out/", tmp_path)[0] == 0
        assert (tmp_path / "out/deep/a.txt").read_text() == "a"
        assert tidepool("adaptdl", "cp", f"{name}:/adaptdl/share", tmp_path / "all")[0] == 0
        assert (tmp_path / "all/foo.txt").exists()
        assert tidepool("adaptdl", "cp", f"{name}:/adaptdl/tensorboard/x", tmp_path / "board")[0] == 0
        assert (tmp_path / "board/events").read_text() == "e"
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]

    @pytest.mark.parametrize(
        ("source", "code", "sentence"),
        [
            ("", 2, "write it as JOB:/adaptdl/share/PATH"),
            ("foo.txt", 2, "write it as JOB:/adaptdl/share/PATH"),
            (":foo.txt", 2, "write it as JOB:/adaptdl/share/PATH"),
            (":/etc/passwd", 2, "files are below /adaptdl/share, /adaptdl/checkpoint and /adaptdl/tensorboard"),
            (":/adaptdl/shared", 2, "files are below /adaptdl/share"),
            (":/adaptdl/share/../x", 4, "has written no file /adaptdl/share/../x"),
            (":/adaptdl/share/none", 4, "has written no file /adaptdl/share/none"),
        ],
    )
    def test_what_cannot_be_copied_is_said(
        self, name: str, tidepool: Call, tmp_path: Path, source: str, code: int, sentence: str
    ) -> None:
        given = source if not source.startswith(":") else f"{name}{source}"
        found = tidepool("adaptdl", "cp", given, tmp_path / "x")
        assert (found[0], sentence in found[2]) == (code, True), found


@pytest.mark.parametrize("words", [("create", "mine"), ("proxy", "mine", "-p", "8080"), ("list",), ()])
def test_tensorboard_is_refused_with_what_there_is(logged_in: Scene, tidepool: Call, words: Any) -> None:
    code, _, said = tidepool("adaptdl", "tensorboard", *words)
    assert code == 2
    assert "tensorboard is not supported: " in said
    assert "tidepool adaptdl cp JOB:/adaptdl/tensorboard" in said
