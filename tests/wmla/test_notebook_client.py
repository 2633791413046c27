"""The workflow of WMLA's notebooks and command line, against a real stack: only host, port, credentials, group and
paths are ours.

The client is written after what IBM's notebook of elastic distributed training does, step by step: requests for REST
with a certificate that is not verified, tarfile for the model, pandas for the log.
"""

import io
import json
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas
import pytest
import requests

from tests.journey.running_stack import ROOT, RunningStack, free_port
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.journey,
    # The notebook turns it off as well.
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

EXAMPLE = ROOT / "examples/mnist-edt"
EPOCHS = 12
ENDED = {"FINISHED", "KILLED", "FAILED", "ERROR"}
COLUMNS = ["timestamp", "global_steps", "iteration", "loss", "accuracy"]


@pytest.fixture(scope="module")
def stack() -> Iterator[RunningStack]:
    """With the two services on ports of their own, by TLS, as on WMLA's machines."""
    home = Path(tempfile.mkdtemp(prefix="tidepool-"))
    ports = f"https:{free_port()},https:{free_port()}"
    running = RunningStack(home, free_port(), ("--wmla-ports", ports, "--hosts", "1"))
    try:
        running.start()
        make_idx = runpy.run_path(str(EXAMPLE / "make_idx.py"))
        make_idx["write_idx"](home / "data/mnist")
        yield running
    finally:
        running.stop()
        shutil.rmtree(home, ignore_errors=True)


@dataclass
class Notebook:
    """The notebook's first cell: where the services are, and who asks."""

    conductor: str
    deep_learning: str
    login: tuple[str, str]
    folder: Path

    def get(self, url: str, accept: str = "application/json", **options: Any) -> requests.Response:
        answer = requests.get(url, auth=self.login, headers={"Accept": accept}, verify=False, timeout=60, **options)
        assert answer.ok, (url, answer.status_code, answer.content[:500])
        return answer


@pytest.fixture
def notebook(stack: RunningStack, tmp_path: Path) -> Notebook:
    ports = stack.arguments[1].replace("https:", "").split(",")
    hosts = [f"https://127.0.0.1:{port}/platform/rest" for port in ports]
    return Notebook(f"{hosts[0]}/conductor/v1", f"{hosts[1]}/deeplearning/v1", ("admin", stack.password), tmp_path)


def test_the_notebook_of_elastic_training(notebook: Notebook) -> None:
    logged_on = notebook.get(f"{notebook.conductor}/auth/logon")
    assert logged_on.json()["csrftoken"]

    frameworks = notebook.get(f"{notebook.deep_learning}/execs/frameworks").json()
    assert "edtPyTorch" in [framework["name"] for framework in frameworks]

    submitted = _submit(notebook)
    seen = _watched(notebook, submitted)
    assert seen["driver"]["state"] == "RUNNING"
    assert 1 <= seen["gpuslots"] <= 2
    assert isinstance(seen["apprunduration"], float)
    # Nobody measures these for virtual GPUs.
    assert "total" in seen["gpudevutil"]
    assert "total" in seen["gpumemused"]

    wait_until(lambda: _state(notebook, submitted) in ENDED, "the training is over", 300)
    assert _state(notebook, submitted) == "FINISHED"

    _check_log(notebook, submitted)
    _check_result(notebook, submitted)
    _check_logs(notebook, submitted, seen)


