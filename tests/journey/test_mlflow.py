"""MLflow beside the whole stack: killed while a script logs, one run through a resumption, frameworks' own logging."""

import os
import shutil
import signal
from typing import Any

import httpx
import psutil
import pytest

from tests.journey.running_stack import RunningStack
from tests.journey.training import MODELS, Training, register_recorder
from tests.missing import leave_out
from tests.tracking.clients import CLIENTS, client_packages, server_installed
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.long, pytest.mark.timeout(900)]

CALLS = 1_000
API = "/mlflow/api/2.0/mlflow/"
#: A metric of each that autologging alone gives, and a parameter of the framework's; what it installs for that.
FRAMEWORKS = {
    "scikit-learn": ("training_accuracy_score", "C", "scikit-learn pandas"),
    "xgboost": ("train-logloss", "num_boost_round", "scikit-learn pandas xgboost"),
    "lightning": ("train_loss", "epochs", "lightning"),
    "transformers": ("loss", "num_train_epochs", "transformers accelerate"),
}


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    server_installed()


@pytest.fixture
def mlflow(stack: RunningStack) -> Any:
    """Yield a client of the administrator, who sees all experiments."""
    with httpx.Client(
        base_url=f"{stack.url}{API}", auth=("admin", stack.password), timeout=60, trust_env=False
    ) as client:
        wait_until(lambda: client.get("experiments/search?max_results=1").status_code == 200, "MLflow answers")
        yield client


def runs_of(mlflow: httpx.Client, job: int) -> list[dict[str, Any]]:
    asked = mlflow.post("experiments/search", json={"max_results": 100})
    if asked.status_code == 503:  # killed, and not back yet
        return []
    found = asked.raise_for_status().json()["experiments"]
    numbers = [each["experiment_id"] for each in found]
    question = {"experiment_ids": numbers, "filter": f"tags.`tidepool.job` = '{job}'"}
    return list(mlflow.post("runs/search", json=question).raise_for_status().json().get("runs", []))


def history(mlflow: httpx.Client, run: str, name: str) -> list[int]:
    asked = {"run_id": run, "metric_key": name, "max_results": "25000"}
    answer = mlflow.get("metrics/get-history", params=asked)
    return [int(metric["step"]) for metric in answer.json().get("metrics", [])] if answer.status_code == 200 else []


def server_of(stack: RunningStack) -> psutil.Process | None:
    found = [each for each in stack.family() if any("tracking/server/bridge.py" in word for word in each.cmdline())]
    return found[0] if found else None


def run_of(mlflow: httpx.Client, job: int) -> dict[str, Any]:
    [run] = wait_until(lambda: runs_of(mlflow, job), f"job {job} has a run")
    return run


@pytest.mark.parametrize("version", CLIENTS)
def test_all_that_a_script_logs_arrives_though_the_server_is_killed(
    stack: RunningStack, mlflow: httpx.Client, version: str
) -> None:
    name = f"calls-{version}"
    shutil.copytree(MODELS / "mlflow-calls", stack.home / "models" / name)
    go_on = stack.signals / f"go-on-{version}"
    with stack.api() as api:
        model = {"name": name, "path": name, "entry_point": "train.py", "engine": "single", "framework": "PyTorch"}
        assert api.post("models/", json=model).status_code == 201
        given = {"client": str(client_packages(version)), "calls": CALLS, "go-on": str(go_on)}
        asked = {"name": name, "model": name, "instance_group": "sig-elastic", "parameters": given, "max_slots": 1}
        answer = api.post("jobs/", json=asked)
        assert answer.status_code == 201, answer.text
        job = int(answer.json()["id"])
        halfway = stack.home / "results/admin/batchworkdir" / str(job) / "attempt-1/halfway"
        wait_until(halfway.exists, "half of the calls are made")
        server = server_of(stack)
        assert server is not None
        os.kill(server.pid, signal.SIGKILL)
        go_on.touch()
        wait_until(lambda: api.get(f"jobs/{job}/").json()["finished_at"], "the script ends")
        assert api.get(f"jobs/{job}/").json()["state"] == "SUCCEEDED"
    run = run_of(mlflow, job)["info"]["run_id"]
    wait_until(
        lambda: len(history(mlflow, run, "own")) >= CALLS, lambda: f"all; there are {len(history(mlflow, run, 'own'))}"
    )
    assert sorted(set(history(mlflow, run, "own"))) == list(range(CALLS))


