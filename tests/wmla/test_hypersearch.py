"""`/hypersearch`, row by row: start, list, get, stop, restart, delete, and the algorithms."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas
import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.control.dispatch import launch_spec
from jobs.files.job_folder import job_folder
from jobs.models import InstanceGroup, Job, MetricPoint
from jobs.states import JobState, Reason
from models_registry.models import RegisteredModel
from studies import actions
from studies.models import Study, Trial
from tests.factories import UserFactory, set_job
from tests.studies.conftest import end, turn
from tests.wmla.conftest import DLI, model_tar, text_of, write
from tests.wmla.searches import CLOUD_PAK, GRID, HYPERBAND, RANDOM, SEARCHES, changed, post, study_behind
from wmla.hypersearch_names import name_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("group", "data")]


@pytest.fixture
def bob_client() -> Client:
    client = Client()
    client.force_login(UserFactory(username="bob"))
    return client


def running(study: Study) -> list[Trial]:
    return list(study.trials.filter(state=Trial.State.RUNNING).select_related("job__run").order_by("number"))


def shown(client: Client, study: Study) -> dict[str, Any]:
    answer = client.get(f"{SEARCHES}/{name_of(study)}")
    assert answer.status_code == 200, answer.content
    told: dict[str, Any] = answer.json()
    return told


def started(client: Client, request: Any = RANDOM) -> Study:
    """Start a search, and give it its first turn."""
    return turn(study_behind(post(client, request)))


class TestStart:
    def test_on_prem_answers_with_the_name_alone(self, alice_client: Client) -> None:
        answer = post(alice_client, RANDOM)
        assert re.fullmatch(r'"alice-hpo-\d{16}"', answer.content.decode())
        assert study_behind(answer).dialect == "on-prem"

    def test_cloud_pak_answers_with_uid_and_href(self, alice_client: Client) -> None:
        script = SimpleUploadedFile("hpo.py", b"print('training')\n")
        answer = post(alice_client, CLOUD_PAK, part="WMLA_HPO_pytorch.py", upload=script)
        study = study_behind(answer)
        assert answer.json() == {"uid": name_of(study), "href": f"{SEARCHES}/{name_of(study)}"}
        assert (study.dialect, study.model.entry_point) == ("cloud-pak", "hpo.py")
        assert alice_client.get(answer.json()["href"]).json()["state"] == "SUBMITTED"

    def test_it_is_an_ordinary_study_of_an_ordinary_model(self, alice_client: Client, alice: User) -> None:
        study = study_behind(post(alice_client, RANDOM))
        assert (study.owner, study.name, study.instance_group.name) == (alice, "pytorch_hpo", "sig-elastic")
        assert (study.model.model.name, study.model.entry_point) == ("pytorch_hpo", "pytorch_mnist_HPO.py")
        assert (study.sampler, study.pruner, study.metric, study.goal) == ("random", "none", "loss", "minimize")
        assert (study.trials_wanted, study.at_once, study.max_minutes) == (4, 2, None)
        assert study.space == {
            "learning_rate": {"kind": "uniform", "low": 0.001, "high": 0.1, "step": 0.002},
            "optimizer": ["Adam", "SGD"],
            "batch": [32, 64],
        }

    def test_a_script_reads_its_values_in_a_file_and_gets_no_arguments_of_them(self, alice_client: Client) -> None:
        request = changed(RANDOM, "modelSpec.args", RANDOM["modelSpec"]["args"] + " --trainImagesFile /data/t.gz")
        first, second = running(started(alice_client, request))
        assert first.job is not None
        assert launch_spec(first.job).arguments == ["--trainImagesFile", "/data/t.gz"]
        assert json.loads((job_folder(first.job).code / "config.json").read_text()) == first.values
        assert second.job is not None
        assert json.loads((job_folder(second.job).code / "config.json").read_text()) == second.values
        assert launch_spec(second.job).environment["SUBID"] == "1"

    def test_a_second_upload_of_the_same_files_is_the_same_model(self, alice_client: Client) -> None:
        assert len({study_behind(post(alice_client, RANDOM)).model for _ in range(2)}) == 1

    def test_a_name_of_the_clients_own_is_taken_once(self, alice_client: Client) -> None:
        request = {**RANDOM, "hpoName": "my-tuning"}
        assert post(alice_client, request).json() == "my-tuning"
        assert alice_client.get(f"{SEARCHES}/my-tuning").json()["hpoName"] == "my-tuning"
        again = post(alice_client, request)
        assert (again.status_code, text_of(again)[:24]) == (409, "Error 409: There is a hy")
        for reserved in ("bob-hpo-0000000000000001", "algorithm", "a/b"):
            assert post(alice_client, {**RANDOM, "hpoName": reserved}).status_code == 400

    def test_a_refusal_leaves_nothing_behind(self, alice_client: Client, home: Path) -> None:
        answer = post(alice_client, changed(RANDOM, "algoDef.algorithm", "Magic"))
        assert answer.status_code == 400
        assert text_of(answer).startswith("Error 400: Algorithm 'Magic' is not known: use one of Random, Tpe, ")
        unknown = post(alice_client, changed(RANDOM, "modelSpec.sigName", "dli"))
        assert text_of(unknown).startswith("Error 400: Instance group name dli not found.")
        assert not Study.objects.exists()
        assert not RegisteredModel.objects.exists()

    def test_a_framework_is_refused_as_in_execs(self, alice_client: Client) -> None:
        answer = post(alice_client, changed(RANDOM, "modelSpec.args", "--exec-start XGboost --model-main main.py"))
        assert answer.status_code == 400
        assert text_of(answer).startswith("Error 400: Framework 'XGboost' is not supported on this cluster: use one of")

    def test_without_files_it_says_what_to_send(self, alice_client: Client) -> None:
        answer = alice_client.post(SEARCHES, {"data": json.dumps(RANDOM)})
        assert (answer.status_code, "The request has no model" in text_of(answer)) == (400, True)

    def test_data_may_be_a_file_part(self, alice_client: Client) -> None:
        data = SimpleUploadedFile("data", json.dumps(RANDOM).encode())
        upload = model_tar({"pytorch_mnist_HPO.py": b"x = 1\n"}, top="pytorch_hpo")
        study_behind(alice_client.post(SEARCHES, {"data": data, "file": upload}))


class TestProgress:
    def test_before_the_first_experiment_there_is_an_empty_list(self, alice_client: Client) -> None:
        told = shown(alice_client, study_behind(post(alice_client, RANDOM)))
        assert (told["state"], told["progress"], told["experiments"]) == ("SUBMITTED", "0/4", [])
        assert "best" not in told
        assert pandas.DataFrame(told["experiments"]).empty

    def test_a_running_one_on_prem(self, alice_client: Client) -> None:
        told = shown(alice_client, started(alice_client))
        assert set(told) == {
            *("hpoName", "state", "progress", "creator", "createtime", "duration"),
            *("running", "complete", "failed", "experiments"),
        }
        assert (told["state"], told["creator"], told["running"]) == ("RUNNING", "alice", 2)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", told["createtime"])
        assert re.fullmatch(r"\d\d:\d\d:\d\d", told["duration"])
        first = told["experiments"][0]
        assert set(first) == {
            *("id", "state", "appId", "driverId", "maxiteration", "metricVal", "startTime", "endTime", "hyperParams"),
        }
        assert (first["id"], first["state"], first["maxiteration"], first["metricVal"]) == (0, "SUBMITTED", 0, None)
        assert [each["name"] for each in first["hyperParams"]] == ["learning_rate", "optimizer", "batch"]
        assert [each["dataType"] for each in first["hyperParams"]] == ["double", "str", "int"]
        assert all(isinstance(each["fixedVal"], str) for each in first["hyperParams"])
        assert set(first["hyperParams"][0]) == {"name", "dataType", "fixedVal", "userDefined"}

    def test_one_of_cloud_pak_repeats_its_definition(self, alice_client: Client) -> None:
        told = shown(alice_client, started(alice_client, CLOUD_PAK))
        assert told["algoDef"] == CLOUD_PAK["algoDef"]
        [echoed] = told["hyperParams"]
        assert echoed == {**CLOUD_PAK["hyperParams"][0], "type": "range", "dataType": "double"}
        assert not {"driverId", "maxiteration"} & set(told["experiments"][0])

    @pytest.mark.parametrize("request_", [RANDOM, GRID, HYPERBAND, CLOUD_PAK])
    def test_each_experiment_is_an_ordinary_exec(self, alice_client: Client, request_: dict[str, Any]) -> None:
        study = started(alice_client, request_)
        for experiment in shown(alice_client, study)["experiments"]:
            told = alice_client.get(f"{DLI}/execs/{experiment['appId']}").json()
            assert told["state"] in ("SUBMITTED", "PENDING_CRD_SCHEDULER")
            assert told["args"] == request_["modelSpec"]["args"]

    def test_a_live_value_is_that_of_the_file_or_the_newest_metric(self, alice_client: Client) -> None:
        study = started(alice_client)
        first, second = running(study)
        for trial in (first, second):
            assert trial.job is not None
            set_job(trial.job, state=JobState.RUNNING, attempt=1)
        assert first.job is not None
        assert second.job is not None
        first.job.refresh_from_db()
        write(first.job, "val_dict_list.json", '[{"steps": 1, "loss": 0.9}, {"steps": 2, "loss": 0.4}]')
        for step, value in ((1, 0.8), (2, 0.7)):
            MetricPoint.objects.create(job=second.job, name="loss", step=step, epoch=0, value=value, at=timezone.now())
        experiments = shown(alice_client, study)["experiments"]
        assert [(each["state"], each["metricVal"]) for each in experiments] == [("RUNNING", 0.4), ("RUNNING", 0.7)]

    def test_the_file_counts_before_what_the_training_reports(self, alice_client: Client) -> None:
        study = started(alice_client, changed(HYPERBAND, "algoDef.maxJobNum", 1))
        [trial] = running(study)
        assert trial.job is not None
        set_job(trial.job, attempt=1)
        trial.job.refresh_from_db()
        write(trial.job, "val_dict_list.json", '[{"step": 1, "loss": -0.3}, {"step": 2, "loss": -0.4}]')
        end(trial, final_metrics={"loss": 0.9})
        turn(study)
        assert shown(alice_client, study)["best"]["metricVal"] == -0.4

    def test_it_ends_with_the_best(self, alice_client: Client) -> None:
        study, losses, words = started(alice_client), iter([0.5, 0.2, 0.3, 0.4]), []
        for _ in range(4):
            words.append((shown(alice_client, study)["state"], shown(alice_client, study)["progress"]))
            for trial in running(study):
                end(trial, final_metrics={"loss": next(losses)})
            turn(study)
        told = shown(alice_client, study)
        assert words[:2] == [("RUNNING", "0/4"), ("RUNNING", "2/4")]
        assert (told["state"], told["progress"]) == ("FINISHED", "4/4")
        assert (told["running"], told["complete"], told["failed"]) == (0, 4, 0)
        assert told["best"] == told["experiments"][1]
        assert (told["best"]["metricVal"], told["best"]["state"]) == (0.2, "FINISHED")
        assert len(pandas.DataFrame(told["experiments"])) == 4

    def test_without_a_limit_the_progress_has_none(self, alice_client: Client) -> None:
        study = started(alice_client, changed(RANDOM, "algoDef.maxJobNum", -1))
        assert shown(alice_client, study)["progress"] == "0/-"

    def test_a_time_limit_ends_with_the_best_so_far(self, alice_client: Client) -> None:
        study = started(alice_client, changed(RANDOM, "algoDef.maxRunTime", 1))
        end(running(study)[0], final_metrics={"loss": 0.5})
        Study.objects.filter(pk=study.pk).update(created_at=timezone.now() - timedelta(minutes=2))
        for _ in range(3):
            turn(study)
        told = shown(alice_client, study)
        assert (told["state"], told["best"]["metricVal"]) == ("FINISHED", 0.5)
        assert [each["state"] for each in told["experiments"]] == ["FINISHED", "KILLED"]

    def test_it_fails_if_each_experiment_fails(self, alice_client: Client) -> None:
        study = started(alice_client, changed(RANDOM, "algoDef.maxJobNum", 2))
        for trial in running(study):
            end(trial, "FAILED", error={"kind": "KeyError", "message": "x"}, reason_code=Reason.EXIT_NONZERO)
        turn(study)
        told = shown(alice_client, study)
        assert (told["state"], told["failed"], told["progress"]) == ("FAILED", 2, "2/2")
        assert "best" not in told

    def test_a_search_that_pauses_by_itself_ends_the_clients_loop(self, alice_client: Client) -> None:
        study = started(alice_client, changed(RANDOM, "algoDef.maxParalleJobNum", 1))
        end(running(study)[0], final_metrics={"accuracy": 0.5})
        turn(study)
        assert study.state == Study.State.PAUSED
        assert shown(alice_client, study)["state"] == "FAILED"
        assert alice_client.delete(f"{SEARCHES}/{name_of(study)}").status_code == 204


class TestAlgorithms:
    def test_experiments_keep_their_numbers_and_parameters(self, alice_client: Client) -> None:
        study = started(alice_client, GRID)
        for loss in (0.4, 0.3):
            [trial] = running(study)
            assert trial.job is not None
            assert json.loads((job_folder(trial.job).code / "config.json").read_text()) == trial.values
            end(trial, final_metrics={"loss": loss})
            turn(study)
        told = shown(alice_client, study)
        assert (told["state"], told["progress"], told["best"]["id"]) == ("FINISHED", "2/2", 2)
        assert [each["id"] for each in told["experiments"]] == [1, 2]
        assert told["experiments"][1]["hyperParams"] == [
            {"name": "learning_rate", "dataType": "double", "fixedVal": "0.2", "userDefined": False, "type": "fix"},
            {"name": "optimizer", "dataType": "str", "fixedVal": "Adam", "userDefined": False, "type": "fix"},
        ]
        assert [each["name"] for each in told["experiments"][0]["hyperParams"]] == [
            *("learning_rate", "optimizer", "beta1"),
        ]

    def test_one_experiment_is_a_search(self, alice_client: Client) -> None:
        study = started(alice_client, changed(GRID, "algoDef.maxJobNum", 1))
        assert (study.trials.count(), study.trials_wanted) == (1, 1)

    def test_hyperband_gives_each_experiment_its_resource(self, alice_client: Client) -> None:
        study = started(alice_client, HYPERBAND)
        [trial] = running(study)
        assert trial.job is not None
        assert (study.sampler, study.pruner, study.parameters) == ("random", "hyperband", {"epochs": "10"})
        config = json.loads((job_folder(trial.job).code / "config.json").read_text())
        assert config == {"learning_rate": trial.values["learning_rate"], "epochs": "10"}
        [experiment] = shown(alice_client, study)["experiments"]
        resource = {"name": "epochs", "dataType": "str", "fixedVal": "10", "userDefined": False}
        assert experiment["hyperParams"][1] == resource
        # Elastic, and resized like any training.
        assert (trial.job.min_slots, trial.job.max_slots) == (1, 2)

    def test_they_are_listed_by_type(self, alice_client: Client) -> None:
        names = [each["name"] for each in alice_client.get(f"{SEARCHES}/algorithm?type=BUILD_IN").json()]
        assert names == ["Random", "Tpe", "Bayesian", "Hyperband", "ExperimentGridSearch"]
        assert alice_client.get(f"{SEARCHES}/algorithm").json()[0] == {
            "name": "Random",
            "type": "BUILD_IN",
            "remoteExec": False,
        }
        assert alice_client.get(f"{SEARCHES}/algorithm?type=USER_PLUGIN").json() == []
        assert alice_client.get(f"{SEARCHES}/algorithm?type=x").status_code == 400

    def test_an_unknown_one_is_empty_and_not_an_error(self, alice_client: Client) -> None:
        assert alice_client.get(f"{SEARCHES}/algorithm/tpe").json()["name"] == "Tpe"
        unknown = alice_client.get(f"{SEARCHES}/algorithm/RandomSearch")
        assert (unknown.status_code, unknown.json()) == (200, {})
        assert alice_client.delete(f"{SEARCHES}/algorithm/RandomSearch").status_code == 404
        assert alice_client.delete(f"{SEARCHES}/algorithm/Random").status_code == 400


class TestList:
    def test_there_is_none(self, alice_client: Client) -> None:
        assert alice_client.get(SEARCHES).json() == []

    def test_a_body_changes_nothing(self, alice_client: Client) -> None:
        study = study_behind(post(alice_client, CLOUD_PAK))
        body = json.dumps({"username": "alice", "password": "x"})
        for address in (SEARCHES, f"{SEARCHES}/{name_of(study)}"):
            answer: Any = alice_client.generic("GET", address, body, content_type="application/json")
            assert answer.status_code == 200

    def test_it_is_limited_sorted_and_filtered(self, alice_client: Client) -> None:
        first, second = started(alice_client), study_behind(post(alice_client, RANDOM))
        names = [each["hpoName"] for each in alice_client.get(SEARCHES).json()]
        assert names == [name_of(second), name_of(first)]
        [oldest] = alice_client.get(f"{SEARCHES}?limit=1&sort_by=createtime:asc").json()
        assert oldest["hpoName"] == name_of(first)
        [waiting] = alice_client.get(f"{SEARCHES}?state=submitted").json()
        assert waiting["hpoName"] == name_of(second)
        assert alice_client.get(f"{SEARCHES}?state=FINISHED,RECOVERPEND").json() == []
        for query in ("state=GONE", "sort_by=loss", "limit=0"):
            assert alice_client.get(f"{SEARCHES}?{query}").status_code == 400

    def test_more_searches_need_no_more_queries(self, alice_client: Client) -> None:
        study = started(alice_client)
        for trial in running(study):
            end(trial, final_metrics={"loss": 1.0})
        counts = []
        for _ in range(2):
            with CaptureQueriesContext(connection) as captured:
                assert alice_client.get(SEARCHES).status_code == 200
            counts.append(len(captured))
            post(alice_client, RANDOM)
        assert counts[0] == counts[1]

    def test_studies_of_the_pages_are_there_too(self, alice_client: Client, alice: User, group: InstanceGroup) -> None:
        study = study_behind(post(alice_client, RANDOM))
        own = actions.create_study(
            actions.StudyRequest(
                name="widths",
                model=study.model,
                dataset=study.dataset,
                instance_group=group.name,
                space={"width": [1, 2]},
                metric="loss",
                goal="maximize",
                options={"max_slots": 1},
            ),
            alice,
        )
        told = shown(alice_client, own)
        assert (told["progress"], told["algoDef"]["objective"]) == ("0/-", "maximize")

    def test_others_see_none_of_it(self, alice_client: Client, bob_client: Client) -> None:
        post(alice_client, {**RANDOM, "hpoName": "mine"})
        study = Study.objects.get()
        assert bob_client.get(SEARCHES).json() == []
        for name in (name_of(study), f"alice-hpo-{study.pk:016}", f"bob-hpo-{study.pk:016}"):
            assert bob_client.get(f"{SEARCHES}/{name}").status_code == 404
            assert bob_client.put(f"{SEARCHES}/{name}").status_code == 404

    @pytest.mark.parametrize("name", ["nothing", "a" * 5000, "alice-hpo-9999999999999999", "x-hpo-", "%F0%9F"])
    def test_an_unknown_one_is_404_in_text(self, alice_client: Client, name: str) -> None:
        answer = alice_client.get(f"{SEARCHES}/{name}")
        assert (answer.status_code, text_of(answer)[:33]) == (404, "Error 404: Hyperparameter search ")


class TestStopAndDelete:
    def test_stop_ends_its_experiments_and_a_second_time_says_so(self, alice_client: Client) -> None:
        study = started(alice_client)
        address = f"{SEARCHES}/{name_of(study)}"
        assert alice_client.put(address).status_code == 204
        turn(study)
        told = shown(alice_client, study)
        assert (told["state"], {each["state"] for each in told["experiments"]}) == ("STOPPED", {"KILLED"})
        for again in (address, f"{address}/force"):
            answer = alice_client.put(again)
            assert answer.status_code == 400
            assert text_of(answer).endswith("is already stopped.\n")

    def test_a_stopped_one_goes_on_with_what_was_stopped(self, alice_client: Client) -> None:
        study = started(alice_client, GRID)
        address = f"{SEARCHES}/{name_of(study)}"
        assert alice_client.put(f"{address}/restart").status_code == 409
        assert alice_client.put(f"{address}/force").status_code == 204
        turn(study)
        assert alice_client.put(f"{address}/restart").status_code == 200
        values = []
        for _ in range(3):
            turn(study)
            for trial in running(study):
                values.append(trial.values["learning_rate"])
                end(trial, final_metrics={"loss": 0.1})
        told = shown(alice_client, study)
        assert (told["state"], told["progress"], sorted(values)) == ("FINISHED", "2/2", [0.1, 0.2])

    def test_it_is_deleted_once_it_is_over(self, alice_client: Client) -> None:
        study = started(alice_client)
        address = f"{SEARCHES}/{name_of(study)}"
        refused = alice_client.delete(address)
        assert (refused.status_code, text_of(refused)[:10]) == (409, "Error 409:")
        alice_client.put(address)
        turn(study)
        assert alice_client.delete(address).status_code == 204
        assert alice_client.get(address).status_code == 404
        assert Job.objects.count() == 2

    def test_all_are_deleted_unless_one_runs(self, alice_client: Client, bob_client: Client) -> None:
        first, other = started(alice_client), study_behind(post(bob_client, CLOUD_PAK))
        refused = alice_client.delete(SEARCHES)
        assert (refused.status_code, name_of(first) in text_of(refused)) == (409, True)
        alice_client.put(f"{SEARCHES}/{name_of(first)}")
        turn(first)
        assert alice_client.delete(SEARCHES).status_code == 204
        assert list(Study.objects.values_list("pk", flat=True)) == [other.pk]
