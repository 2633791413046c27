"""A framework that a rank imports logs to MLflow by itself: scikit-learn, with MLflow's real clients and no server."""

import json
import subprocess
import sys

import pytest

from tests.tracking.clients import CLIENTS, ROOT, client_packages

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SCRIPT = """
import json, sys
sys.path.append(sys.argv[1])
from tidepool import tracking
tracking.log_by_themselves()
begun = "mlflow" in sys.modules
from sklearn.linear_model import LogisticRegression
LogisticRegression(C=0.5).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
arrived = tracking.flush()
import mlflow
run = mlflow.last_active_run()
models = len(mlflow.MlflowClient().search_logged_models([run.info.experiment_id]))
print(json.dumps([begun, arrived, run.data.params["C"], run.data.metrics["training_accuracy_score"], models]))
"""


@pytest.mark.parametrize("version", CLIENTS)
def test_scikit_learn_logs_its_parameters_and_scores_and_no_model(tmp_path, version):
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT / "runtime"),
        # Made by the client: in a folder that is there it looks for an experiment, and finds none.
        "MLFLOW_TRACKING_URI": (tmp_path / "runs").as_uri(),
        # Newer clients want to be told that files are meant.
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(client_packages(version))],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [False, True, "0.5", 1.0, 0]
