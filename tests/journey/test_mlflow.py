"""MLflow beside the whole stack: killed while a script logs, and one run through a stop and a resumption."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.journey.running_stack import RunningStack
from tests.journey.training import MODELS, Training, register_recorder
from tests.tracking.clients import CLIENTS, client_packages, server_installed
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.long, pytest.mark.timeout(900)]

CALLS = 1_000
API = "/mlflow/api/2.0/mlflow/"


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    server_installed()


@pytest.fixture
def mlflow(stack: RunningStack) -> Any:
    """As the administrator, who sees all experiments."""
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
    stack: RunningStack, mlflow: httpx.Client, tmp_path: Path, version: str
) -> None:
    name = f"calls-{version}"
    shutil.copytree(MODELS / "mlflow-calls", stack.home / "models" / name)
    go_on = tmp_path / "go-on"
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
