"""MLflow's real clients, each in an environment of its own, and where its server is."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from tests.missing import leave_out
from tests.waiting import PATIENCE_SECONDS

__all__ = ["CLIENTS", "ROOT", "SERVER_PYTHON", "Client", "client_packages", "server_installed"]

ROOT = Path(__file__).resolve().parents[2]
SERVER_PYTHON = ROOT / ".venv-mlflow/bin/python"
#: The one that ranks have, and that of the server's version.
CLIENTS = ("3.13.0", "3.17.2")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidepool" / "mlflow-clients"


def server_installed() -> None:
    """Leave the test out unless MLflow's server is there."""
    if not (ROOT / ".venv-mlflow/installed").exists():
        leave_out("MLflow's server is not installed: scripts/setup-mlflow")


def client_packages(version: str, *more: str) -> Path:
    """The folder with `mlflow-skinny` of this version and what it needs, kept for the next time."""
    folder = CACHE / "-".join([version, *more])
    [packages] = [*folder.glob("lib/python3*/site-packages")] or [None]
    if packages is None or not (folder / "installed").exists():
        for words in (["venv", "--clear", str(folder)], ["pip", "install", f"mlflow-skinny=={version}", *more]):
            where = ["--python", str(folder / "bin/python")] if words[0] == "pip" else []
            done = subprocess.run(
                [find_uv_bin(), *words, *where, "--quiet"], capture_output=True, text=True, timeout=600, check=False
            )
            if done.returncode != 0:
                leave_out(f"MLflow's client {version} cannot be installed: {done.stderr.strip()[-500:]}")
        (folder / "installed").touch()
        [packages] = folder.glob("lib/python3*/site-packages")
    return packages


@dataclass(frozen=True)
class Client:
    """MLflow's client of one version, as a process that runs what it is given."""

    version: str
    url: str

    def run(self, code: str, **given: Any) -> Any:
        """Run the code with `given` as variables, and return its variable `told`, by way of JSON."""
        python = client_packages(self.version).parents[2] / "bin/python"
        environment = {
            "PATH": os.environ["PATH"],
            "MLFLOW_TRACKING_URI": f"{self.url}/mlflow",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        script = f"import json, sys\nglobals().update(json.load(sys.stdin))\n{code}\nprint(json.dumps(told))"
        done = subprocess.run(
            [python, "-W", "ignore", "-c", script],
            input=json.dumps(given),
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])