#: A script as the notebooks of hyperparameter search describe it. Its loss is lowest at a rate of 0.05.
SEARCHED = """
import json, os
values = json.loads(open("config.json").read())
rate = float(values.get("learning_rate", "0.01"))
with open("{}/val_dict_list.json".format(os.environ["RESULT_DIR"]), "w") as file:
    json.dump([{"steps": 1, "loss": 1.0}, {"steps": 2, "loss": abs(rate - 0.05)}], file)
"""
RATE = {"name": "learning_rate", "type": "Range", "dataType": "DOUBLE", "minDbVal": 0.01, "maxDbVal": 0.1}
SEARCH = {
    "modelSpec": {
        "sigName": "sig-elastic",
        "args": "--exec-start PyTorch --cs-datastore-meta type=fs --python-version 3.6       --gpuPerWorker 1 "
        "--model-main hpo.py --model-dir pytorch_hpo       --debug-level debug",
    },
    "algoDef": {
        "algorithm": "Random",
        "maxRunTime": -1,
        "maxJobNum": 3,
        "maxParalleJobNum": 2,
        "objectiveMetric": "loss",
        "objective": "minimize",
    },
    "hyperParams": [{**RATE, "minIntVal": 0, "maxIntVal": 0, "discreteDbVal": [], "step": "0.002"}],
}


def test_the_notebook_of_hyperparameter_search(notebook: Notebook) -> None:
    url = f"{notebook.deep_learning}/hypersearch"
    assert notebook.get(url).json() == []
    name = _searched(notebook, url)

    def task() -> dict[str, Any]:
        return dict(notebook.get(f"{url}/{name}").json())

    wait_until(lambda: task()["state"] not in ("SUBMITTED", "RUNNING"), "the search is over", 300)
    ended = task()
    assert (ended["state"], ended["progress"], ended["complete"]) == ("FINISHED", "3/3", 3), ended
    table = pandas.DataFrame(ended["experiments"])
    assert ended["best"]["metricVal"] == table["metricVal"].min()
    for experiment in ended["experiments"]:
        [rate] = experiment["hyperParams"]
        assert experiment["metricVal"] == pytest.approx(abs(float(rate["fixedVal"]) - 0.05))
        assert notebook.get(f"{notebook.deep_learning}/execs/{experiment['appId']}").json()["state"] == "FINISHED"
    assert requests.delete(f"{url}/{name}", auth=notebook.login, verify=False, timeout=60).status_code == 204


def _searched(notebook: Notebook, url: str) -> str:
    """Start the search, and return its name."""
    folder = notebook.folder / "pytorch_hpo"
    folder.mkdir()
    (folder / "hpo.py").write_text(SEARCHED)
    archive = notebook.folder / "tmp.modelDir.tar"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    with archive.open("rb") as file:
        answer = requests.post(
            url,
            data={"data": json.dumps(SEARCH)},
            files={"file": file},
            auth=notebook.login,
            verify=False,
            timeout=60,
        )
    assert answer.ok, answer.content
    return str(answer.json())


def _submit(notebook: Notebook) -> dict[str, Any]:
    archive = notebook.folder / "pytorch_edt.modelDir.tar"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(EXAMPLE, arcname="pytorch_edt", filter=lambda member: None if "__pycache__" in member.name else member)
    arguments = f"""--exec-start edtPyTorch
                    --cs-datastore-meta type=fs,data_path=mnist
                    --model-dir pytorch_edt --edt-options maxWorkers=2
                    --model-main mnist_edt.py --epochs {EPOCHS}   """
    with archive.open("rb") as file:
        answer = requests.post(
            f"{notebook.deep_learning}/execs?sigName=sig-elastic&args={arguments}",
            files={"file": file},
            auth=notebook.login,
            headers={"Accept": "application/json"},
            verify=False,
            timeout=60,
        )
    assert answer.ok, answer.content
    submitted: dict[str, Any] = answer.json()
    assert {"id", "sigId", "submissionId", "appId", "state"} <= set(submitted)
    return submitted


def _watched(notebook: Notebook, submitted: dict[str, Any]) -> dict[str, Any]:
    """The application while it runs, once it has workers."""
    url = f"{notebook.conductor}/instances/{submitted['sigId']}/applications?state=RUNNING"
    found: list[dict[str, Any]] = []

    def is_running() -> bool:
        for application in notebook.get(url).json():
            if application["driver"]["id"] == submitted["submissionId"] and application["executors"]:
                found.append(application)
        return bool(found) or _state(notebook, submitted) in ENDED

    wait_until(is_running, "the application runs")
    assert found, "it was over before anybody saw it run"
    return found[-1]


