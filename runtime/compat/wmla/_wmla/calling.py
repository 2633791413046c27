"""Calls what a script brings by what it takes: WMLA's generations give their callbacks different arguments."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["call", "log_test", "log_train"]

#: Parameters by which a logger of the newer generation is known.
_NEWER = {"metrics", "epoch"}


def call(owner: Any, method: str, *arguments: Any) -> None:
    """Call it with as many of the arguments as it takes; nothing where there is no such method."""
    function = getattr(owner, method, None)
    if callable(function):
        function(*arguments[: _most(function)])


def log_train(logger: Any, metrics: Mapping[str, float], completed: int, epoch: int, worker: int) -> None:
    """metrics: `loss`, a mean; `accuracy` in percent, if there is one; those of the script."""
    _log(logger, "log_train_metrics", metrics, completed, epoch, worker)


def log_test(logger: Any, metrics: Mapping[str, float], completed: int, epoch: int) -> None:
    _log(logger, "log_test_metrics", metrics, completed, epoch, 0)


def _log(logger: Any, method: str, metrics: Mapping[str, float], completed: int, epoch: int, worker: int) -> None:
    function = getattr(logger, method, None)
    if not callable(function):
        return
    if _NEWER & set(inspect.signature(function).parameters):
        call(logger, method, dict(metrics), completed, epoch, worker)
    else:
        call(logger, method, metrics["loss"], metrics.get("accuracy", math.nan), completed, worker)


def _most(function: Callable[..., Any]) -> int | None:
    """The number of positional arguments that it takes; None: any number."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return sum(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
    )
