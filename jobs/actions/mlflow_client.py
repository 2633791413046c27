"""MLflow's client for trainings whose code imports it: a site that has MLflow supplies the client, too."""

import re
from collections.abc import Collection
from pathlib import Path

from django.conf import settings
from tidepool.function_payload import CALL_FILE

from models_registry.code_inspection import imports_within
from workers.executor.environments.requirements import installed

__all__ = ["CLIENT_MODULES", "MLFLOW_CLIENT", "supplied_modules", "with_client"]

#: Requirements of a process that logs runs and models. The client alone cannot log a model: that needs pandas.
MLFLOW_CLIENT = ("mlflow-skinny==3.13.*", "pandas")
#: Modules that these requirements bring.
CLIENT_MODULES = frozenset({"mlflow", "pandas"})
_MODULE = "mlflow"
#: The module, or one in it, among the names of a pickled function; or its import in the source of a pickled cell.
_IN_CALL = re.compile(rb"\x8c.mlflow(?![\w-])|(?:\x8c.|X.{4}|\n)[ \t]*(?:import|from)[ \t]+mlflow(?![\w-])", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def with_client(lines: Collection[str], folder: Path, entry_point: str) -> list[str]:
    """Return these requirements, and those of MLflow's client that they do not name, if the code imports MLflow."""
    names = {_name(line) for line in lines}
    is_there = {"mlflow", "mlflow-skinny"} & (names | installed().keys())
    if not settings.TIDEPOOL_MLFLOW_SOCKET or not _uses_mlflow(folder, entry_point):
        return sorted(lines)
    wanted = [line for line in MLFLOW_CLIENT if _name(line) not in names and not (is_there and "mlflow" in line)]
    return sorted({*lines, *wanted})


def supplied_modules() -> frozenset[str]:
    """Return the modules that the site adds to a training whose code imports MLflow."""
    return CLIENT_MODULES if settings.TIDEPOOL_MLFLOW_SOCKET else frozenset()


def _uses_mlflow(folder: Path, entry_point: str) -> bool:
    call = folder / CALL_FILE
    if call.is_file() and _IN_CALL.search(call.read_bytes()):
        return True
    return imports_within(folder, entry_point, _MODULE)


def _name(line: str) -> str:
    found = _NAME.match(line)
    return found[0].lower().replace("_", "-") if found else ""