def _state(notebook: Notebook, submitted: dict[str, Any]) -> str:
    return str(notebook.get(f"{notebook.deep_learning}/execs/{submitted['id']}").json()["state"])


def _check_log(notebook: Notebook, submitted: dict[str, Any]) -> None:
    """The notebook makes a table of the log by its colons and commas."""
    text = notebook.get(f"{notebook.deep_learning}/execs/{submitted['id']}/log").json()
    table = pandas.read_csv(io.StringIO(text.replace(":", ",")), usecols=[4, 6, 8, 10, 12], names=COLUMNS)
    steps = table.dropna()
    assert len(steps) > 20
    assert (steps["global_steps"].astype(int).diff().dropna() >= 0).all()
    losses = steps["loss"].astype(float)
    assert losses.tail(5).mean() < losses.head(5).mean()
    assert steps["accuracy"].astype(float).between(0, 1).all()


def _check_result(notebook: Notebook, submitted: dict[str, Any]) -> None:
    url = f"{notebook.deep_learning}/execs/{submitted['id']}/result"
    answer = notebook.get(url, accept="application/octet-stream", stream=True)
    told = answer.headers["Content-Disposition"]
    size = int(told.split("size=")[1])
    target = notebook.folder / "result.zip"
    with target.open("wb") as file:
        for chunk in answer.iter_content(chunk_size=65536):
            file.write(chunk)
    assert target.stat().st_size == size
    assert submitted["id"] in told
    with zipfile.ZipFile(target) as archive:
        names = archive.namelist()
    assert "model/train/model_epoch_final.pth" in names
    assert any(name.startswith("_submitted_code/") for name in names)


def _check_logs(notebook: Notebook, submitted: dict[str, Any], seen: dict[str, Any]) -> None:
    application = f"{notebook.conductor}/instances/{submitted['sigId']}/applications/{submitted['submissionId']}"
    driver = notebook.get(f"{application}/logs/stdout/download", accept="application/octet-stream").text
    assert "arguments: Namespace(" in driver
    assert f"epochs={EPOCHS}" in driver
    notebook.get(f"{application}/logs/stderr/download", accept="application/octet-stream")
    for executor in seen["executors"]:
        for stream in ("stdout", "stderr"):
            notebook.get(f"{application}/{executor['id']}/logs/{stream}/download", accept="application/octet-stream")


@pytest.fixture
def host(stack: RunningStack) -> str:
    """Return the address where Cloud Pak's users find everything."""
    return "localhost:" + stack.arguments[1].partition(",")[0].removeprefix("https:")


