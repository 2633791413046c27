"""Requests of IBM's notebooks for hyperparameter searches, and a client that sends them."""

import copy
import json
from collections.abc import Mapping
from typing import Any

from django.test import Client

from studies.models import Study
from tests.wmla.conftest import DLI, model_tar

__all__ = ["CLOUD_PAK", "GRID", "HYPERBAND", "RANDOM", "SEARCHES", "changed", "post", "study_behind"]

SEARCHES = f"{DLI}/hypersearch"
_ARGS = (
    "--exec-start PyTorch --cs-datastore-meta type=fs --python-version 3.6\\\n"
    "                     --gpuPerWorker 1 --model-main pytorch_mnist_HPO.py --model-dir pytorch_hpo\\\n"
    "                     --debug-level debug"
)


def _parameter(**values: Any) -> dict[str, Any]:
    unused = {"minDbVal": 0.0, "maxDbVal": 0.0, "minIntVal": 0, "maxIntVal": 0}
    return {**unused, "discreteDbVal": [], "discreteIntVal": [], "discreateStrVal": [], **values}


#: 01_hpo.ipynb: on-prem, two parameters.
RANDOM: dict[str, Any] = {
    "modelSpec": {"sigName": "sig-elastic", "args": _ARGS},
    "algoDef": {
        "algorithm": "Random",
        "maxRunTime": -1,
        "maxJobNum": 4,
        "maxParalleJobNum": 2,
        "objectiveMetric": "loss",
        "objective": "minimize",
    },
    "hyperParams": [
        _parameter(name="learning_rate", type="Range", dataType="DOUBLE", minDbVal=0.001, maxDbVal=0.1, step="0.002"),
        _parameter(name="optimizer", type="Discrete", dataType="STR", discreateStrVal=["Adam", "SGD"]),
        _parameter(name="batch", type="Discrete", dataType="INT", discreteIntVal=[32, 64]),
    ],
}
#: 02_hpo_custom_experiment.ipynb: experiments with their own parameters, numbered from 1.
GRID: dict[str, Any] = {
    "modelSpec": RANDOM["modelSpec"],
    "algoDef": {**RANDOM["algoDef"], "algorithm": "ExperimentGridSearch", "maxJobNum": 2, "maxParalleJobNum": 1},
    "experiments": [
        {
            "id": 1,
            "hyperParams": [
                {"name": "learning_rate", "dataType": "DOUBLE", "fixedVal": "0.1"},
                {"name": "optimizer", "dataType": "STR", "fixedVal": "Adam"},
                {"name": "beta1", "dataType": "DOUBLE", "fixedVal": "0.7"},
            ],
        },
        {
            "id": 2,
            "hyperParams": [
                {"name": "learning_rate", "dataType": "DOUBLE", "fixedVal": "0.2"},
                {"name": "optimizer", "dataType": "STR", "fixedVal": "Adam"},
            ],
        },
    ],
}
#: WMLA-HPO-Hyperband-EDT.ipynb: elastic experiments.
HYPERBAND: dict[str, Any] = {
    "modelSpec": {
        "sigName": "sig-elastic",
        "args": "--model-dir pytorch_edt_hpo --exec-start edtPyTorch  \\\n --cs-datastore-meta type=fs,data_path=mnist "
        "--gpuPerWorker 1 \\\n --edt-options maxWorkers=2 --model-main pytorch_mnist_HPO_EDT.py \\\n"
        "                     --batchsize 16 --debug-level debug  \\\n                    ",
    },
    "algoDef": {
        **RANDOM["algoDef"],
        "algorithm": "Hyperband",
        "maxJobNum": 5,
        "maxParalleJobNum": 1,
        "hyperbandEta": 3.0,
        "algoParams": [{"name": "ResourceName", "value": "epochs"}, {"name": "ResourceValue", "value": "10"}],
    },
    "hyperParams": [RANDOM["hyperParams"][0]],
}
#: CPD3.5.0-model-hyperparameter-optimization-via-wmla-api.ipynb: no group, and one script.
CLOUD_PAK: dict[str, Any] = {
    "modelSpec": {"args": "--exec-start PyTorch --cs-datastore-meta type=fs,data_path=mnist --model-main hpo.py"},
    "algoDef": {**RANDOM["algoDef"], "algorithm": "Tpe", "algoParams": [{"name": "WarmUp", "value": "3"}]},
    "hyperParams": RANDOM["hyperParams"][:1],
}


def changed(request: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return the request with another value at this path, such as `algoDef.maxJobNum` or `hyperParams.0.type`."""
    copied = copy.deepcopy(dict(request))
    *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    place: Any = copied
    for key in parents:
        place = place[key]
    place[last] = value
    return copied


def post(client: Client, request: Any, part: str = "file", upload: Any = None) -> Any:
    """Start a search as notebooks do; an upload of `pytorch_hpo/` unless another one is given."""
    script = request["modelSpec"]["args"].partition("--model-main ")[2].split()[:1] if isinstance(request, dict) else []
    name = script[0] if script else "main.py"
    sent = upload or model_tar({name: b"print('training')\n"}, top="pytorch_hpo")
    data = request if isinstance(request, str) else json.dumps(request)
    return client.post(SEARCHES, {"data": data, part: sent})


def study_behind(answer: Any) -> Study:
    assert answer.status_code == 200, answer.content
    told = answer.json()
    name = told if isinstance(told, str) else told["uid"]
    return Study.objects.get(pk=int(name.rpartition("-")[2]))
