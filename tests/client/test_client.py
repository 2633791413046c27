"""`import tidepool` against the site's own views."""

import builtins
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tidepool
from tidepool.client.api import Client
from tidepool.client.http import Connection
from tidepool.client.wire import Request, Response, TransportError

from core import uploads
from core.models import Upload
from jobs.api.serializers import JobInput
from jobs.models import AttemptSoftware, Checkpoint, Environment, Job, JobSource
from studies.models import Study
from studies.submission import submission_of
from tests.client.repository import commit_all
from tests.scene import Scene

pytestmark = pytest.mark.django_db


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "hello" / "train.py"
    file.parent.mkdir()
    file.write_text("print('hello')\n")
    return file


def test_lists_jobs_and_reads_one(alices: Client, scene: Scene) -> None:
    assert alices.whoami()["username"] == "alice"
    assert [job.id for job in alices.jobs(state="active")] == [scene.waiting.pk, scene.second.pk, scene.first.pk]
    assert [job.id for job in alices.jobs(most=1, state="active")] == [scene.waiting.pk]
    info = alices.job(scene.first.pk).info
    assert (info.name, info.state, info.is_over, info.slots) == (scene.first.name, "RUNNING", False, 3)
    assert [job.id for job in alices.queue()] == [scene.waiting.pk]


def test_warns_of_what_is_not_sent(alices: Client, script: Path) -> None:
    (script.parent / "conf.yaml").touch()
    script.write_text("open('conf.yaml')\n")
    with pytest.warns(UserWarning, match=r"conf\.yaml is not sent, .* include=\['conf\.yaml'\] takes it along") as told:
        alices.submit(script)
    assert told[0].filename == __file__
    job = alices.submit(script, include=["conf.yaml"], requirements="--pre", skip_unusable_requirements=True)
    assert Job.objects.get(pk=job.id).requirements == ""


def test_submits_a_script(alices: Client, script: Path) -> None:
    job = alices.submit(script, "--epochs", "5", name="mine", seed=7)
    row = Job.objects.get(pk=job.id)
    assert (row.name, row.arguments, row.max_slots, row.seed) == ("mine", ["--epochs", "5"], 1, 7)
    assert (row.model.model.name, row.model.entry_point) == ("hello", "train.py")
    assert job.state == "PENDING"


def test_trains_the_code_that_was_sent_whatever_is_newest(alices: Client, script: Path) -> None:
    def numbers(*texts: str) -> list[int]:
        made = []
        for text in texts:
            script.write_text(text)
            made.append(Job.objects.get(pk=alices.submit(script, name="mine").id).model.number)
        return made

    assert numbers("print(1)", "print(1)", "print(2)", "print(1)") == [1, 1, 2, 3]
    script.write_text("print(4)")
    planned = alices.plan(script)
    assert numbers("print(5)") == [5]
    assert Job.objects.get(pk=alices.send(planned).id).model.number == 4
    with pytest.raises(tidepool.InvalidRequest, match="no version 9"):
        alices.send(replace(planned, model_version=9))


def test_submits_an_elastic_model_on_all_gpus_of_the_group_unless_told(alices: Client) -> None:
    assert alices.submit(model="digits-cnn", dataset="digits").info.max_slots == 8
    assert alices.submit(model="digits-cnn", dataset="digits", max_slots=2, min_slots=2).info.max_slots == 2


@pytest.mark.parametrize(
    ("code", "slots"),
    [
        ("import lightning as L\nL.Trainer()", 1),
        ("import lightning as L\nL.Trainer(devices=2, num_nodes=2)", 4),
        ("from transformers import Trainer\nTrainer()", 1),
        ("import os\nrank = int(os.environ.get('LOCAL_RANK', 0))", 1),
        ("from tidepool.torch import Session\nSession()", 8),
    ],
)
def test_a_size_that_nobody_asked_for_is_that_of_the_script(
    alices: Client, script: Path, code: str, slots: int
) -> None:
    """A fixed-size training on all GPUs, only because its script could use several, would wait for all to be free."""
    script.write_text(code)
    row = Job.objects.get(pk=alices.submit(script, name="mine").id)
    assert (row.min_slots, row.max_slots) == (1 if slots == 8 else slots, slots)
    again = Job.objects.get(pk=alices.submit(model="hello", name="again").id)
    assert again.max_slots == slots
    assert Job.objects.get(pk=alices.submit(script, name="three", min_slots=3, max_slots=3).id).max_slots == 3


