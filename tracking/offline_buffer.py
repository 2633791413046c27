"""Answers to scripts while MLflow is away: what they log is kept, and their run is told as it is known.

A script waits for nothing, and does not fail because of MLflow. `tracking.mirror` sends later what was kept.
"""

from typing import Any

from channels.db import database_sync_to_async

from tracking.models import TrackedRun, UnsentCall
from tracking.proxied_call import Answered

__all__ = ["KEPT", "answer_for", "keep"]

#: Calls that are kept while MLflow is away; their clients need no more than an acknowledgement.
KEPT = frozenset({"runs/log-metric", "runs/log-batch", "runs/log-parameter", "runs/set-tag"})
#: Largest number of calls kept for one training. A client sends one a second, so this is a day of one rank.
_MOST = 100_000


async def keep(job: int, call: str, values: dict[str, Any]) -> None:
    """Raises Answered where too much waits."""
    await database_sync_to_async(_keep, thread_sensitive=False)(job, call, values)


def _keep(job: int, call: str, values: dict[str, Any]) -> None:
    if UnsentCall.objects.filter(job=job).count() >= _MOST:
        raise Answered(
            507, "MLflow has been unavailable for too long: further values logged by this training are dropped."
        )
    UnsentCall.objects.create(job_id=job, call=call, values=values)


def answer_for(call: str, run: TrackedRun) -> dict[str, Any] | None:
    """MLflow's answer about the training's own run, as far as a client reads it; None: there is none."""
    info = {
        "run_id": run.run_id,
        "run_uuid": run.run_id,
        "experiment_id": run.experiment_id,
        "status": "RUNNING",
        "lifecycle_stage": "active",
        "artifact_uri": f"mlflow-artifacts:/{run.experiment_id}/{run.run_id}/artifacts",
    }
    experiment = {
        "experiment_id": run.experiment_id,
        "name": "",
        "artifact_location": f"mlflow-artifacts:/{run.experiment_id}",
        "lifecycle_stage": "active",
    }
    answers: dict[str, dict[str, Any]] = {
        "runs/create": {"run": {"info": info, "data": {}}},
        "runs/get": {"run": {"info": info, "data": {}}},
        "runs/update": {"run_info": info},
        "experiments/get": {"experiment": experiment},
        "experiments/get-by-name": {"experiment": experiment},
    }
    return answers.get(call)
