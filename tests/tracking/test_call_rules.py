"""Tests of the calls that the proxy lets through, and of what it does not believe."""

import pytest

from tracking.call_rules import call_of, is_read, refused_values, run_of, users_of_names

API = "/mlflow/api/2.0/mlflow/"


@pytest.mark.parametrize(
    ("path", "call"),
    [
        (f"{API}runs/log-batch", "runs/log-batch"),
        ("/mlflow/ajax-api/2.0/mlflow/runs/search", "runs/search"),
        ("/mlflow/api/3.0/mlflow/server-info", "server-info"),
        (f"{API}logged-models/m-1/tags", "logged-models/m-1/tags"),
        ("/mlflow/", ""),
        ("/mlflow/static-files/static/js/main.js", ""),
        *((f"{API}{name}", None) for name in ("users/create", "webhooks", "artifacts/presigned-upload-url")),
        *((f"/mlflow/api/3.0/mlflow/{name}", None) for name in ("gateway/secrets/list", "roles/create", "workspaces")),
        ("/mlflow/api/3.0/mlflow/prompt-optimization/jobs", None),
        ("/mlflow/gateway/a/mlflow/invocations", None),
        ("/mlflow/signup", None),
        (f"{API}runs/../users/create", None),
        (f"{API}runs//get", None),
        (f"{API}runs\\get", None),
    ],
)
def test_let_through(path, call):
    assert call_of(path) == call


@pytest.mark.parametrize(
    ("method", "path", "reads"),
    [
        ("GET", f"{API}runs/get", True),
        ("POST", f"{API}runs/search", True),
        ("POST", "/mlflow/graphql", True),
        ("POST", f"{API}runs/log-metric", False),
        ("DELETE", f"{API}logged-models/m-1", False),
    ],
)
def test_what_reads(method, path, reads):
    assert is_read(method, path) is reads


@pytest.mark.parametrize(
    ("call", "values"),
    [
        ("experiments/create", {"name": "a", "artifact_location": "/etc"}),
        ("experiments/create", {"name": "a", "artifactLocation": "file:///etc"}),
        ("model-versions/create", {"name": "a", "source": "/etc"}),
        ("model-versions/create", {"name": "a", "source": "file:///etc"}),
        ("model-versions/create", {"name": "a", "source": "mlflow-artifacts:/1/../2/x"}),
        ("model-versions/create", {"name": "a", "source": "mlflow-artifacts://host/1/x"}),
        ("model-versions/create", {"name": "a", "source": "http://10.0.0.1/"}),
    ],
)
def test_places_that_only_the_server_names(call, values):
    assert refused_values(call, values) != ""


@pytest.mark.parametrize("source", ["mlflow-artifacts:/1/abc/artifacts/model", "runs:/abc/model", "models:/m-abc"])
def test_sources_of_versions(source):
    assert refused_values("model-versions/create", {"source": source}) == ""


@pytest.mark.parametrize(
    ("call", "values", "users"),
    [
        ("experiments/create", {"name": "/Users/bob/digits"}, {"bob"}),
        ("experiments/create", {"name": "/Users/bob"}, {"bob"}),
        ("experiments/update", {"experiment_id": "1", "new_name": "/Users/bob/digits"}, {"bob"}),
        ("experiments/update", {"experiment_id": "1", "name": "x", "new_name": "/Users/bob/digits"}, {"bob"}),
        ("experiments/update", {"name": "/Users/eve", "newName": "/Users/bob/digits"}, {"bob", "eve"}),
        ("experiments/create", {"name": "/Shared/digits"}, set()),
        ("runs/create", {"name": "/Users/bob/digits"}, set()),
    ],
)
def test_the_users_below_whose_names_an_experiment_may_be_made(call, values, users):
    assert users_of_names(call, values) == users


def test_a_request_about_two_runs_is_about_none():
    assert run_of({"run_id": "a"}) == run_of({"runUuid": "a"}) == "a"
    assert run_of({"run_id": "a", "runUuid": "b"}) is None
    assert run_of({}) is None
