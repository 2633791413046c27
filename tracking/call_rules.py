"""Rules of the proxy: the addresses of MLflow's server that it lets through, for whom, and what it distrusts. Pure.

Left out are those by which users, roles, passwords and workspaces are changed, which Tidepool decides; what sends
requests to elsewhere (gateway, webhooks, assistant); and what runs code on the server.
"""

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["Call", "call_of", "is_read", "is_safe_path", "refused_values", "run_of", "users_of_names"]

#: `runs/create`, `logged-models`: the address without what stands before it.
Call = str

_API = re.compile(r"/mlflow/(?:ajax-)?api/[23]\.0/mlflow/(.+)")
#: First parts of what is let through.
_KINDS = frozenset(
    {
        *("experiments", "runs", "metrics", "artifacts", "logged-models", "model-versions", "registered-models"),
        *("traces", "unified-traces", "get-online-trace-details", "datasets", "server-info"),
    }
)
_SINGLE = frozenset({"users/current", "users/current/permissions", "scorers/list", "scorers/versions"})
_CLOSED = re.compile(r"artifacts/presigned-.*|model-versions/transition-stage")
_OTHERS = re.compile(r"/mlflow/(static-files/.+|get-artifact|model-versions/get-artifact|graphql|version|health)?")
#: Sent by POST, and read nothing but.
_READING_POSTS = re.compile(r"(.+/)?(search|search-datasets|batchGet|batchGetInfos|metrics)|traces/search|graphql")
#: Sources that a model's version may be created from.
_SOURCE = re.compile(r"(mlflow-artifacts|runs|models):/[A-Za-z0-9]")
#: Names of experiments that belong to a user.
_OF_USER = re.compile(r"/Users/([^/]+)(?:/|$)")
_SAFE_METHODS = frozenset({"GET", "HEAD"})


def is_safe_path(path: str) -> bool:
    """Return whether a server takes the path as it stands: no empty part, no dots, no backslash."""
    parts = path.split("/")
    has_steps = bool({".", ".."} & set(parts)) or "" in parts[1:-1]
    return not has_steps and not {"\\", "\0"} & set(path)


def call_of(path: str) -> Call | None:
    """Return the call, "" for a page or a file of MLflow's; None: it is not let through."""
    if not is_safe_path(path):
        return None
    found = _API.fullmatch(path)
    if found is None:
        return "" if _OTHERS.fullmatch(path) else None
    call = found[1]
    if _CLOSED.fullmatch(call):
        return None
    return call if call in _SINGLE or call.partition("/")[0] in _KINDS else None


def is_read(method: str, path: str) -> bool:
    """Return whether the request changes nothing."""
    name = path.rpartition("/mlflow/")[2]
    return method in _SAFE_METHODS or (method == "POST" and bool(_READING_POSTS.fullmatch(name)))


def users_of_names(call: Call, values: Mapping[str, Any]) -> set[str]:
    """Return the users below whose names an experiment may be made or moved: by each spelling that MLflow might read.

    Trainings log to experiments below their owner's name, which nobody else may take.
    """
    if call not in ("experiments/create", "experiments/update"):
        return set()
    names = (str(values.get(key) or "") for key in ("name", "new_name", "newName"))
    return {found[1] for name in names if (found := _OF_USER.match(name))}


def refused_values(call: Call, values: Mapping[str, Any]) -> str:
    """Return why a request is refused for its values; "": it is not.

    MLflow's server reads files where an experiment or a version says that they lie: only it may say so.
    """
    if call == "experiments/create" and (values.get("artifact_location") or values.get("artifactLocation")):
        return "Leave artifact_location out: this site keeps the files."
    if call == "model-versions/create":
        source = str(values.get("source", ""))
        place = source.partition(":/")[2].strip("/")
        if not _SOURCE.match(source) or not is_safe_path(f"/{place}"):
            return "The source of a version is a run or a logged model of this site."
    return ""


def run_of(values: Mapping[str, Any]) -> str | None:
    """Return the run that a request is about, by any of the names that MLflow reads."""
    found = {str(values[name]) for name in ("run_id", "runId", "run_uuid", "runUuid") if values.get(name)}
    return found.pop() if len(found) == 1 else None