def test_a_key_makes_one_job(alices: Client, script: Path) -> None:
    planned = alices.plan(script)
    assert alices.send(planned, key="0123456789").id == alices.send(planned, key="0123456789").id


def test_an_answer_that_is_lost_makes_no_second_job(alices: Client, script: Path) -> None:
    """The site makes the job, and the connection is cut before the answer comes."""
    planned, lost = alices.plan(script), []
    inner = alices.connection.transport

    def cut(request: Request) -> Response:
        response = inner(request)
        if request.method == "POST" and not lost:
            lost.append(request)
            raise TransportError("cut")
        return response

    alices.connection = Connection(alices.profile, transport=cut, sleep=lambda seconds: None)
    job = alices.send(planned)
    assert lost
    assert [row.pk for row in Job.objects.filter(name=planned.name)] == [job.id]


def test_previews_without_writing(alices: Client, script: Path) -> None:
    before = Job.objects.count()
    assert alices.preview(alices.plan(script))["start_text"]
    assert Job.objects.count() == before


def test_commands(alices: Client, scene: Scene) -> None:
    job = alices.job(scene.waiting.pk)
    assert job.suspend().state == "SUSPENDED"
    assert job.resume().state == "PENDING"
    assert job.set_priority(6000).priority == 6000
    assert (job.resize(max_slots=7, min_slots=2).max_slots, job.info.min_slots) == (7, 2)
    assert job.cancel().state == "CANCELLED"
    with pytest.raises(tidepool.JobFailed) as raised:
        job.wait()
    assert (raised.value.state, raised.value.job) == ("CANCELLED", job.id)
    assert job.wait(check=False).is_over


def test_a_clone_has_the_same_code(alices: Client, script: Path) -> None:
    job = alices.submit(script, name="mine")
    copy = job.clone()
    assert (copy.id != job.id, copy.info.name) == (True, "mine")


def test_an_exact_clone_has_the_versions_that_ran(alices: Client, script: Path) -> None:
    job = alices.submit(script, name="mine")
    with pytest.raises(tidepool.TidepoolError, match="has not started"):
        job.clone(exactly=True)
    versions = {"numpy": "1.26.4"}
    environment = Environment.objects.create(digest="a" * 64, python="3.11.7", platform="linux", packages=versions)
    AttemptSoftware.objects.create(job_id=job.id, attempt=1, host="gpu-host-1", environment=environment)
    copy = job.clone(exactly=True)
    assert "numpy==1.26.4" in Job.objects.get(pk=copy.id).requirements.splitlines()


def test_waiting_has_an_end(alices: Client, scene: Scene) -> None:
    with pytest.raises(TimeoutError):
        alices.job(scene.first.pk).wait(timeout=0)


def test_a_failed_one_says_the_scripts_traceback(alices: Client, scene: Scene) -> None:
    with pytest.raises(tidepool.JobFailed) as raised:
        alices.job(scene.failed.pk).wait()
    assert "FileNotFoundError" in raised.value.traceback


def test_metrics_as_a_table(alices: Client, scene: Scene) -> None:
    table = alices.job(scene.first.pk).metrics(["loss", "accuracy"])
    assert list(table.columns) == ["epoch", "loss", "accuracy"]
    assert table.index.name == "step"
    points = alices.job(scene.first.pk).points(["loss"])
    assert [point.step for point in points] == list(table.index)


