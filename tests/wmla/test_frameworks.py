"""The framework object, and what `--exec-start` may name."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from jobs.models import Job
from tests.wmla.conftest import DLI, Submit
from wmla.identifiers import job_of
from wmla.service_info import FRAMEWORKS

pytestmark = pytest.mark.django_db

#: Fields of Cloud Pak beside name, description and the lines of help.
TOLD = {"frameworkVersion", "deployMode", "hasTask0", "execMode", "appName", "numWorkers", "maxWorkers", "backend"}
#: Fields of WMLA's plug-ins, of TensorFlow, and of limits that do not exist here.
EMPTY = {
    *("exports", "workerMemory", "frameworkCmdGenerator", "prebuiltModelMain", "prebuiltModelDir"),
    *("distributeStrategy", "numPs"),
}


def listed(client: Client) -> list[dict[str, Any]]:
    answer = client.get(f"{DLI}/execs/frameworks", headers={"Accept": "application/json"})
    assert answer.status_code == 200
    rows: list[dict[str, Any]] = answer.json()
    return rows


def test_each_has_the_fields_of_both_generations(alice_client: Client) -> None:
    for row in listed(alice_client):
        assert set(row) == {"name", "description", "desc"} | TOLD | EMPTY
        assert {name for name, value in row.items() if value is None} == EMPTY
        assert row["execMode"] == ("single" if row["name"] in ("PyTorch", "tensorflow") else "distributed")


def test_the_help_of_each_is_a_title_and_a_command_that_submits(alice_client: Client, submit: Submit) -> None:
    for row in listed(alice_client):
        title, _, command = row["desc"]
        assert title.startswith(("PyTorch, ", "Any library, "))
        for option in ("--exec-start " + row["name"], "--ig <group>", "--cs-datastore-meta type=fs,data_path=mnist"):
            assert option in command
        main = command.split("--model-main ")[1].split()[0]
        answer = submit(command.strip().replace("<group>", "sig-elastic"), files={main: b"x = 1\n"})
        assert answer.status_code == 200, answer.content
        assert (answer.json()["framework"], answer.json()["appName"]) == (row["name"], row["appName"])


@pytest.mark.parametrize("name", ["edtPyTorch", "PyTorch", "distPyTorch", "tensorflow"])
def test_those_that_clients_need_are_there(alice_client: Client, name: str) -> None:
    assert name in [row["name"] for row in listed(alice_client)]


@pytest.mark.parametrize(
    "name",
    [
        *("edtTensorflow", "edtKeras", "disttensorflow", "tensorflow1100", "XGboost"),
        *("PowerAICaffeIBM", "ddlTensorFlow", "tensorflow20_preview"),
    ],
)
def test_what_needs_another_library_is_refused_with_those_there_are(submit: Submit, name: str) -> None:
    answer = submit(f"--exec-start {name} --model-main main.py")
    there = ", ".join(framework.name for framework in FRAMEWORKS)
    sentence = f"Error 400: Framework '{name}' is not supported on this cluster: use one of {there}.\n"
    assert (answer.status_code, answer.content.decode()) == (400, sentence)
    assert not Job.objects.exists()


def test_tensorflow_runs_any_script_in_one_process(alice: User, submit: Submit) -> None:
    """Run a script as IBM's notebooks of XGBoost and cuML do: named by its path in the shared folder."""
    args = (
        "--exec-start tensorflow --cs-datastore-meta type=fs \\\n   --workerDeviceNum 1 \\\n"
        "  --conda-env-name dlipy3 \\\n    --model-main /gpfs/mydatafs/models/Xgboost_main.py --workerDeviceType cpu"
    )
    answer = submit(args, sig_name=None, upload=SimpleUploadedFile("Xgboost_main.py", b"print(1)\n"))
    given = answer.json()
    assert (answer.status_code, given["framework"], given["appName"]) == (
        200,
        "tensorflow",
        "SingleNodeTensorflowTrain",
    )
    assert (given["elastic"], given["numWorker"]) == (False, 1)
    job = job_of(alice, given["id"])
    assert (job.model.engine, job.model.entry_point, job.max_slots) == ("single", "Xgboost_main.py", 1)


def test_frameworks_are_listed_by_their_backend(alice_client: Client) -> None:
    for backend, names in (("pytorch", ["edtPyTorch", "PyTorch", "distPyTorch"]), ("TensorFlow", ["tensorflow"])):
        rows = alice_client.get(f"{DLI}/frameworks?backend={backend}").json()
        assert [row["name"] for row in rows] == names


def test_a_plug_in_of_ones_own_is_not_known(submit: Submit) -> None:
    answer = submit("--exec-start myframework --model-main main.py")
    assert answer.status_code == 400
    assert answer.content.startswith(b"Error 400: Framework 'myframework' is not known: use one of edtPyTorch, ")