@pytest.fixture
def run(host: str, tmp_path: Path) -> Callable[..., str]:
    """The program that the stack hands out, downloaded without a look at the certificate, as IBM's self-test does."""
    program = tmp_path / "dlicmd.py"
    program.write_bytes(requests.get(f"https://{host}/ui/tools/dlicmd.py", verify=False, timeout=60).content)

    def run(*arguments: str, stdin: str = "") -> str:
        ended = subprocess.run(
            [sys.executable, str(program), *arguments],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ended.returncode == 0, (arguments, ended.stdout, ended.stderr)
        return ended.stdout

    return run


#: A script that knows nothing of Tidepool; it records its metrics as WMLA's samples do.
PLAIN = """
import os
from emetrics import EMetrics

print("greeting:", os.environ["GREETING"], os.environ["PYTHONPATH"].split(":")[-1])
with EMetrics.open() as metrics:
    for epoch in range(2):
        for batch in range(3):
            metrics.record(EMetrics.TRAIN_GROUP, 64 * batch, {"loss": 1 / (1 + batch + 3 * epoch)})
print("Test loss: 0.02")
print("Test accuracy: 0.99")
"""


def test_ibms_self_test(stack: RunningStack, host: str, run: Callable[..., str], tmp_path: Path) -> None:
    """Run what its self-test.sh does, with a script of any library: no option names a certificate."""
    folder = tmp_path / "mnist_convnet"
    folder.mkdir()
    (folder / "mnist_convnet.py").write_text(PLAIN)
    where = ["--rest-host", host]
    run("--logon", *where, "--username", "admin", "--password", stack.password)
    options = [
        "--appName",
        "my-tf-app",
        "--workerDeviceType",
        "cpu",
        "--numWorker",
        "1",
        "--model-main",
        "mnist_convnet.py",
    ]
    variables = ["--msd-env", "GREETING=hello", "--msd-env", "PYTHONPATH=/extra"]
    told = run("--exec-start", "tensorflow", *where, *options, "--model-dir", str(folder), *variables)
    number = json.loads(told[told.index("{") :])["appId"]

    def state() -> str:
        return str(json.loads(run("--exec-get", number, *where))["state"])

    wait_until(lambda: state() in ENDED, "the training is over", 120)
    given = json.loads(run("--exec-get", number, *where))
    assert (given["state"], given["framework"], given["appName"]) == ("FINISHED", "tensorflow", "my-tf-app"), given
    printed = run("--exec-trainlogs", number, *where)
    assert printed == "greeting: hello /extra\nTest loss: 0.02\nTest accuracy: 0.99\n"
    asked = {"auth": ("admin", stack.password), "verify": False, "timeout": 60}
    assert requests.get(f"https://{host}/platform/rest/deeplearning/v1/execs/{number}/log", **asked).json() == printed
    assert "Train result is saved to dlpd-model" in run("--exec-trainresult", number, *where)

    def curve() -> list[tuple[int, float]]:
        job = number.removeprefix("wmla-")
        points = requests.get(f"https://{host}/api/v1/jobs/{job}/metrics/?name=loss", **asked).json()
        return [(point["step"], point["value"]) for point in points["results"]]

    wait_until(lambda: len(curve()) == 6, "what the script recorded is a curve")
    assert curve() == [(64 * count, pytest.approx(1 / (1 + count))) for count in range(6)]


def test_the_command_line_from_log_on_to_the_result(
    host: str, stack: RunningStack, run: Callable[..., str], tmp_path: Path
) -> None:
    """Follow Cloud Pak's users, with the program that the stack itself hands out."""
    name, _, port = host.partition(":")
    where = ["--rest-host", name, "--rest-port", port]
    said = run("--logon", *where, "--username", "admin", "--password", "-", stdin=f"{stack.password}\n")
    assert said.startswith(f"Logged on at https://{host} as admin until ")
    assert "edtPyTorch" in run("--dl-frameworks", "-o", "custom-columns=NAME:.name")

    model = ["--model-dir", str(EXAMPLE), "--model-main", "mnist_edt.py", "--numWorker", "2"]
    data = ["--cs-datastore-meta", "type=fs,data_path=mnist"]
    started = json.loads(run("--exec-start", "edtPyTorch", *model, *data, "-o", "json"))
    number = started["execId"]
    assert number.startswith("wmla-")
    assert number in run("--app-get-all", "-o", "custom-columns=ID:.id,STATE:.state")
    assert json.loads(run("--app-wait", started["appId"]))["state"] == "FINISHED"
    assert json.loads(run("--exec-get", number))["state"] == "FINISHED"

    printed = run("--exec-trainoutlogs", number)
    assert "arguments: Namespace(" in printed
    assert "] Train,\tTimestamp: " in printed
    assert "*** driver stdout\n" in run("--exec-outlogs", number)
    assert run("--exec-trainresult", number).startswith("Train result is saved to dlpd-model")
    [result] = tmp_path.glob("dlpd-model*.zip")
    with zipfile.ZipFile(result) as archive:
        assert archive.testzip() is None
    assert json.loads(run("--rp-get-all"))
    run("--exec-delete", number)
    assert number not in run("--exec-get-all")
    run("--logoff")
