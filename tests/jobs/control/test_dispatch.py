"""Tests of the desired state that hosts are sent."""

import base64
import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks
from tidepool.protocol import Member, Sync, from_json, to_json

from jobs import actions
from jobs.control import dispatch
from jobs.control.dispatch import build_sync, resend_outstanding, send_sync
from jobs.files.job_folder import job_folder
from jobs.models import Checkpoint, Job, JobRun, Journal
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from wmla.identifiers import identities, submitted
from workers.models import Host

pytestmark = pytest.mark.django_db


class Mailbox:
    """Stands in for the broker."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Sync, dict[str, Any]]] = []
        self.down = False

    def pipeline(self, transaction: bool) -> AbstractContextManager["Mailbox"]:
        return nullcontext(self)

    def lpush(self, queue: str, message: str) -> None:
        if self.down:
            raise redis.ConnectionError("no broker")
        headers = json.loads(message)["headers"]
        assert headers["task"] == "executor.sync"
        body = json.loads(base64.b64decode(json.loads(message)["body"]))
        self.sent.append((queue, from_json(Sync, body[0][0]), headers))

    def execute(self) -> None:
        """`lpush` has sent everything."""

    def publish(self, channel: str, data: bytes) -> None:
        """Wake nobody."""

    @property
    def queues(self) -> list[str]:
        return [queue for queue, _, _ in self.sent]


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Mailbox:
    mailbox = Mailbox()
    monkeypatch.setattr(dispatch, "connect", lambda: mailbox)
    return mailbox


def test_a_desired_state_says_everything(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=6, parameters={"lr": 0.1, "epochs": 5, "augment": True}, seed=7)
    cluster.cycle()
    [desired] = build_sync("gpu-host-1").jobs
    folder = job_folder(job)
    assert (desired.job, desired.attempt, desired.target_revision, desired.stop) == (job.pk, 1, 1, False)
    assert (desired.wanted, desired.vacating, desired.lead) == ([0, 1, 2, 3], [], True)
    assert desired.members == [
        *(Member("gpu-host-1", slot) for slot in range(4)),
        *(Member("gpu-host-2", slot) for slot in range(2)),
    ]
    launch = desired.launch
    assert launch.folder == str(folder.path / "attempt-1")
    assert launch.code_folder == str(folder.path / "_submitted_code" / "digits-cnn")
    assert launch.entry_point == "main.py"
    assert launch.arguments == ["--epochs", "5", "--lr", "0.1", "--augment", "true"]
    assert launch.data_dir == job.dataset.path
    assert (launch.compat, launch.checkpoints) == (["wmla"], [])
    assert launch.environment == {
        "DLI_DRIVER_ID": identities().driver_id(submitted(job)),
        "DLI_EXECID": f"wmla-{job.pk}",
        "DLI_DATA_FS": str(Path(job.dataset.path).parent),
        "DLI_RESULT_FS": str(settings.TIDEPOOL_RESULTS_ROOT),
        "DLI_CS_DATASTORE_META": f"type=fs,data_path={Path(job.dataset.path).name}",
    }
    assert (launch.min_slots, launch.max_slots, launch.effective_batch_size) == (1, 6, None)
    assert (launch.seed, launch.exactness, launch.virtual_ranks) == (7, "sum", None)
    [elsewhere] = build_sync("gpu-host-2").jobs
    assert (elsewhere.wanted, elsewhere.lead, elsewhere.members) == ([0, 1], False, desired.members)


def test_a_launch_says_how_many_virtual_ranks_there_are(cluster: Cluster, submit: Submit) -> None:
    submit(max_slots=6, exactness="bitwise")
    cluster.cycle()
    [desired] = build_sync("gpu-host-1").jobs
    assert (desired.launch.exactness, desired.launch.virtual_ranks) == ("bitwise", 8)


def test_a_launch_does_not_change_within_an_attempt(cluster: Cluster, submit: Submit) -> None:
    job = submit()
    cluster.turn()
    [before] = build_sync("gpu-host-1").jobs
    actions.change_job(job.pk, actions.JobChange(max_slots=4), "alice")
    job.refresh_from_db()
    Checkpoint.objects.create(
        job=job,
        attempt=1,
        step=3,
        epoch=0,
        path="attempt-1/checkpoint/step-3",
        size_bytes=1,
        sha256="",
        created_at=timezone.now(),
    )
    [after] = build_sync("gpu-host-1").jobs
    assert after.launch == before.launch


def test_a_job_being_stopped(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=2)
    cluster.turn()
    actions.cancel(job.pk, "alice")
    [desired] = build_sync("gpu-host-1").jobs
    assert (desired.stop, desired.wanted, desired.vacating, desired.members) == (True, [], [0, 1], [])


def test_slots_given_back_are_vacating(cluster: Cluster, submit: Submit) -> None:
    submit()
    cluster.turn()
    submit(name="T2")
    cluster.cycle()
    desired_jobs = [build_sync(name).jobs[0] for name in cluster.hosts]
    assert sum(len(desired.wanted) for desired in desired_jobs) == 4
    assert sum(len(desired.vacating) for desired in desired_jobs) == 4
    assert all(len(desired.members) == 4 for desired in desired_jobs)


def test_journals_are_acknowledged_until_long_after_the_end(cluster: Cluster, submit: Submit) -> None:
    job = submit(max_slots=2)
    cluster.turn()
    name = f"{job.pk}.1.shim.gpu-host-1"
    assert build_sync("gpu-host-1").acknowledged[name] == 2
    cluster.finish(job)
    assert build_sync("gpu-host-1").acknowledged[name] == 4
    Job.objects.filter(pk=job.pk).update(finished_at=timezone.now() - timezone.timedelta(hours=2))
    assert name not in build_sync("gpu-host-1").acknowledged
    assert Journal.objects.filter(name=name).exists()


def test_a_submission_and_its_plan_reach_the_hosts_at_the_commit(
    cluster: Cluster,
    submit: Submit,
    mailbox: Mailbox,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    job = submit()
    with django_capture_on_commit_callbacks(execute=True):
        cluster.cycle()
        assert mailbox.sent == []
    assert sorted(mailbox.queues) == ["host.gpu-host-1", "host.gpu-host-2"]
    _, sync, headers = mailbox.sent[0]
    assert [desired.job for desired in sync.jobs] == [job.pk]
    assert headers["expires"] is None, "a moment of ours says nothing on a host"


def test_a_broker_that_is_down_fails_nothing(
    cluster: Cluster,
    submit: Submit,
    mailbox: Mailbox,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
    caplog: pytest.LogCaptureFixture,
) -> None:
    mailbox.down = True
    with django_capture_on_commit_callbacks(execute=True):
        job = submit()
        cluster.cycle()
    assert Job.objects.get(pk=job.pk).state == "STARTING"
    assert "could not be sent" in caplog.text
    mailbox.down = False
    assert resend_outstanding() == ["gpu-host-1", "gpu-host-2"]
    assert len(mailbox.sent) == 2


def test_what_was_carried_out_is_not_said_again(cluster: Cluster, submit: Submit, mailbox: Mailbox) -> None:
    submit(max_slots=1)
    cluster.cycle()
    assert resend_outstanding() == ["gpu-host-1"]
    cluster.settle()
    assert resend_outstanding() == []


def test_nobody_writes_to_a_host_that_is_not_there(cluster: Cluster, submit: Submit, mailbox: Mailbox) -> None:
    submit()
    cluster.cycle()
    Host.objects.update(state=Host.State.LOST)
    assert resend_outstanding() == []


def test_building_a_desired_state_takes_few_queries(
    cluster: Cluster, submit: Submit, mailbox: Mailbox, django_assert_max_num_queries: Any
) -> None:
    for number in range(4):
        submit(name=f"T{number}", max_slots=2)
    cluster.cycle()
    with django_assert_max_num_queries(8):
        send_sync("gpu-host-1")


def test_an_attempt_has_a_secret_of_its_own_that_its_launch_does_not_contain(cluster: Cluster, submit: Submit) -> None:
    one, other = submit(max_slots=2), submit(max_slots=2)
    cluster.cycle()
    secrets = {desired.job: desired.secret for host in cluster.hosts for desired in build_sync(host).jobs}
    assert secrets == {job.pk: dispatch.secret_of(job.pk, 1) for job in (one, other)}
    assert len({*secrets.values(), dispatch.secret_of(one.pk, 2)}) == 3
    for desired in build_sync("gpu-host-1").jobs:
        assert desired.secret not in str(to_json(desired.launch))
    assert not [row for row in JobRun.objects.values() if secrets[one.pk] in str(row)]


def test_an_attempt_that_begins_beside_hosts_of_a_former_release_has_none(cluster: Cluster, submit: Submit) -> None:
    former = next(iter(cluster.hosts.values()))
    former.handshake = False
    former.send()
    submit(max_slots=2)
    cluster.cycle()
    assert {desired.secret for host in cluster.hosts for desired in build_sync(host).jobs} == {""}
    former.handshake = True
    former.send()
    later = submit(max_slots=1)
    cluster.cycle()
    secrets = {desired.job: desired.secret for host in cluster.hosts for desired in build_sync(host).jobs}
    assert secrets.pop(later.pk) == dispatch.secret_of(later.pk, 1)
    assert {*secrets.values()} == {""}, "what has begun without one goes on so"
