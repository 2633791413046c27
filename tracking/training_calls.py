"""Calls that the token of a training may send to MLflow: all that its script logs lands in the training's own run.

A script may name runs and experiments as it likes: it gets its own run for each that it would begin, and a child of
that run where it asks for one. Status and end of the run are the mirror's: a client tells them at the end of each
process.
"""

from typing import Any

import httpx
from channels.db import database_sync_to_async

from tracking import offline_buffer
from tracking.authentication import Caller
from tracking.call_rules import run_of
from tracking.models import TrackedRun
from tracking.proxied_call import Answered, Exchange
from tracking.runs import note_own_metrics
from tracking.token_reach import PARENT, Asks, is_model_of_job, is_run_of_job, run_of_job

__all__ = ["answer"]

_ABOUT_A_RUN = frozenset(
    {
        *(("POST", f"runs/{name}") for name in ("log-metric", "log-batch", "log-parameter", "set-tag", "delete-tag")),
        *(("POST", f"runs/{name}") for name in ("log-inputs", "log-model", "outputs")),
        *(("GET", name) for name in ("runs/get", "metrics/get-history", "artifacts/list")),
    }
)
_EXPERIMENTS = frozenset(
    {("GET", "experiments/get"), ("GET", "experiments/get-by-name"), ("POST", "experiments/create")}
)
_REFUSED = "The token of a training may only log to its own run."
#: Names that MLflow and we give: a script's tags are its own.
_NOT_ITS_TAGS = ("mlflow.", "tidepool.")


async def answer(exchange: Exchange, caller: Caller, call: str, values: dict[str, Any], ask: Asks) -> None:
    """Raises Answered for what the token does not open; HTTPError where MLflow is away and nothing stands in for it."""
    assert caller.job is not None
    try:
        await _answer(exchange, caller, call, values, ask)
    except httpx.HTTPError:
        run = await run_of_job(caller.job)
        own = call in ("runs/create", "experiments/get", "experiments/get-by-name") or (
            run_of(values or _question(exchange)) == run.run_id
        )
        if own and call in offline_buffer.KEPT and exchange.method == "POST":
            await offline_buffer.keep(caller.job, call, values)
            await exchange.answer_json({})
        elif own and (told := offline_buffer.answer_for(call, run)) is not None:
            await exchange.answer_json(told)
        else:
            raise


async def _answer(exchange: Exchange, caller: Caller, call: str, values: dict[str, Any], ask: Asks) -> None:
    assert caller.job is not None
    asked = exchange.method, call
    if asked == ("GET", "server-info"):
        await exchange.answer_json(*await _passed(exchange, caller, {}, ask))
        return
    run = await run_of_job(caller.job)
    if asked in _EXPERIMENTS:
        found = await ask(caller, "GET", "2.0/mlflow/experiments/get", {"experiment_id": run.experiment_id})
        made = {"experiment_id": run.experiment_id}
        await exchange.answer_json(*((made, 200) if call.endswith("create") else (found[1], found[0])))
    elif asked == ("POST", "runs/create"):
        await exchange.answer_json(*await _created(run, caller, values, ask))
    elif asked == ("POST", "runs/update"):
        await exchange.answer_json(*await _updated(exchange, run, caller, values, ask))
    elif asked in _ABOUT_A_RUN:
        question = _question(exchange) if exchange.method == "GET" else values
        await _refuse_others(caller, run_of(question), ask)
        if run_of(question) == run.run_id and call in ("runs/log-metric", "runs/log-batch"):
            await _note_metrics(run, question)
        await exchange.answer_json(*await _passed(exchange, caller, question, ask))
    elif call.partition("/")[0] == "logged-models":
        await exchange.answer_json(*await _model(exchange, run, caller, call, values, ask))
    else:
        raise Answered(403, _REFUSED)


async def _note_metrics(run: TrackedRun, values: dict[str, Any]) -> None:
    """Note which metrics the script logs itself, before they are sent: the mirror sends none of that name."""
    batch = values.get("metrics")
    metrics = batch if isinstance(batch, list) else [values]
    names = {str(each["key"]) for each in metrics if isinstance(each, dict) and each.get("key")}
    if names - set(run.own_metrics):
        run.own_metrics = await database_sync_to_async(note_own_metrics, thread_sensitive=False)(run.pk, names)


async def _refuse_others(caller: Caller, run: str | None, ask: Asks) -> None:
    if run is None or not await is_run_of_job(caller, run, ask):
        raise Answered(403, _REFUSED)


async def _created(run: TrackedRun, caller: Caller, values: dict[str, Any], ask: Asks) -> tuple[Any, int]:
    listed = values.get("tags")
    tags = [tag for tag in listed if isinstance(tag, dict)] if isinstance(listed, list) else []
    if any((tag.get("key"), tag.get("value")) == (PARENT, run.run_id) for tag in tags):
        child = {**values, "experiment_id": run.experiment_id}
        child.pop("experimentId", None)
        return _turned(await ask(caller, "POST", "2.0/mlflow/runs/create", child))
    own = [tag for tag in tags if not str(tag.get("key", "")).startswith(_NOT_ITS_TAGS)]
    if own:
        await ask(caller, "POST", "2.0/mlflow/runs/log-batch", {"run_id": run.run_id, "tags": own})
    return _turned(await ask(caller, "GET", "2.0/mlflow/runs/get", {"run_id": run.run_id}))


async def _updated(
    exchange: Exchange, run: TrackedRun, caller: Caller, values: dict[str, Any], ask: Asks
) -> tuple[Any, int]:
    named = run_of(values)
    await _refuse_others(caller, named, ask)
    if named == run.run_id:
        values = {"run_id": run.run_id}
    return await _passed(exchange, caller, values, ask)


async def _model(
    exchange: Exchange, run: TrackedRun, caller: Caller, call: str, values: dict[str, Any], ask: Asks
) -> tuple[Any, int]:
    """A model that the script logs belongs to the run."""
    _, _, rest = call.partition("/")
    if not rest and exchange.method == "POST":
        source = str(values.get("source_run_id") or values.get("sourceRunId") or run.run_id)
        await _refuse_others(caller, source, ask)
        kept = {name: value for name, value in values.items() if name not in ("sourceRunId", "experimentId")}
        model = {**kept, "source_run_id": source, "experiment_id": run.experiment_id}
        return await _passed(exchange, caller, model, ask)
    name = rest.partition("/")[0]
    if exchange.method == "DELETE" or name == "search" or not await is_model_of_job(caller, name, ask):
        raise Answered(403, _REFUSED)
    return await _passed(exchange, caller, _question(exchange) if exchange.method == "GET" else values, ask)


async def _passed(exchange: Exchange, caller: Caller, values: dict[str, Any], ask: Asks) -> tuple[Any, int]:
    path = exchange.path.partition("api/")[2]
    return _turned(await ask(caller, exchange.method, path, values))


def _turned(answered: tuple[int, Any]) -> tuple[Any, int]:
    return answered[1], answered[0]


def _question(exchange: Exchange) -> dict[str, Any]:
    """Return the values of the address, each once."""
    names = ("run_id", "run_uuid", "metric_key", "max_results", "page_token", "path")
    return {name: value for name in names if (value := exchange.question(name))}