def test_a_training_that_is_stopped_and_resumed_is_one_run_without_a_step_twice(
    stack: RunningStack, mlflow: httpx.Client
) -> None:
    with stack.api() as api:
        register_recorder(stack, api)
        training = Training(api, stack.home, "resumed", max_slots=2, epochs=3, **{"checkpoint-every": 5})
        wait_until(lambda: training.steps >= 12, "it trains")
        api.post(f"jobs/{training.id}/suspend/").raise_for_status()
        wait_until(lambda: training.now["state"] == "SUSPENDED", "it is suspended")
        api.post(f"jobs/{training.id}/resume/").raise_for_status()
        training.wait_for_the_end()
        last = training.steps
        assert training.now["attempt"] == 2
    run = run_of(mlflow, training.id)
    wait_until(lambda: run_of(mlflow, training.id)["info"]["status"] == "FINISHED", "the run ends")
    wait_until(lambda: max(history(mlflow, run["info"]["run_id"], "loss"), default=0) == last, "all steps arrive")
    steps = history(mlflow, run["info"]["run_id"], "loss")
    assert len(steps) == len(set(steps))


@pytest.fixture(scope="module")
def frameworks(stack: RunningStack) -> str:
    """The name of a model that trains by the framework that its parameter says."""
    name = "mlflow-frameworks"
    shutil.copytree(MODELS / name, stack.home / "models" / name)
    model = {"name": name, "path": name, "entry_point": "train.py", "engine": "single", "framework": "PyTorch"}
    with stack.api() as api:
        assert api.post("models/", json=model).status_code == 201
    return name


def train_by(stack: RunningStack, model: str, framework: str, **asked: Any) -> int:
    """The training's number, once it has succeeded."""
    requirements = "\n".join(["mlflow-skinny==3.13.*", *FRAMEWORKS[framework][2].split()])
    with stack.api() as api:
        options = {"name": framework, "model": model, "instance_group": "sig-elastic", "max_slots": 1}
        answer = api.post("jobs/", json={**options, "requirements": requirements, **asked})
        assert answer.status_code == 201, answer.text
        job = int(answer.json()["id"])
        address = f"jobs/{job}/"
        wait_until(lambda: api.get(address).json()["finished_at"], f"{framework} ends", seconds=600)
        ended = api.get(address).json()
    if ended["state"] != "SUCCEEDED" and "could not be installed" in str(ended):
        leave_out(f"{framework} cannot be installed here")
    assert ended["state"] == "SUCCEEDED", ended
    return job


def data_of(mlflow: httpx.Client, job: int) -> tuple[str, dict[str, str], set[str]]:
    """The id of the job's only run, once it is over there, its parameters, and the names of its metrics."""
    wait_until(lambda: run_of(mlflow, job)["info"]["status"] == "FINISHED", "the run ends")
    run = run_of(mlflow, job)
    params = {each["key"]: each["value"] for each in run["data"]["params"]}
    return run["info"]["run_id"], params, {each["key"] for each in run["data"].get("metrics", [])}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_logs_to_the_run_of_its_training_and_nothing_twice(
    stack: RunningStack, mlflow: httpx.Client, frameworks: str, framework: str
) -> None:
    metric, parameter, _ = FRAMEWORKS[framework]
    given = {"framework": framework, "log-model": int(framework == "scikit-learn")}
    run, params, metrics = data_of(mlflow, train_by(stack, frameworks, framework, parameters=given))
    assert params["framework"] == framework
    assert parameter in params
    assert metric in metrics
    # transformers itself sends its last epoch twice.
    for name in {name for name in metrics if not name.startswith("cluster/")} - {"epoch"}:
        steps = history(mlflow, run, name)
        assert len(steps) == len(set(steps)), f"{name} is there twice: {steps}"
    if framework == "scikit-learn":
        question = {"experiment_ids": [run_experiment(mlflow, run)], "filter": f"source_run_id = '{run}'"}
        models = mlflow.post("logged-models/search", json=question).raise_for_status().json()["models"]
        assert [each["info"]["name"] for each in models] == ["model"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_logs_nothing_where_autologging_is_off(
    stack: RunningStack, mlflow: httpx.Client, frameworks: str, framework: str
) -> None:
    given = {"framework": framework}
    job = train_by(stack, frameworks, framework, parameters=given, autolog="off")
    _, params, metrics = data_of(mlflow, job)
    assert {name for name in params if not name.startswith("tidepool/")} == {"framework"}
    with stack.api() as api:
        read = {metric["name"] for metric in api.get(f"jobs/{job}/metrics/").json()["results"]}
    own = {name for name in metrics if not name.startswith(("cluster/", "system/"))}
    assert own == read, "what its log says, and no more"


def run_experiment(mlflow: httpx.Client, run: str) -> str:
    return str(mlflow.get("runs/get", params={"run_id": run}).json()["run"]["info"]["experiment_id"])
