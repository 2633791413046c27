"""The frameworks that `--exec-start` may name: ways to run a script, in WMLA's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.urls import URLPattern
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import UserError
from models_registry.models import RegisteredModelVersion
from wmla.view import WmlaView, route

__all__ = ["FRAMEWORKS", "Framework", "FrameworkOutput", "framework_as_json", "framework_named", "framework_of", "urls"]

_Engine = RegisteredModelVersion.Engine


@dataclass(frozen=True)
class Framework:
    name: str
    engine: str
    title: str
    #: What it is good for.
    description: str
    #: As the applications that it makes are called.
    app_name: str
    example: str

    @property
    def is_elastic(self) -> bool:
        return self.engine == _Engine.ELASTIC


FRAMEWORKS = (
    Framework(
        "edtPyTorch",
        _Engine.ELASTIC,
        "PyTorch, elastic: GPUs come and go while it trains",
        "Runs a script that uses FabricModel, or a session of this cluster's own, on as many GPUs as it is given.",
        "ElasticPyTorchTrain",
        "--exec-start edtPyTorch --ig <group> --cs-datastore-meta type=fs,data_path=mnist "
        "--model-dir pytorch_edt --edt-options maxWorkers=4 --model-main mnist.py --epochs 10",
    ),
    Framework(
        "PyTorch",
        _Engine.SINGLE,
        "PyTorch, one process on one GPU",
        "Runs any script as it is.",
        "SingleNodePyTorchTrain",
        "--exec-start PyTorch --ig <group> --cs-datastore-meta type=fs,data_path=mnist "
        "--model-dir pytorch --model-main main.py --epochs 10",
    ),
    Framework(
        "distPyTorch",
        _Engine.FIXED,
        "PyTorch, distributed over a fixed number of GPUs",
        "Runs a script once per GPU with MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK set, for init_process_group.",
        "DistributedPyTorchTrain",
        "--exec-start distPyTorch --ig <group> --cs-datastore-meta type=fs,data_path=mnist "
        "--numWorker 4 --model-dir pytorch_ddp --model-main main.py --epochs 10",
    ),
)
#: Fields of what there is not here: commands that a plug-in makes, models that come with it, parameter servers.
_NEVER = (
    *("exports", "frameworkCmdGenerator", "prebuiltModelMain", "prebuiltModelDir"),
    *("workerMemory", "distributeStrategy", "numPs"),
)
#: WMLA has these, too.
_NOT_HERE = ("tensorflow", "keras", "xgboost", "caffe")


def framework_named(name: str) -> Framework:
    """Find the framework. Raises UserError that names the existing ones."""
    there = ", ".join(framework.name for framework in FRAMEWORKS)
    if not name:
        raise UserError(f"args does not name a framework: write --exec-start and one of {there}.")
    for framework in FRAMEWORKS:
        if framework.name.lower() == name.lower():
            return framework
    if any(word in name.lower() for word in _NOT_HERE):
        raise UserError(f"Framework {name[:50]!a} is not supported on this cluster: there are {there}.")
    raise UserError(f"Framework {name[:50]!a} is not known: there are {there}.")


def framework_of(engine: str) -> Framework:
    """Return the framework that runs a model of this engine."""
    return next(framework for framework in FRAMEWORKS if framework.engine == engine)


class FrameworkOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    description = serializers.CharField()
    desc = serializers.ListField(child=serializers.CharField(), help_text="Lines of help.")
    frameworkVersion = serializers.CharField()
    deployMode = serializers.CharField()
    execMode = serializers.ChoiceField(["single", "distributed"])
    appName = serializers.CharField()
    backend = serializers.CharField()
    numWorkers = serializers.IntegerField()
    maxWorkers = serializers.IntegerField(help_text="-1: as many as the instance group has GPUs.")
    hasTask0 = serializers.BooleanField(help_text="It has a driver beside its workers.")
    exports = serializers.CharField(allow_null=True, help_text="Belongs to WMLA's plug-ins, as the next ones: null.")
    frameworkCmdGenerator = serializers.CharField(allow_null=True)
    prebuiltModelMain = serializers.CharField(allow_null=True)
    prebuiltModelDir = serializers.CharField(allow_null=True)
    workerMemory = serializers.CharField(allow_null=True, help_text="A worker has no limit of its own: null.")
    distributeStrategy = serializers.CharField(allow_null=True, help_text="Of TensorFlow, as the next one: null.")
    numPs = serializers.IntegerField(allow_null=True)


class Frameworks(WmlaView):
    @extend_schema(responses=FrameworkOutput(many=True))
    def get(self, request: Request) -> Response:
        """List the frameworks that a submission may name, with an example of each."""
        return Response([framework_as_json(framework) for framework in FRAMEWORKS])


def framework_as_json(framework: Framework) -> dict[str, Any]:
    is_single = framework.engine == _Engine.SINGLE
    return {
        "name": framework.name,
        "description": framework.description,
        "desc": [framework.title, "Example:", f"  {framework.example}"],
        "frameworkVersion": "2",
        "deployMode": "cluster",
        "execMode": "single" if is_single else "distributed",
        "appName": framework.app_name,
        "backend": "pytorch",
        "numWorkers": 1,
        "maxWorkers": 1 if is_single else -1,
        "hasTask0": framework.is_elastic,
        **dict.fromkeys(_NEVER),
    }


urls: list[URLPattern] = [route("execs/frameworks", Frameworks, "exec-frameworks")]
