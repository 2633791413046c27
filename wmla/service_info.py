"""Information about the service: frameworks (ways to run a script), `/conf`, `/status`, and the command line."""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.views.decorators.http import condition, require_safe
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import UserError
from jobs.models import Job, SlotClaim
from models_registry.models import RegisteredModelVersion
from wmla.answer_fields import Choice, Flag, Text, Texts, Whole
from wmla.arguments import accepted_arguments
from wmla.base_view import WmlaView, route
from workers.models import Host
from workers.queries import slots

__all__ = ["FRAMEWORKS", "Framework", "dlicmd", "framework_named", "framework_of", "urls"]

_Engine = RegisteredModelVersion.Engine


@dataclass(frozen=True)
class Framework:
    name: str
    engine: str
    title: str
    #: Purpose of the framework.
    description: str
    #: Name of its applications.
    app_name: str
    example: str
    backend: str = "pytorch"

    @property
    def is_elastic(self) -> bool:
        return self.engine == _Engine.ELASTIC

    @property
    def is_single(self) -> bool:
        return self.engine == _Engine.SINGLE


FRAMEWORKS = (
    Framework(
        "edtPyTorch",
        _Engine.ELASTIC,
        "PyTorch, elastic: GPUs are added and removed during training",
        "Runs a script that uses FabricModel or a Tidepool session on a varying number of GPUs.",
        "ElasticPyTorchTrain",
        "--exec-start edtPyTorch --ig <group> --cs-datastore-meta type=fs,data_path=mnist "
        "--model-dir pytorch_edt --edt-options maxWorkers=4 --model-main mnist.py --epochs 10",
    ),
    Framework(
        "PyTorch",
        _Engine.SINGLE,
        "PyTorch, one process on one GPU",
        "Runs any script unchanged.",
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
    Framework(
        "tensorflow",
        _Engine.SINGLE,
        "Any library, one process on one GPU",
        "Runs any script unchanged, with the hosts' libraries, such as scikit-learn, XGBoost or TensorFlow.",
        "SingleNodeTensorflowTrain",
        "--exec-start tensorflow --ig <group> --cs-datastore-meta type=fs,data_path=mnist "
        "--model-dir convnet --model-main main.py --epochs 10",
        "tensorflow",
    ),
)
#: Line of `dlicmd.py` that is replaced by the site's certificate.
_NO_CERTIFICATE = 'SITE_CERTIFICATE = ""\n'
#: Unsupported frameworks of WMLA.
_UNSUPPORTED = ("tensorflow", "keras", "xgboost", "caffe")


def framework_named(name: str) -> Framework:
    """Find the framework. Raise UserError that lists the existing ones."""
    there = ", ".join(framework.name for framework in FRAMEWORKS)
    if not name:
        raise UserError(f"args names no framework: write --exec-start and one of {there}.")
    for framework in FRAMEWORKS:
        if framework.name.lower() == name.lower():
            return framework
    if any(word in name.lower() for word in _UNSUPPORTED):
        raise UserError(f"Framework {name[:50]!a} is not supported on this cluster: use one of {there}.")
    raise UserError(f"Framework {name[:50]!a} is not known: use one of {there}.")


def framework_of(job: Job) -> Framework:
    """Return the framework that the job was submitted with, or otherwise the one for its model's engine."""
    possible = [framework for framework in FRAMEWORKS if framework.engine == job.model.engine]
    named = accepted_arguments(job.submitted_args).framework.lower()
    return next((framework for framework in possible if framework.name.lower() == named), possible[0])


class FrameworkOutput(serializers.Serializer[Any]):
    name = Text()
    description = Text()
    desc = Texts(lambda framework: [framework.title, "Example:", f"  {framework.example}"], help_text="Lines of help.")
    frameworkVersion = Text(lambda framework: "2")
    deployMode = Text(lambda framework: "cluster")
    execMode = Choice(
        lambda framework: "single" if framework.is_single else "distributed", choices=["single", "distributed"]
    )
    appName = Text(source="app_name")
    backend = Text()
    numWorkers = Whole(lambda framework: 1)
    maxWorkers = Whole(
        lambda framework: 1 if framework.is_single else -1,
        help_text="-1: up to the number of GPUs of the instance group.",
    )
    hasTask0 = Flag(source="is_elastic", help_text="Whether it has a driver besides its workers.")
    exports = Text(allow_null=True, help_text="Null, like the following fields: they belong to WMLA's plug-ins.")
    frameworkCmdGenerator = Text(allow_null=True)
    prebuiltModelMain = Text(allow_null=True)
    prebuiltModelDir = Text(allow_null=True)
    workerMemory = Text(allow_null=True, help_text="Always null: workers have no memory limit of their own.")
    distributeStrategy = Text(allow_null=True, help_text="Always null, like numPs: it belongs to TensorFlow.")
    numPs = Whole(allow_null=True)


class Frameworks(WmlaView):
    @extend_schema(responses=FrameworkOutput(many=True))
    def get(self, request: Request) -> Response:
        """List the frameworks for submissions, with an example of each."""
        return Response(FrameworkOutput(FRAMEWORKS, many=True).data)


class UiFrameworks(WmlaView):
    @extend_schema(
        parameters=[OpenApiParameter("backend", str, description="pytorch or tensorflow; absent: all.")],
        responses=FrameworkOutput(many=True),
    )
    def get(self, request: Request) -> Response:
        wanted = request.query_params.get("backend", "").lower()
        found = [framework for framework in FRAMEWORKS if wanted in ("", framework.backend)]
        return Response(FrameworkOutput(found, many=True).data)


class ConfOutput(serializers.Serializer[Any]):
    MSD_ENABLED = Flag(lambda settings: True, help_text="Whether Cloud Pak's scheduler API is available.")
    DLI_DATA_FS = Text(
        lambda settings: settings.TIDEPOOL_DATA_ROOTS[0], help_text="Folder to which `data_path` is relative."
    )
    DLI_RESULT_FS = Text(source="TIDEPOOL_RESULTS_ROOT")
    FRAMEWORKS = Texts(lambda settings: [framework.name for framework in FRAMEWORKS])


class StatusOutput(serializers.Serializer[Any]):
    status = Choice(lambda online: "RUNNING", choices=["RUNNING"])
    hosts = Whole(lambda online: online.count(), help_text="Number of online hosts.")
    gpus = Whole(lambda online: slots().filter(host__in=online).count(), help_text="Number of GPUs on these hosts.")
    gpusInUse = Whole(lambda online: SlotClaim.objects.open().count())


class Conf(WmlaView):
    @extend_schema(responses=ConfOutput)
    def get(self, request: Request) -> Response:
        """Return the configuration of the service."""
        return Response(ConfOutput(settings).data)


class Status(WmlaView):
    @extend_schema(responses=StatusOutput)
    def get(self, request: Request) -> Response:
        """Return the state of the service and its present resources."""
        return Response(StatusOutput(Host.objects.filter(state=Host.State.ONLINE)).data)


@cache
def _source() -> str:
    return Path(__file__).with_name("dlicmd.py").read_text("utf-8")


def _program() -> bytes:
    """Return the program, which trusts the certificate of this site."""
    try:
        certificate = settings.TIDEPOOL_CERTIFICATE_FILE.read_text("ascii")
    except FileNotFoundError:
        certificate = ""
    # A JSON string is also a valid Python string literal.
    return _source().replace(_NO_CERTIFICATE, f"SITE_CERTIFICATE = {json.dumps(certificate)}\n", 1).encode()


@require_safe
@condition(etag_func=lambda request: f'"{hashlib.sha256(_program()).hexdigest()}"')
def dlicmd(request: HttpRequest) -> HttpResponse:
    """Download the command line. It contains no secret, so no log-on is needed."""
    headers = {"Content-Disposition": 'attachment; filename="dlicmd.py"'}
    return HttpResponse(_program(), content_type="text/x-python; charset=utf-8", headers=headers)


urls: list[URLPattern] = [
    route("execs/frameworks", Frameworks, "exec-frameworks"),
    route("frameworks", UiFrameworks, "frameworks"),
    route("frameworks/all", UiFrameworks, "frameworks-all"),
    route("conf", Conf, "conf"),
    route("status", Status, "status"),
]
