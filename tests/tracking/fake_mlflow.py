"""Stand-in for MLflow's server, by the shapes of its REST as MLflow 3.17.2 has them.

The real one, whose installation takes longer than most tests may, is asked by `tests/tracking/test_real_server.py`.
"""

import json
from typing import Any
from urllib.parse import unquote

import httpx

from tracking.launch import proof

__all__ = ["FakeMlflow"]

_API = "/mlflow/api/"


class FakeMlflow:
    """Experiments, runs and who may see them. `is_away` makes it unreachable."""

    def __init__(self) -> None:
        self.experiments: dict[str, tuple[str, str]] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        #: (user, experiment, permission)
        self.readers: set[tuple[str, str, str]] = set()
        #: (name, number) -> as MLflow lists it.
        self.versions: dict[tuple[str, int], dict[str, Any]] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.headers: list[httpx.Headers] = []
        self.is_away = False

    @property
    def transport(self) -> httpx.MockTransport:
        """For clients that wait and for those that do not."""
        return httpx.MockTransport(lambda request: _not_read_yet(self._answer(request)))

    def run_of(self, job: int) -> dict[str, Any]:
        """The newest run of a job."""
        return [run for run in self.runs.values() if run["tags"].get("tidepool.job") == str(job)][-1]

    def run_of_study(self, study: int) -> dict[str, Any]:
        """The newest run of a study, with its key."""
        return [run | {"id": key} for key, run in self.runs.items() if run["tags"].get("tidepool.study") == str(study)][
            -1
        ]

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if self.is_away:
            raise httpx.ConnectError("away", request=request)
        self.headers.append(request.headers)
        if request.headers.get("x-tidepool-proof") != proof():
            return httpx.Response(401, text="Log in with Tidepool.")
        user = unquote(request.headers["x-tidepool-user"])
        call = request.url.path.removeprefix(_API).partition("/")[2].removeprefix("mlflow/")
        self.calls.append((user, request.method, call))
        values = dict(request.url.params) if request.method == "GET" else json.loads(request.content or b"{}")
        found = getattr(self, f"_{call.replace('/', '_').replace('-', '_')}", None)
        if not request.url.path.startswith(_API):
            return httpx.Response(200, text="<html>", headers={"content-type": "text/html", "set-cookie": "a=b"})
        if found is None:
            return _error(404, "ENDPOINT_NOT_FOUND")
        answer: httpx.Response = found(user, values)
        return answer

    def _experiments_get_by_name(self, user: str, values: dict[str, Any]) -> httpx.Response:
        for key, (name, owner) in self.experiments.items():
            if name == values["experiment_name"]:
                return _json({"experiment": {"experiment_id": key, "name": name}}) if owner == user else _denied()
        return _error(404, "RESOURCE_DOES_NOT_EXIST")

    def _experiments_get(self, user: str, values: dict[str, Any]) -> httpx.Response:
        key = values["experiment_id"]
        return _json({"experiment": {"experiment_id": key, "name": self.experiments[key][0]}})

    def _experiments_create(self, user: str, values: dict[str, Any]) -> httpx.Response:
        key = str(len(self.experiments) + 1)
        self.experiments[key] = values["name"], user
        return _json({"experiment_id": key})

    def _experiments_search(self, user: str, values: dict[str, Any]) -> httpx.Response:
        return _json({"experiments": [key for key, (_, owner) in self.experiments.items() if owner == user]})

    def _users_permissions_get(self, user: str, values: dict[str, Any]) -> httpx.Response:
        owns = self.experiments.get(values["resource_id"], ("", ""))[1] == user == values["username"]
        return _json({"allowed": owns, "permission": "MANAGE" if owns else "NO_PERMISSIONS"})

    def _users_current(self, user: str, values: dict[str, Any]) -> httpx.Response:
        return _json({"user": {"username": user}})

    def _users_permissions_grant(self, user: str, values: dict[str, Any]) -> httpx.Response:
        self.readers.add((values["username"], values["resource_id"], values["permission"]))
        return _json({})

    def _users_permissions_revoke(self, user: str, values: dict[str, Any]) -> httpx.Response:
        self.readers -= {each for each in self.readers if each[:2] == (values["username"], values["resource_id"])}
        return _json({})

    def _runs_create(self, user: str, values: dict[str, Any]) -> httpx.Response:
        key = f"{len(self.runs) + 1:032x}"
        tags = {tag["key"]: tag["value"] for tag in values.get("tags", [])}
        facts = {"experiment": values["experiment_id"], "name": values.get("run_name", ""), "status": "RUNNING"}
        self.runs[key] = {"owner": user, "tags": tags, "metrics": [], "params": {}, **facts}
        return self._runs_get(user, {"run_id": key})

    def _runs_get(self, user: str, values: dict[str, Any]) -> httpx.Response:
        run = self._run(user, values["run_id"])
        if run is None:
            return _error(404, "RESOURCE_DOES_NOT_EXIST")
        place = f"mlflow-artifacts:/{run['experiment']}/{values['run_id']}/artifacts"
        info = {"run_id": values["run_id"], "status": run["status"], "artifact_uri": place}
        tags = [{"key": key, "value": value} for key, value in run["tags"].items()]
        return _json({"run": {"info": info, "data": {"tags": tags}}})

    def _runs_search(self, user: str, values: dict[str, Any]) -> httpx.Response:
        tag, _, value = values["filter"].removeprefix("tags.").partition(" = ")
        found = [key for key, run in self.runs.items() if run["tags"].get(tag.strip("`")) == value.strip("'")]
        return _json({"runs": [{"info": {"run_id": key}} for key in found[:1]]})

    def _runs_update(self, user: str, values: dict[str, Any]) -> httpx.Response:
        run = self.runs[values["run_id"]]
        run |= {name: values[name] for name in ("status", "end_time") if name in values}
        return _json({"run_info": {"run_id": values["run_id"], "status": run["status"]}})

    def _runs_log_batch(self, user: str, values: dict[str, Any]) -> httpx.Response:
        run = self._run(user, values["run_id"])
        if run is None:
            return _error(404, "RESOURCE_DOES_NOT_EXIST")
        run["metrics"] += values.get("metrics", [])
        run["params"] |= {param["key"]: param["value"] for param in values.get("params", [])}
        run["tags"] |= {tag["key"]: tag["value"] for tag in values.get("tags", [])}
        return _json({})

    def _registered_models_create(self, user: str, values: dict[str, Any]) -> httpx.Response:
        is_there = any(name == values["name"] for name, _ in self.versions)
        return _error(400, "RESOURCE_ALREADY_EXISTS") if is_there else _json({})

    def _model_versions_create(self, user: str, values: dict[str, Any]) -> httpx.Response:
        number = 1 + max((number for name, number in self.versions if name == values["name"]), default=0)
        told = {name: values[name] for name in ("name", "source", "run_id")}
        self.versions[values["name"], number] = {**told, "version": str(number), "aliases": []}
        return _json({"model_version": self.versions[values["name"], number]})

    def _model_versions_search(self, user: str, values: dict[str, Any]) -> httpx.Response:
        run = values.get("filter", "").partition("run_id = ")[2].strip("'")
        found = [version for version in self.versions.values() if run in ("", version["run_id"])]
        return _json({"model_versions": [{**version, "aliases": []} for version in found]})

    def _registered_models_search(self, user: str, values: dict[str, Any]) -> httpx.Response:
        found = [
            {"name": name, "aliases": [{"alias": alias, "version": str(number)} for alias in version["aliases"]]}
            for (name, number), version in self.versions.items()
        ]
        return _json({"registered_models": found})

    def _registered_models_alias(self, user: str, values: dict[str, Any]) -> httpx.Response:
        for (name, number), version in self.versions.items():
            if name == values["name"]:
                kept = set(version["aliases"]) - {values["alias"]}
                version["aliases"] = sorted(
                    kept | ({values["alias"]} if str(number) == values.get("version") else set())
                )
        return _json({})

    def _run(self, user: str, key: str) -> dict[str, Any] | None:
        run = self.runs.get(key)
        return run if run is not None and run["owner"] == user else None


def _not_read_yet(answer: httpx.Response) -> httpx.Response:
    """Return an answer as one that comes from a server, not read yet."""
    return httpx.Response(answer.status_code, headers=answer.headers, stream=httpx.ByteStream(answer.content))


def _json(values: dict[str, Any]) -> httpx.Response:
    return httpx.Response(200, json=values)


def _denied() -> httpx.Response:
    """Return the answer of MLflow's authorization, which is plain text."""
    return httpx.Response(403, text="Permission denied")


def _error(status: int, code: str = "PERMISSION_DENIED") -> httpx.Response:
    return httpx.Response(status, json={"error_code": code, "message": code})