def test_without_pandas_it_names_what_is_missing(alices: Client, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(tidepool.MissingPackage):
        alices.job(scene.first.pk).metrics()
    assert alices.job(scene.first.pk).points(["loss"])


def test_why_events_and_allocation(alices: Client, scene: Scene) -> None:
    why = alices.job(scene.waiting.pk).why()
    assert why.text
    assert {term.name for term in why.terms}
    job = alices.job(scene.first.pk)
    assert job.events()[0].reason.code
    assert job.allocation()[-1]["slots"] == 3
    assert len(job.ranks()) >= 3


def test_logs_of_one_that_is_over(alices: Client, scene: Scene) -> None:
    lines = list(alices.job(scene.done.pk).logs())
    assert list(alices.job(scene.done.pk).logs(follow=True)) == lines
    assert list(alices.job(scene.waiting.pk).logs()) == []


def test_results(alices: Client, scene: Scene, tmp_path: Path) -> None:
    job = alices.job(scene.done.pk)
    assert "scores.csv" in [file.path for file in job.files()]
    seen: list[int] = []
    [file] = job.download(tmp_path / "one", ["scores.csv"], progress=lambda done, total: seen.append(done))
    assert file.read_bytes()
    assert seen[-1] == file.stat().st_size
    assert (tmp_path / "one" / "scores.csv") == file
    everything = job.download(tmp_path / "all")
    assert "scores.csv" in [path.name for path in everything]
    point = {"attempt": 1, "step": 9, "epoch": 1, "path": "p", "size_bytes": 1, "sha256": "0"}
    Checkpoint.objects.create(job=scene.done, created_at=scene.done.finished_at, **point)
    assert [point.step for point in job.checkpoints()] == [9, 600]


def test_datasets_are_sent_in_pieces(alices: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "CHUNK_BYTES", 10)
    table = tmp_path / "numbers.csv"
    table.write_text("a,b\n" + "1,2\n" * 10)
    seen: list[int] = []
    made = alices.add_dataset("numbers", table, progress=lambda done, total: seen.append(done))
    assert (made.name, made.latest["number"]) == ("numbers", 1)
    assert seen == [10, 20, 30, 40, 44]
    assert "numbers" in [row.name for row in alices.datasets()]
    alices.delete_dataset("numbers")
    with pytest.raises(tidepool.NotFound):
        alices.dataset("numbers")


class _Cut(Exception):
    pass


@pytest.mark.parametrize("what", ["dataset", "model"])
def test_an_upload_goes_on_behind_what_an_earlier_program_has_sent(
    alices: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(uploads, "CHUNK_BYTES", 10)
    folder = tmp_path / "numbers"
    folder.mkdir()
    file = folder / ("a.csv" if what == "dataset" else "main.py")
    file.write_text("a,b\n" + "1,2\n" * 10)

    def add(cut_at: int | None = None) -> list[int]:
        seen: list[int] = []

        def watch(done: int, total: int | None) -> None:
            seen.append(done)
            if cut_at is not None and done >= cut_at:
                raise _Cut

        if what == "dataset":
            alices.add_dataset("numbers", folder, progress=watch)
        else:
            alices.add_model("numbers", folder, engine="single", progress=watch)
        return seen

    with pytest.raises(_Cut):
        add(cut_at=20)
    seen = add()
    assert seen[0] == 20, "it begins where the other one ended"
    assert getattr(alices, what)("numbers").latest["number"] == 1
    assert not Upload.objects.exists()
    assert add()[0] == 10, "what was registered is sent anew"

    with pytest.raises(_Cut):
        add(cut_at=20)
    file.write_text("a,b\n" + "1,3\n" * 10)
    assert add()[0] == 10, "other files are sent from their beginning"


def test_a_dataset_that_is_refused_is_not_sent_again(alices: Client, tmp_path: Path) -> None:
    table = tmp_path / "numbers.csv"
    table.write_text("a,b\n1,2\n")
    with pytest.raises(tidepool.InvalidRequest):
        alices.add_dataset("", table)
    [left] = Upload.objects.all()
    seen: list[int] = []
    alices.add_dataset("numbers", table, progress=lambda done, total: seen.append(done))
    assert (seen, list(Upload.objects.all())) == ([left.size_bytes], [])


def test_models(alices: Client, script: Path) -> None:
    made = alices.add_model("hello", script, engine="single")
    assert (made.latest["entry_point"], made.latest["engine"]) == ("train.py", "single")
    assert "hello" in [row.name for row in alices.models()]
    alices.delete_model("hello")


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda client: client.job(10**6).info, tidepool.NotFound),
        (lambda client: client.submit(model="digits-cnn", max_slots=0, min_slots=0), tidepool.InvalidRequest),
        (lambda client: client.submit(model="digits-cnn", instance_group="no"), tidepool.InvalidRequest),
        (lambda client: client.submit(), tidepool.InvalidRequest),
        (lambda client: client.submit("nowhere.py"), tidepool.InvalidRequest),
    ],
)
def test_mistakes_have_their_class(alices: Client, call: Callable[[Client], Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        call(alices)


def test_a_token_of_a_narrow_scope_is_told(scene: Scene, client_of: Callable[..., Client]) -> None:
    reader = client_of(scene.alice, "read")
    assert reader.jobs()
    with pytest.raises(tidepool.NotAllowed) as raised:
        reader.job(scene.waiting.pk).cancel()
    assert raised.value.code == "scope"


def test_a_withdrawn_token_is_no_login(alices: Client) -> None:
    alices.connection.json("DELETE", "me/tokens/current/")
    with pytest.raises(tidepool.NotLoggedIn):
        alices.jobs()


def test_names_are_loaded_when_they_are_used() -> None:
    assert set(tidepool.__all__) <= set(dir(tidepool))
    assert all(getattr(tidepool, name) is not None for name in tidepool.__all__)
    with pytest.raises(AttributeError):
        _ = tidepool.nothing  # type: ignore[attr-defined]


def test_the_source_of_a_script_is_recorded(alices: Client, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = commit_all(script.parent)
    script.write_text(script.read_text() + "# one more line\n")
    monkeypatch.setattr(sys, "argv", ["tidepool", "submit", "train.py", "--", "--api-key", "abc"])
    row = Job.objects.get(pk=alices.submit(script, "--api-key", "abc").id)
    assert (row.source.commit, row.source.branch, row.source.is_dirty) == (commit, "main", True)
    assert "+# one more line" in row.source.diff
    assert row.source.command == "tidepool submit train.py -- --api-key '***'"
    copy = Job.objects.get(pk=alices.job(row.pk).clone().id)
    assert (copy.source.commit, copy.source.diff, copy.source.command) == (commit, row.source.diff, "")


@pytest.mark.parametrize(("line", "is_sent"), [('#"\\\n', True), ("#\u00e9\n", False)])
def test_a_large_difference_never_makes_the_request_too_large(
    alices: Client, script: Path, line: str, is_sent: bool
) -> None:
    commit_all(script.parent)
    script.write_text(script.read_text() + line * 200_000)
    source = Job.objects.get(pk=alices.submit(script).id).source
    assert (len(source.diff) > 900_000, not source.left_out) == (is_sent, is_sent)


def test_a_key_gives_the_same_job_after_a_commit(alices: Client, script: Path) -> None:
    first = alices.submit(script, name="one", key="0123456789")
    commit_all(script.parent)
    assert alices.submit(script, name="one", key="0123456789").id == first.id


def test_trials_have_the_source_of_their_study(alices: Client, script: Path) -> None:
    commit = commit_all(script.parent)
    study = alices.submit(script, parameters={"lr": [0.1, 0.2]}, metric="loss")
    row = Study.objects.get(pk=study.id)
    assert submission_of(row, {"lr": 0.1}, 1).source.commit == commit  # type: ignore[union-attr]


def test_a_site_that_takes_no_source_gets_none(alices: Client, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(JobInput._declared_fields, "source")
    with pytest.warns(UserWarning, match="The commit and the command are not recorded: Field 'source' is not known"):
        job = alices.submit(script)
    assert not JobSource.objects.filter(pk=job.id).exists()
