"""A stack whose MLflow never answers: it is ready, and trains, and says that MLflow is away."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.journey.conftest import fresh_home
from tests.journey.running_stack import RunningStack, free_port
from tests.journey.training import Training
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.timeout(600)]


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[RunningStack]:
    python = tmp_path / "environment/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexec sleep 3600\n")
    python.chmod(0o700)
    (tmp_path / "environment/installed").touch()
    with fresh_home() as home:
        shape = ("--hosts", "1", "--slots-per-host", "1")
        stack = RunningStack(home, free_port(), shape, settings={"TIDEPOOL_MLFLOW_PYTHON": str(python)})
        stack.start()
        yield stack
        stack.stop()


def test_nothing_waits_for_mlflow(silent: RunningStack) -> None:
    with silent.api() as api, httpx.Client(base_url=silent.url, timeout=30, trust_env=False) as site:
        wait_until(lambda: site.get("/healthz").json().get("tracking") == "away", "the mirror has looked for it")
        wait_until(lambda: site.get("/healthz").status_code == 200, "a busy machine may be behind meanwhile")
        headers = {"Authorization": f"Bearer {api.post('me/token/').json()['token']}"}
        answer = site.get("/mlflow/api/2.0/mlflow/experiments/get?experiment_id=0", headers=headers)
        assert (answer.status_code, "Trainings continue" in answer.json()["message"]) == (503, True)
        training = Training(api, silent.home, "beside", model="digits-cnn", max_slots=1, epochs=1)
        wait_until(lambda: training.now["finished_at"], "it ends")
        assert training.now["state"] == "SUCCEEDED"
