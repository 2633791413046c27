"""MLflow in a rank: where it is, what frameworks tell it by themselves, and its end before the rank's.

The control plane leaves `.access/<attempt>.json` beside the attempt's folder where the site has MLflow: variables for
MLflow's client, one of them a secret that opens this training's run alone. Without it nothing here does anything.
"""

import atexit
import functools
import importlib
import importlib.util
import json
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidepool.first_imports import after_first_import
from tidepool.live_objects import instances_of
from tidepool.protocol import LaunchSpec

__all__ = ["FLUSH_SECONDS", "URI", "access_variables", "flush", "is_to_log", "log_by_themselves", "refuse_experiments"]

#: Seconds that a rank waits at its end for the script's logged values to arrive.
FLUSH_SECONDS = 20.0
#: Frameworks that MLflow's autologging knows; their first import turns it on.
_FRAMEWORKS = frozenset({"lightning", "pytorch_lightning", "sklearn", "transformers", "xgboost"})
#: A call returns at once, and what came within a second is sent together. A server that is away is asked again for a
#: while, by the threads that send.
_CLIENT = {
    "MLFLOW_ENABLE_ASYNC_LOGGING": "true",
    "MLFLOW_ASYNC_LOGGING_BUFFERING_SECONDS": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
URI = "MLFLOW_TRACKING_URI"


def access_variables(attempt_folder: Path, given: dict[str, str]) -> dict[str, str]:
    """Variables for MLflow's client; {} where the site has no MLflow, or the job named another one itself.

    given: the environment of the rank so far.
    """
    file = attempt_folder.parent / ".access" / f"{attempt_folder.name.removeprefix('attempt-')}.json"
    if URI in given:
        return {}
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {name: value for name, value in {**_CLIENT, **values}.items() if name not in given}


def is_to_log(launch: LaunchSpec, environment: Mapping[str, str]) -> bool:
    """Return whether frameworks shall log by themselves in this rank: in one of a training that can reach MLflow."""
    return URI in environment and launch.autolog == "on" and environment.get("RANK", "0") == "0"


def refuse_experiments(own: str, is_first: Callable[[], bool]) -> None:
    """Say in the log of rank 0 that the run stays in its `own` experiment, if the script sets another one.

    On stdout, which a notebook shows. The site answers each request for an experiment with the run's own.
    """
    after_first_import(frozenset({"mlflow"}), lambda: _watch_experiments(own, is_first))


def _watch_experiments(own: str, is_first: Callable[[], bool]) -> None:
    client: Any = sys.modules["mlflow"]
    honest, refused = client.set_experiment, set[str]()

    @functools.wraps(honest)
    def set_experiment(*names: Any, **more: Any) -> Any:
        wanted = names[0] if names else more.get("experiment_name") or more.get("experiment_id")
        if str(wanted) not in {own, *refused} and is_first():
            refused.add(str(wanted))
            sys.stdout.write(
                f"tidepool: mlflow.set_experiment({wanted!r}) is not honoured in a training: its run stays in the "
                f"experiment {own}, as its page in MLflow shows.\n"
            )
            sys.stdout.flush()
        return honest(*names, **more)

    client.set_experiment = set_experiment


def log_by_themselves() -> None:
    """Have frameworks log to MLflow once the script imports one of them, if the rank has MLflow's client.

    For one rank of a training: all of them would log the same.
    """
    if importlib.util.find_spec("mlflow") is not None:
        after_first_import(_FRAMEWORKS, _autolog)


def _autolog() -> None:
    try:
        importlib.import_module("mlflow").autolog(log_models=False, silent=True)
    except Exception as error:  # whatever it is, the training goes on without
        sys.stderr.write(f"tidepool: frameworks do not log to MLflow by themselves: {error}\n")


def flush(seconds: float = FLUSH_SECONDS) -> bool:
    """Wait until what the script has logged has arrived; False: it has not, and MLflow's threads are given up.

    Called before the interpreter ends its threads: after that MLflow's client can send nothing more.
    """
    client: Any = sys.modules.get("mlflow")
    if client is None or not hasattr(client, "flush_async_logging"):
        return True
    problems: list[Exception] = []

    def wait() -> None:
        try:
            client.flush_async_logging()
        except Exception as error:  # any error of a library at the very end: reported below
            problems.append(error)

    waiting = threading.Thread(target=wait, name="mlflow-flush", daemon=True)
    waiting.start()
    waiting.join(seconds)
    if not waiting.is_alive() and not problems:
        return True
    why = f"not within {seconds:g} s" if waiting.is_alive() else str(problems[0])
    sys.stderr.write(f"tidepool: not all that was logged has arrived at MLflow: {why}\n")
    _forget_queues()
    return False


def _forget_queues() -> None:
    """Take back what MLflow's client wants to do at the exit: it would wait without end."""
    module = sys.modules.get("mlflow.utils.async_logging.async_logging_queue")
    for queue in instances_of(module.AsyncLoggingQueue) if module is not None else ():
        atexit.unregister(queue._at_exit_callback)
