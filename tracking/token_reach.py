"""Reach of a training's token: its own run, that run's children, and their models and files."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from channels.db import database_sync_to_async

from jobs.models import Job
from tracking.authentication import Caller
from tracking.models import TrackedRun
from tracking.proxied_call import Answered
from tracking.runs import ensure_run
from tracking.upstream import Away, MlflowServer, Refused

__all__ = ["PARENT", "Asks", "belongs_to_job", "is_model_of_job", "is_run_of_job", "run_of_job"]

#: The tag by which MLflow nests runs.
PARENT = "mlflow.parentRunId"
_GET_RUN, _GET_MODEL = "2.0/mlflow/runs/get", "2.0/mlflow/logged-models/"

#: Sends a call to MLflow on behalf of a caller: (caller, method, path below `/mlflow/api/`, values) -> status, JSON.
Asks = Callable[[Caller, str, str, dict[str, Any]], Awaitable[tuple[int, Any]]]

#: A run that MLflow has lost is made again, under another id.
_KNOWN_SECONDS = 30.0
#: Job -> until when its run is known, and that; (job, run or model) that belong together, which never changes.
_runs: dict[int, tuple[float, TrackedRun]] = {}
_related: set[tuple[int, str]] = set()
_MOST = 10_000


async def run_of_job(job: int) -> TrackedRun:
    """Return the training's run, made now if it is the first to ask. Raises Answered where MLflow does not answer."""
    now = time.monotonic()
    until, known = _runs.get(job, (now, None))
    if known is not None and until > now:
        return known
    if len(_runs) > _MOST:
        _runs.clear()
    try:
        run: TrackedRun = await database_sync_to_async(_ensured, thread_sensitive=False)(job)
    except (Away, Refused) as error:
        raise Answered(503, str(error)) from None
    _runs[job] = now + _KNOWN_SECONDS, run
    return run


def _ensured(job: int) -> TrackedRun:
    known = TrackedRun.objects.filter(job=job).first()
    if known is not None:
        return known
    server = MlflowServer()
    try:
        related = "owner", "model__model", "dataset__dataset", "instance_group"
        return ensure_run(server, Job.objects.select_related(*related).get(pk=job))
    finally:
        server.close()


async def is_run_of_job(caller: Caller, run: str, ask: Asks) -> bool:
    """Return whether this is the run of the caller's training, or a child of it."""
    assert caller.job is not None
    own = await run_of_job(caller.job)
    if run == own.run_id or (caller.job, run) in _related:
        return True
    status, found = await ask(caller, "GET", _GET_RUN, {"run_id": run})
    tags = found["run"]["data"].get("tags", []) if status == 200 else []
    return _noted(caller.job, run, any((tag["key"], tag["value"]) == (PARENT, own.run_id) for tag in tags))


async def is_model_of_job(caller: Caller, model: str, ask: Asks) -> bool:
    """Return whether the logged model comes from a run of the caller's training."""
    assert caller.job is not None
    if (caller.job, model) in _related:
        return True
    status, found = await ask(caller, "GET", _GET_MODEL + model, {})
    source = str(found["model"]["info"].get("source_run_id", "")) if status == 200 else ""
    return _noted(caller.job, model, bool(source) and await is_run_of_job(caller, source, ask))


async def belongs_to_job(caller: Caller, parts: Sequence[str], ask: Asks) -> bool:
    """Return whether files at `<experiment>/<run>/...` or `<experiment>/models/<model>/...` belong to the job."""
    assert caller.job is not None
    if parts[0] != (await run_of_job(caller.job)).experiment_id or len(parts) < 2:
        return False
    if parts[1] == "models":
        return len(parts) > 2 and await is_model_of_job(caller, parts[2], ask)
    return await is_run_of_job(caller, parts[1], ask)


def _noted(job: int, name: str, belongs: bool) -> bool:
    if belongs:
        if len(_related) > _MOST:
            _related.clear()
        _related.add((job, name))
    return belongs
