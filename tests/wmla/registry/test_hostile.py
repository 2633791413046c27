"""Whatever a field holds, the answer is a line of text or what was asked for: never a 5xx."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from rest_framework.test import APIClient

from tests.webapp.api.test_errors import BAD_VALUES, every_third
from tests.wmla.registry.deep_learning import BASE, refusal

FIELDS = {
    ("POST", "datasets"): [
        *("name", "datasourcetype", "dbbackend", "sigid", "trainpath", "valpath", "testpath"),
        *("meanfilepath", "plugin", "imagedetail", "shards", "byclass"),
    ],
    ("POST", "modeltemplates"): ["name", "path", "framework", "description", "entryPoint", "frameworkVersion"],
    ("PUT", "modeltemplates/taken"): ["path", "framework", "description"],
    ("POST", "models"): [
        *("name", "templatename", "accelerator", "type", "dataset", "batchsize", "sig", "description"),
        *("hyperparameter", "wtfolder", "tfmainContent", "distributeStrategy"),
    ],
    ("PUT", "models/resnet"): ["name", "templatename", "accelerator", "dataset", "batchsize", "sig", "hyperparameter"],
    ("POST", "models/resnet/trainings"): [
        *("trainName", "clusterSize", "dlFramework", "gpuRatio", "syncMode", "wfinit", "dataset", "sigId"),
        *("wtURL", "wtfolder", "cmd", "testInterval", "distribute"),
    ],
    ("POST", "models/resnet/validations"): ["valName", "trainName", "metrics", "threshold"],
}
HYPERPARAMETERS = [
    *("learningrate", "momentum", "weightdecay", "epoch", "solvertype", "lrpolicy", "gamma", "stepsize"),
    *("stepvalues", "t_max", "factor", "rho", "mode", "nesterov", "maxiteration"),
]


@pytest.fixture
def good(alice_api: APIClient, code: Path, data: Path, model: Any, sig_id: str) -> dict[str, dict[str, Any]]:
    """Address -> a body that is accepted, or refused for nothing but its state."""
    template = {"name": "taken", "path": str(code), "framework": "PyTorch"}
    assert alice_api.post(f"{BASE}modeltemplates", template, format="json").status_code == 201
    dataset = {"datasourcetype": "OTHER", "dbbackend": "Other", "sigid": sig_id, "trainpath": str(data / "train_db")}
    return {
        "datasets": {"name": "new", **dataset},
        "modeltemplates": {**template, "name": "new"},
        "modeltemplates/taken": {},
        "models": {"name": "new", "templatename": "taken"},
        "models/resnet": {},
        "models/resnet/trainings": {"trainName": "t", "clusterSize": 1, "dlFramework": "PyTorch"},
        "models/resnet/validations": {"valName": "v", "trainName": "t"},
    }


@every_third
@pytest.mark.parametrize(("method", "address"), FIELDS)
def test_a_bad_value_in_any_field(
    alice_api: APIClient, good: dict[str, dict[str, Any]], method: str, address: str, stride: int
) -> None:
    for number, field in enumerate(FIELDS[method, address]):
        for value in BAD_VALUES[number % stride :: stride]:
            _send(alice_api, method, address, {**good[address], field: "PLACEHOLDER"}, value)


@every_third
@pytest.mark.parametrize(("method", "address"), [("POST", "models"), ("PUT", "models/resnet")])
def test_a_bad_value_of_any_hyperparameter(
    alice_api: APIClient, good: dict[str, dict[str, Any]], method: str, address: str, stride: int
) -> None:
    for number, name in enumerate(HYPERPARAMETERS):
        for value in BAD_VALUES[number % stride :: stride]:
            _send(alice_api, method, address, {**good[address], "hyperparameter": {name: "PLACEHOLDER"}}, value)


@pytest.mark.parametrize(("method", "address"), FIELDS)
def test_a_body_that_is_no_object(
    alice_api: APIClient, good: dict[str, dict[str, Any]], method: str, address: str
) -> None:
    for body in ("{", "[]", "null", '"text"', "[" * 100_000, "\ud800", '{"name": NaN}'):
        sent = body.encode("utf-8", "surrogatepass")
        answer: Any = alice_api.generic(method, BASE + address, sent, content_type="application/json")
        assert answer.status_code < 500, body[:20]
        if method == "POST" or "NaN" not in body:
            refusal(answer, answer.status_code)


def _send(api: APIClient, method: str, address: str, body: dict[str, Any], value: str) -> None:
    """Send a request and take its changes back."""
    text = json.dumps(body).replace('"PLACEHOLDER"', value)
    with transaction.atomic():
        answer: Any = api.generic(method, BASE + address, text, content_type="application/json")
        transaction.set_rollback(True)
    assert answer.status_code < 500, (text[:200], answer.content)
    if answer.status_code >= 400:
        refusal(answer, answer.status_code)
    else:
        assert answer.status_code in (200, 201)
