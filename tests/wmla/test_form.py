"""Tests of a submission's data, in `args` and in the form's part `data`."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from jobs.control.dispatch import launch_spec
from jobs.models import InstanceGroup, Job
from tests.wmla.conftest import ARGS, DLI, Submit, job_behind, model_tar, text_of

pytestmark = pytest.mark.django_db


class TestData:
    def test_a_registered_dataset_is_used_whoever_owns_it(self, submit: Submit, alice: User, data: Path) -> None:
        first, second = job_behind(submit(), alice), job_behind(submit(), alice)
        assert first.dataset == second.dataset
        assert (first.dataset.dataset.name, first.dataset.dataset.owner) == ("mnist", alice)

    def test_without_a_path_it_is_the_data_folder_itself(self, submit: Submit, alice: User, home: Path) -> None:
        args = ARGS.replace("type=fs,data_path=mnist", "type=fs")
        jobs = [job_behind(submit(args), alice) for _ in range(2)]
        assert [job.dataset.path for job in jobs] == [str(home / "data")] * 2
        assert jobs[0].dataset == jobs[1].dataset

    def test_a_large_folder_does_not_wait_for_its_check(
        self, submit: Submit, alice: User, data: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("datasets.inspection_queue._SMALL_FILES", 0)
        job = job_behind(submit(), alice)
        assert job.dataset.state == "WAITING"

    def test_an_empty_folder_is_what_a_script_downloads_to(self, submit: Submit, alice: User, data: Path) -> None:
        (data / "train.npz").unlink()
        first, second = job_behind(submit(), alice), job_behind(submit(), alice)
        assert (first.dataset, first.dataset.state) == (second.dataset, "INVALID")

    def test_a_data_source_in_the_form_says_where_as_well(self, submit: Submit, alice: User, data: Path) -> None:
        source = {"dataSource": [{"type": "fs", "location": {"paths": "mnist"}}]}
        for sent in (json.dumps(source), SimpleUploadedFile("data", json.dumps(source).encode())):
            args = "--exec-start PyTorch --model-main main.py"
            assert job_behind(submit(args, data=sent), alice).dataset.path == str(data)

    def test_a_data_source_counts_before_the_meta_data(self, submit: Submit, alice: User, data: Path) -> None:
        args = ARGS.replace("data_path=mnist", "data_path=nowhere")
        sources = [{"type": "fs", "location": {"paths": "mnist"}}]
        assert job_behind(submit(args, data=json.dumps({"dataSource": sources})), alice).dataset.path == str(data)
        assert job_behind(submit(f"{args} --data-source '{json.dumps(sources)}'"), alice).dataset.path == str(data)

    @pytest.mark.parametrize(
        "sent", ["{", "[]", '{"dataSource": [{"type": "s3"}]}', '{"dataSource": [1]}', '{"dataSource": 5}']
    )
    def test_another_data_source_is_refused(self, submit: Submit, sent: str) -> None:
        assert text_of(submit(data=sent)).startswith("Error 400: data ")

    @pytest.mark.parametrize("path", ["nothing-there", "../../etc", "/etc"])
    def test_a_folder_that_is_not_there_is_refused(self, submit: Submit, path: str) -> None:
        answer = submit(ARGS.replace("mnist", path))
        assert (answer.status_code, text_of(answer)[:21]) == (400, "Error 400: data_path=")


#: Body that the tutorial for large models of Cloud Pak 4.7 sends, with another command.
CLOUD_PAK_4_7 = {
    "args": "--exec-start distPyTorch \\\n   --msd-env HF_HOME=/tmp --msd-env TORCH_EXTENSIONS_DIR=/tmp \\\n "
    "--cs-datastore-meta type=fs,data_path=mnist --model-main main.py -- --deepspeed ds.config",
    "hardwareSpec": {
        "nodes": {"num_nodes": 4, "mem": {"size": "16g"}, "gpu": {"num_gpu": 1}, "cpu": {"units": "0.25"}}
    },
}


class TestForm:
    @pytest.fixture
    def post(self, alice_client: Client, group: InstanceGroup, data: Path) -> Submit:
        def post(fields: object, query: str = "") -> Any:
            upload = model_tar({"main.py": b"x = 1\n"}, top=".", name="llm_train.modelDir.tar")
            return alice_client.post(f"{DLI}/execs{query}", {"file": upload, "data": json.dumps(fields)})

        return post

    def test_args_and_hardware_may_stand_in_the_form(self, post: Submit, alice: User) -> None:
        answer = post(CLOUD_PAK_4_7)
        job = job_behind(answer, alice)
        assert (answer.json()["framework"], answer.json()["args"]) == ("distPyTorch", CLOUD_PAK_4_7["args"])
        assert (job.max_slots, job.arguments, job.dialect) == (4, ["--deepspeed", "ds.config"], "cloud-pak")
        assert launch_spec(job).environment["HF_HOME"] == "/tmp"
        assert "Options without effect here: hardwareSpec mem, hardwareSpec cpu." in [
            event.text for event in job.events.all()
        ]

    def test_the_same_args_may_stand_in_both(self, post: Submit) -> None:
        query = f"?{urlencode({'args': CLOUD_PAK_4_7['args']})}"
        assert post(CLOUD_PAK_4_7, query).status_code == 200
        assert "args differs between the URL and data" in text_of(post({"args": "--exec-start PyTorch"}, query))

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({}, "args names no framework"),
            ({"args": 5}, "args in data must be a single string"),
            ({"args": "--exec-start edtKeras"}, "is not supported"),
            ({**CLOUD_PAK_4_7, "hardwareSpec": {"nodes": 4}}, "hardwareSpec in data: nodes must be an object"),
            (5, "data must be a JSON object"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, post: Submit, fields: object, said: str) -> None:
        answer = post(fields)
        assert (answer.status_code, said in text_of(answer)) == (400, True), text_of(answer)
        assert not Job.objects.exists()

    def test_what_has_no_effect_is_named(self, post: Submit, alice: User) -> None:
        job = job_behind(post({**CLOUD_PAK_4_7, "runtime": "x"}), alice)
        assert any("data runtime" in event.text for event in job.events.all())
