"""`/execs`, row by row of the specification: submit, list, get, stop, delete, deploy, frameworks, conf, status."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pandas
import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from core.roles import viewers
from jobs import actions
from jobs.control.dispatch import launch_spec
from jobs.control.job_end import finish
from jobs.control.transition import Why
from jobs.files.job_folder import job_folder
from jobs.messages import message
from jobs.models import InstanceGroup, Job, JobEvent
from jobs.options import MASK
from jobs.states import JobState, Reason
from models_registry.models import RegisteredModel, RegisteredModelVersion
from tests.factories import InstanceGroupFactory, JobFactory, host_with_slots
from tests.wmla.conftest import ARGS, DLI, SCRIPT, Submit, job_behind, model_tar, started, text_of
from wmla.identifiers import job_of

pytestmark = pytest.mark.django_db

FLAT = [
    *("id", "args", "submissionId", "creator", "state", "appId", "schedulerUrl", "modelFileOwnerName", "workDir"),
    *("appName", "createTime", "elastic", "nameSpace", "numWorker", "framework"),
]
ON_PREM = [
    *("id", "sigId", "submissionId", "userName", "sigName", "args", "appId", "masterURL", "state"),
    "executionUserName",
]


class TestFrameworks:
    def test_they_are_a_list_with_name_description_and_lines_of_help(self, alice_client: Client) -> None:
        listed = alice_client.get(f"{DLI}/execs/frameworks").json()
        assert [each["name"] for each in listed] == ["edtPyTorch", "PyTorch", "distPyTorch", "tensorflow"]
        assert all(isinstance(line, str) for each in listed for line in each["desc"])
        assert all(each["description"] for each in listed)


class TestSubmitOnPrem:
    def test_it_answers_with_what_notebooks_of_on_prem_read(self, submit: Submit, alice: User) -> None:
        answer = submit()
        assert answer.status_code == 200
        given = answer.json()
        assert set(ON_PREM) <= set(given)
        assert re.fullmatch(r"alice-\d{19}-\d+", given["id"])
        assert re.fullmatch(r"driver-\d{14}-\d{4,}-[0-9a-f-]{36}", given["submissionId"])
        assert given["appId"].startswith("app-")
        assert (given["sigName"], given["state"], given["args"]) == ("sig-elastic", "SUBMITTED", ARGS)
        assert str(UUID(given["sigId"])) == given["sigId"]
        assert (given["userName"], given["executionUserName"]) == ("alice", "alice")
        assert given["masterURL"] == "http://testserver"

    def test_the_execution_user_is_the_groups_where_it_names_one(self, submit: Submit, group: InstanceGroup) -> None:
        InstanceGroup.objects.update(execution_user="egoadmin")
        given = submit().json()
        assert (given["userName"], given["executionUserName"]) == ("alice", "egoadmin")

    def test_it_is_an_ordinary_job_of_an_ordinary_model(self, submit: Submit, alice: User, data: Path) -> None:
        job = job_behind(submit(), alice)
        assert (job.owner, job.name, job.instance_group.name) == (alice, "pytorch_edt", "sig-elastic")
        assert (job.min_slots, job.max_slots, job.state) == (1, 4, JobState.PENDING)
        version = job.model
        assert (version.model.name, version.model.owner, version.engine) == ("pytorch_edt", alice, "elastic")
        assert (version.entry_point, version.number) == ("main.py", 1)
        assert job.dataset.path == str(data)
        assert (job_folder(job).code / "main.py").read_text() == SCRIPT

    def test_the_scripts_arguments_reach_it_in_order(self, submit: Submit, alice: User) -> None:
        job = job_behind(submit(ARGS + " --x 'a b' -- --y"), alice)
        assert launch_spec(job).arguments == ["--numWorker", "4", "--epochs", "10", "--x", "a b", "--y"]

    def test_ig_in_the_arguments_names_the_group_as_well(self, submit: Submit, alice: User) -> None:
        assert job_behind(submit(ARGS + " --ig sig-elastic", sig_name=None), alice).dialect == "on-prem"
        assert submit(ARGS + " --ig another").status_code == 400


class TestSubmitCloudPak:
    def test_it_answers_with_a_flat_object(self, submit: Submit, alice: User) -> None:
        given = submit(ARGS, sig_name=None).json()
        assert set(given) == set(FLAT)
        assert all(isinstance(value, str | int | bool) for value in given.values())
        job = job_of(alice, given["id"])
        assert given["id"] == given["submissionId"] == given["appId"] == f"wmla-{job.pk}"
        assert (given["state"], given["elastic"], given["numWorker"]) == ("PENDING_CRD_SCHEDULER", True, 4)
        assert given["workDir"].endswith(f"/{job.pk}/_submitted_code/pytorch_edt")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", given["createTime"])

    def test_an_address_with_a_slash_and_a_repeated_part(
        self, alice_client: Client, group: InstanceGroup, data: Path, alice: User
    ) -> None:
        more = SimpleUploadedFile("extra.py", b"y = 2\n")
        sent = {"file": [model_tar({"main.py": b"x = 1\n"}), more]}
        job = job_behind(alice_client.post(f"{DLI}/execs/?{urlencode({'args': ARGS})}", sent), alice)
        code = job_folder(job).code
        assert sorted(str(file.relative_to(code)) for file in code.rglob("*.py")) == ["extra.py", "main.py"]

    def test_num_worker_caps_and_is_kept_from_a_strict_script(self, submit: Submit, alice: User) -> None:
        strict = SCRIPT.replace("args, _ = parser.parse_known_args()", "args = parser.parse_args()")
        strict = strict.replace('parser.add_argument("--numWorker", type=int, default=2)\n', "")
        args = "--exec-start edtPyTorch --model-main main.py --numWorker 2 --epochs 1"
        job = job_behind(submit(args, sig_name=None, files={"main.py": strict.encode()}), alice)
        assert (job.max_slots, job.arguments) == (2, ["--epochs", "1"])

    def test_the_own_group_of_a_user_comes_first(self, submit: Submit, alice: User, group: InstanceGroup) -> None:
        own = InstanceGroupFactory(name="zebra", resource_group=group.resource_group)
        own.members.add(alice)
        assert job_behind(submit(sig_name=None), alice).instance_group == own


class TestFiles:
    def test_a_single_script_needs_no_name(self, submit: Submit, alice: User) -> None:
        upload = SimpleUploadedFile("train.py", SCRIPT.encode())
        job = job_behind(submit("--exec-start PyTorch", upload=upload), alice)
        assert (job.model.entry_point, job.model.model.name, job.max_slots) == ("train.py", "train", 1)

    def test_a_single_script_may_be_named_with_the_folders_of_its_sender(self, submit: Submit, alice: User) -> None:
        upload = SimpleUploadedFile("train.py", SCRIPT.encode())
        job = job_behind(submit("--exec-start PyTorch --model-main mnist/train.py", upload=upload), alice)
        assert job.model.entry_point == "train.py"

    def test_what_conda_would_read_is_left_out(
        self, alice_client: Client, group: InstanceGroup, data: Path, alice: User
    ) -> None:
        extra = [SimpleUploadedFile(name, b"x") for name in ("env.yaml", "more.tar.bz2")]
        sent = [model_tar({"main.py": b"x = 1\n"}, name="tmpx1.modelDir.tar"), *extra]
        query = urlencode({"args": ARGS + " --conda-env-yaml /home/alice/env.yaml --conda-package more.tar.bz2"})
        job = job_behind(alice_client.post(f"{DLI}/execs/?{query}", {"file": sent}), alice)
        assert (job.model.model.name, job.model.entry_point) == ("pytorch_edt", "main.py")
        texts = [event.text for event in job.events.all()]
        assert "Options without effect here: --conda-env-yaml, --conda-package." in texts

    def test_the_same_files_are_the_same_version_and_others_the_next(self, submit: Submit, alice: User) -> None:
        first, again = job_behind(submit(), alice), job_behind(submit(), alice)
        changed = job_behind(submit(files={"main.py": b"x = 2\n"}), alice)
        back = job_behind(submit(), alice)
        assert [job.model.number for job in (first, again, changed, back)] == [1, 1, 2, 3]
        kept = list((job_folder(first).path.parents[3] / "models/uploads").iterdir())
        assert len(kept) == 2, "what comes back is kept once"

    def test_a_name_that_somebody_else_has_is_not_taken(self, submit: Submit, alice: User, bob: User) -> None:
        RegisteredModel.objects.create(name="pytorch_edt", owner=bob)
        job = job_behind(submit(), alice)
        assert job.model.model.name == "pytorch_edt-alice"
        assert "The model is registered as pytorch_edt-alice, because another user has a model named pytorch_edt." in [
            event.text for event in job.events.all()
        ]

    def test_packages_of_its_requirements_are_installed(self, submit: Submit, alice: User) -> None:
        """The guide advises this for the sample of 2.3.0, which exports its model."""
        files = {"main.py": SCRIPT.encode(), "requirements.txt": b"onnxscript\n"}
        assert job_behind(submit(files=files), alice).requirements == "onnxscript"

    def test_a_model_main_below_the_folder_runs_from_the_folder(self, submit: Submit, alice: User) -> None:
        args = ARGS.replace("main.py", "src/main.py")
        job = job_behind(submit(args, files={"src/main.py": b"x = 1\n", "src/net.py": b"y = 1\n"}), alice)
        assert job.model.entry_point == "src/main.py"

    def test_what_macos_puts_beside_the_folder_does_not_matter(self, submit: Submit, alice: User) -> None:
        upload = model_tar({"../._pytorch_edt": b"junk", "main.py": b"x = 1\n"})
        assert submit(upload=upload).status_code == 400  # with dots it is refused
        upload = model_tar(
            {"pytorch_edt/main.py": b"x = 1\n", "._pytorch_edt": b"junk"}, top=".", name="m.modelDir.tar"
        )
        assert job_behind(submit(upload=upload), alice).model.entry_point == "main.py"

    @pytest.mark.parametrize("name", ["model", "a.b", "m.TAR.GZ", "ü.tar"])
    def test_an_archive_may_have_any_name(self, submit: Submit, alice: User, name: str) -> None:
        assert submit(upload=model_tar({"main.py": b"x = 1\n"}, name=name)).status_code == 200


class TestLimits:
    def test_more_workers_than_gpus_are_capped_and_the_job_says_so(self, submit: Submit, alice: User) -> None:
        job = job_behind(submit(ARGS.replace("maxWorkers=4", "maxWorkers=16")), alice)
        assert job.max_slots == 8
        assert job.arguments[:2] == ["--numWorker", "8"]
        texts = [event.text for event in JobEvent.objects.filter(job=job)]
        assert "16 workers were requested, but sig-elastic has 8 GPUs: the maximum is set to 8." in texts

    def test_without_a_maximum_it_is_capped_by_the_group(self, submit: Submit, alice: User) -> None:
        job = job_behind(submit(ARGS.replace("--edt-options maxWorkers=4", "")), alice)
        assert job.max_slots == 8
        assert any("it is set to 8" in event.text for event in job.events.all())

    def test_a_fixed_size_is_all_or_nothing(self, submit: Submit, alice: User) -> None:
        job = job_behind(submit("--exec-start distPyTorch --numWorker 4 --model-main main.py"), alice)
        assert (job.model.engine, job.min_slots, job.max_slots) == ("fixed", 4, 4)

    def test_options_without_effect_are_named(self, submit: Submit, alice: User) -> None:
        job = job_behind(submit(ARGS + " --conda-env-name dlipy3"), alice)
        assert "Options without effect here: --conda-env-name." in [event.text for event in job.events.all()]

    def test_name_and_priority(self, submit: Submit, alice: User) -> None:
        answer = submit(ARGS + " --appName run-7 --msd-priority 7000")
        job = job_behind(answer, alice)
        assert (job.name, job.priority) == ("run-7", 7000)
        assert answer.json()["appName"] == "run-7"
        assert submit(ARGS + " --msd-priority 20000").status_code == 400


class Unread:
    """An upload that must not be asked for."""

    def read(self, size: int = -1) -> bytes:
        raise AssertionError("the upload was read")

    readline = read


class TestRefusals:
    @pytest.mark.parametrize(
        ("query", "said"),
        [
            ({"sigName": "dli-edt", "args": ARGS}, "Error 400: Instance group name dli-edt not found."),
            ({"sigName": "sig-elastc", "args": ARGS}, "Did you mean sig-elastic?"),
            ({"sigName": "sig-elastic", "args": ARGS.replace("edtPyTorch", "edtKeras")}, "is not supported"),
            ({"sigName": "sig-elastic", "args": ""}, "names no framework"),
            ({"args": "--exec-start PyTorch --model-main ../../x"}, "a path inside the upload"),
            ({"sigName": "sig-elastic", "args": "--exec-start 'PyTorch"}, "check the quotation marks"),
        ],
    )
    def test_what_the_address_says_is_refused_before_the_upload_is_read(
        self, alice_client: Client, group: InstanceGroup, query: dict[str, str], said: str
    ) -> None:
        answer = alice_client.generic(
            "POST",
            f"{DLI}/execs?{urlencode(query)}",
            content_type="multipart/form-data; boundary=x",
            **{"wsgi.input": Unread(), "CONTENT_LENGTH": "1000000"},
        )
        assert answer.status_code == 400
        assert said in text_of(answer)
        assert text_of(answer).endswith("\n")

    def test_a_group_that_is_not_started_or_not_ones_own_is_refused(
        self, submit: Submit, alice: User, bob: User, group: InstanceGroup
    ) -> None:
        InstanceGroup.objects.update(state=InstanceGroup.State.STOPPED)
        assert "stopped" in text_of(submit())
        assert submit(sig_name=None).status_code == 400
        InstanceGroup.objects.update(state=InstanceGroup.State.STARTED)
        group.members.add(bob)
        assert "not found" in text_of(submit())

    def test_no_file_or_no_form_is_refused(self, alice_client: Client, group: InstanceGroup, data: Path) -> None:
        address = f"{DLI}/execs?{urlencode({'sigName': 'sig-elastic', 'args': ARGS})}"
        for sent in (
            alice_client.post(address, {}),
            alice_client.post(address, "{}", content_type="application/json"),
            alice_client.post(address, b"\xff", content_type="multipart/form-data; boundary=x"),
            alice_client.post(address, b"--x\r\nhalf", content_type="multipart/form-data"),
        ):
            assert sent.status_code == 400
            assert text_of(sent).startswith("Error 400: ")

    def test_a_main_that_is_not_there_names_those_that_are(self, submit: Submit) -> None:
        answer = submit(files={"train.py": b"x = 1\n"})
        assert (answer.status_code, "train.py" in text_of(answer)) == (400, True)
        assert not RegisteredModelVersion.objects.exists()
        assert not Job.objects.exists()

    def test_viewers_and_strangers_submit_nothing(self, submit: Submit, client: Client, bob: User) -> None:
        bob.groups.add(viewers())
        stranger, viewer = Client(), Client()
        viewer.force_login(bob)
        assert [submit(client=each).status_code for each in (stranger, viewer)] == [401, 403]


class TestGet:
    def test_one_that_failed_tells_what_happened(self, alice_client: Client, cloud_pak: Job) -> None:
        address = f"{DLI}/execs/wmla-{cloud_pak.pk}"
        assert "events" not in alice_client.get(address).json()
        what = message("failed", host="a", code=1, signal=None, error="ValueError: no data", tried="", attempts=1)
        finish([started(cloud_pak)], JobState.FAILED, Why(Reason.EXIT_NONZERO, what, "executor"))
        given = alice_client.get(address).json()
        assert (given["state"], "ValueError: no data" in given["events"].splitlines()[-1]) == ("ERROR", True)
        assert pandas.DataFrame(given, index=[0]).shape == (1, len(FLAT) + 1)
        assert "events" not in alice_client.get(f"{DLI}/execs").json()[0]

    def test_a_job_is_got_by_each_of_its_names(self, alice_client: Client, on_prem: Job, cloud_pak: Job) -> None:
        for job, keys in ((on_prem, {*FLAT, *ON_PREM, "executionUserName"}), (cloud_pak, set(FLAT))):
            given = alice_client.get(f"{DLI}/execs/wmla-{job.pk}").json()
            assert set(given) == keys
            for name in ("id", "submissionId", "appId"):
                assert alice_client.get(f"{DLI}/execs/{given[name]}/").json() == given

    def test_notebooks_of_cloud_pak_make_one_row_of_it(self, alice_client: Client, cloud_pak: Job) -> None:
        started(cloud_pak)
        table = pandas.DataFrame(alice_client.get(f"{DLI}/execs/wmla-{cloud_pak.pk}").json(), index=[0])
        [row] = table.to_dict("records")
        assert list(row) == FLAT
        assert (row["creator"], row["modelFileOwnerName"], row["nameSpace"]) == ("alice", "alice", "wmla")
        assert (row["state"], row["appName"], row["framework"]) == ("RUNNING", "ElasticPyTorchTrain", "edtPyTorch")
        assert (row["elastic"], row["numWorker"], row["schedulerUrl"]) == (True, 2, "http://testserver")
        assert row["args"].startswith("--exec-start edtPyTorch ")

    def test_a_job_of_a_page_is_there_too(self, alice_client: Client, alice: User) -> None:
        job = JobFactory(owner=alice)
        assert alice_client.get(f"{DLI}/execs/wmla-{job.pk}").json()["state"] == "PENDING_CRD_SCHEDULER"

    @pytest.mark.parametrize("name", ["wmla-99999", "nonsense", "alice-1-1", "%00", "driver-x"])
    def test_an_unknown_one_is_404_in_text(self, alice_client: Client, name: str) -> None:
        answer = alice_client.get(f"{DLI}/execs/{name}")
        assert (answer.status_code, text_of(answer)[:11]) == (404, "Error 404: ")

    def test_others_do_not_see_it(self, on_prem: Job, bob: User, client: Client) -> None:
        client.force_login(bob)
        for method, path in (("get", ""), ("delete", ""), ("post", "/stop"), ("get", "/log"), ("get", "/result")):
            assert getattr(client, method)(f"{DLI}/execs/wmla-{on_prem.pk}{path}").status_code == 404
        assert client.get(f"{DLI}/execs").json() == []

    @pytest.mark.parametrize(
        ("state", "words"),
        [
            (JobState.STARTING, ("SUBMITTED", "SUBMITTED")),
            (JobState.RUNNING, ("RUNNING", "RUNNING")),
            (JobState.SUCCEEDED, ("FINISHED", "FINISHED")),
            (JobState.CANCELLED, ("KILLED", "KILLED")),
            (JobState.FAILED, ("FAILED", "ERROR")),
        ],
    )
    def test_states_have_the_words_of_its_generation(
        self, alice_client: Client, on_prem: Job, cloud_pak: Job, state: JobState, words: tuple[str, str]
    ) -> None:
        ended = timezone.now() if state in (JobState.SUCCEEDED, JobState.CANCELLED, JobState.FAILED) else None
        Job.objects.update(state=state, finished_at=ended)
        answers = [alice_client.get(f"{DLI}/execs/wmla-{job.pk}").json()["state"] for job in (on_prem, cloud_pak)]
        assert tuple(answers) == words


class TestList:
    def test_the_newest_come_first_and_can_be_limited_and_sorted(self, alice_client: Client, alice: User) -> None:
        jobs = [JobFactory(owner=alice, submitted_at=timezone.now() + timedelta(hours=hour)) for hour in range(3)]
        ids = [f"wmla-{job.pk}" for job in jobs]

        def listed(query: str) -> list[str]:
            return [each["id"] for each in alice_client.get(f"{DLI}/execs{query}").json()]

        assert listed("") == ids[::-1]
        assert listed("?limit=2") == ids[:0:-1]
        assert listed("?sort_by=id:asc") == listed("?sort_by=createTime") == ids

    def test_by_state(self, alice_client: Client, alice: User) -> None:
        running = JobFactory(owner=alice, state=JobState.RUNNING)
        JobFactory(owner=alice)
        for query in ("RUNNING", "running,FINISHED"):
            [found] = alice_client.get(f"{DLI}/execs?state={query}").json()
            assert found["id"] == f"wmla-{running.pk}"

    @pytest.mark.parametrize("word", ["NEW", "PENDING_JOB_SCHEDULER", "LAUNCHING", "RECOVERING", "UNKNOWN", "WAITING"])
    def test_words_of_wmla_that_no_training_has_find_nothing(
        self, alice_client: Client, alice: User, word: str
    ) -> None:
        JobFactory(owner=alice)
        assert alice_client.get(f"{DLI}/execs?state={word}").json() == []
        assert len(alice_client.get(f"{DLI}/execs/?state={word},PENDING_CRD_SCHEDULER").json()) == 1

    @pytest.mark.parametrize(
        "query", ["state=DANCING", "limit=0", "limit=x", "sort_by=name", "sort_by=id:up", "state=%00"]
    )
    def test_other_questions_are_refused(self, alice_client: Client, query: str) -> None:
        answer = alice_client.get(f"{DLI}/execs?{query}")
        assert (answer.status_code, text_of(answer)[:11]) == (400, "Error 400: ")

    def test_it_costs_as_many_queries_for_many(
        self, alice_client: Client, alice: User, django_assert_max_num_queries: Any
    ) -> None:
        JobFactory.create_batch(20, owner=alice)
        with django_assert_max_num_queries(4):
            assert len(alice_client.get(f"{DLI}/execs").json()) == 20


class TestStopAndDelete:
    def test_stop_cancels_and_a_second_time_says_so(self, alice_client: Client, on_prem: Job) -> None:
        address = f"{DLI}/execs/wmla-{on_prem.pk}"
        answer = alice_client.post(f"{address}/stop")
        assert (answer.status_code, answer.content) == (204, b"")
        assert alice_client.get(address).json()["state"] == "KILLED"
        answer = alice_client.post(f"{address}/stop")
        assert (answer.status_code, text_of(answer)) == (
            400,
            f"Error 400: Training wmla-{on_prem.pk} is already stopped.\n",
        )

    def test_deleting_stops_it_and_takes_it_out_of_sight_but_not_out_of_the_books(
        self, alice_client: Client, on_prem: Job
    ) -> None:
        address = f"{DLI}/execs/wmla-{on_prem.pk}"
        assert alice_client.delete(address).status_code == 204
        assert [alice_client.get(address).status_code, alice_client.delete(address).status_code] == [404, 404]
        assert alice_client.get(f"{DLI}/execs").json() == []
        on_prem.refresh_from_db()
        assert on_prem.state == JobState.CANCELLED
        assert alice_client.get(f"/api/v1/jobs/{on_prem.pk}/").status_code == 200
        assert "Deleted by" in on_prem.events.order_by("seq").last().text

    def test_one_that_runs_is_told_to_end(self, alice_client: Client, on_prem: Job) -> None:
        started(on_prem)
        assert alice_client.delete(f"{DLI}/execs/wmla-{on_prem.pk}").status_code == 204
        on_prem.refresh_from_db()
        assert on_prem.state == JobState.CANCELLING

    def test_deleting_all_leaves_those_of_others(self, on_prem: Job, cloud_pak: Job, carol: User, bob: User) -> None:
        theirs = JobFactory(owner=bob)
        mine = JobFactory(owner=carol, state=JobState.SUCCEEDED, finished_at=timezone.now())
        client = Client()
        client.force_login(carol)
        assert client.delete(f"{DLI}/execs").status_code == 204
        hidden = set(Job.objects.exclude(hidden_at=None))
        assert hidden == {mine}
        theirs.refresh_from_db()
        assert theirs.state == JobState.PENDING

    def test_deleting_many_costs_no_more_than_deleting_few(self, alice_client: Client, on_prem: Job) -> None:
        def cost(count: int) -> int:
            jobs = JobFactory.create_batch(count, owner=on_prem.owner, instance_group=on_prem.instance_group)
            with CaptureQueriesContext(connection) as queries:
                assert alice_client.delete(f"{DLI}/execs").status_code == 204
            gone = Job.objects.filter(pk__in=[job.pk for job in jobs]).exclude(hidden_at=None)
            assert gone.filter(state=JobState.CANCELLED, finished_at__isnull=False).count() == count
            return len(queries)

        cost(1)  # topics are made
        assert cost(40) == cost(4)

    def test_deploy_says_that_it_is_not_there(self, alice_client: Client, on_prem: Job) -> None:
        answer = alice_client.post(f"{DLI}/execs/wmla-{on_prem.pk}/deploy", "{}", content_type="application/json")
        assert (answer.status_code, "not supported" in text_of(answer)) == (400, True)
        assert alice_client.post(f"{DLI}/execs/wmla-9999/deploy").status_code == 404


class TestService:
    def test_conf_and_status(self, alice_client: Client, group: InstanceGroup) -> None:
        assert alice_client.get(f"{DLI}/conf").json()["MSD_ENABLED"] is True
        status = alice_client.get(f"{DLI}/status").json()
        assert (status["status"], status["hosts"], status["gpus"]) == ("RUNNING", 1, 8)
        host_with_slots("gpu-host-2", 2)
        assert alice_client.get(f"{DLI}/status").json()["gpus"] == 10


def test_a_clone_keeps_the_arguments(alice_client: Client, on_prem: Job) -> None:
    copy = alice_client.post(f"/api/v1/jobs/{on_prem.pk}/clone/").json()["id"]
    assert Job.objects.get(pk=copy).arguments == on_prem.arguments == ["--numWorker", "4", "--epochs", "10"]


def test_its_ranks_get_wmlas_variables(on_prem: Job, cloud_pak: Job, home: Path) -> None:
    variables = launch_spec(on_prem).environment

    assert variables["DLI_EXECID"].startswith("alice-")
    assert variables["DLI_DRIVER_ID"].startswith("driver-")
    assert (variables["DLI_DATA_FS"], variables["DLI_RESULT_FS"]) == (str(home / "data"), str(home / "results"))
    assert variables["DLI_CS_DATASTORE_META"] == "type=fs,data_path=mnist"
    assert launch_spec(cloud_pak).environment["DLI_EXECID"] == f"wmla-{cloud_pak.pk}"
    assert launch_spec(JobFactory()).environment == {}


def test_its_ranks_get_the_variables_that_it_was_submitted_with(submit: Submit, alice: User) -> None:
    args = ARGS + " --msd-env HF_HOME=/tmp --msd-env PYTHONPATH=/extra --msd-env DLI_EXECID=mine"
    job = job_behind(submit(args), alice)
    variables = launch_spec(job).environment
    assert (variables["HF_HOME"], variables["PYTHONPATH"]) == ("/tmp", "/extra")
    assert variables["DLI_EXECID"].startswith("alice-"), "what it finds its results by is the cluster's"
    assert "Options without effect here: --msd-env DLI_EXECID." in [event.text for event in job.events.all()]
    assert launch_spec(actions.clone(job, alice)).environment["HF_HOME"] == "/tmp"


def test_the_train_page_shows_its_variables_for_a_clone_and_lets_them_be_changed(
    alice_client: Client, submit: Submit, alice: User
) -> None:
    job = job_behind(submit(ARGS + " --msd-env HF_HOME=/tmp --msd-env MODE=old"), alice)
    form = alice_client.get(f"/jobs/new/?clone={job.pk}").context["form"]
    assert form["environment"].value().splitlines() == [f"HF_HOME = {MASK}", f"MODE = {MASK}"]
    values = {field.html_name: field.value() for field in form if field.value() is not None}
    changed = alice_client.post("/jobs/new/", {**values, "environment": f"HF_HOME = {MASK}\nMODE = new"})
    assert changed.status_code == 302, changed.context["form"].errors
    copy = Job.objects.latest("pk")
    environment = launch_spec(copy).environment
    assert (environment["HF_HOME"], environment["MODE"]) == ("/tmp", "new")


def test_the_arguments_are_on_its_page(alice_client: Client, submit: Submit, alice: User) -> None:
    job = job_behind(submit(ARGS + " --note 'two words'"), alice)
    assert b"--numWorker 4 --epochs 10 --note &#x27;two words&#x27;" in alice_client.get(f"/jobs/{job.pk}/").content
