"""Conductor's instances, which are Tidepool's instance groups, and their applications.

Conductor's states are derived from the group's, so none is stored twice: a new group is REGISTERED; a deployed group
that is not started is READY if any of its hosts is ready, otherwise DEPLOY_ERROR; a started group is STARTED.

One URL is an addition to WMLA's: `PUT .../applications/{driver or application id}/priority` with `{"priority": n}`
changes the priority of an application.
"""

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from django.db.models import prefetch_related_objects
from django.http import StreamingHttpResponse
from django.urls import URLPattern
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import NotFound, UserError, field_error
from core.rest import ObjectField, signed_in, validated
from core.roles import require_cluster_admin
from core.time import iso
from jobs import actions
from jobs.actions import groups as group_actions
from jobs.models import InstanceGroup, Job
from jobs.queries.group_parameters import PARAMETERS, ParameterError, known_values, read_values, twin
from jobs.queries.groups import GroupNow, groups_now, visible_groups
from wmla.answer_fields import Json, Real, Shape, Text, Whole
from wmla.applications import ApplicationOutput, StateQuery, TotalMemory, applications, consumer_of, jobs_in_list
from wmla.base_view import ConductorView, json_body, route
from wmla.identifiers import group_of, identities, job_of
from wmla.job_names import Dialect
from wmla.logs import driver_log, executor_log, log_answer
from workers.models import ResourceGroup

__all__ = ["InstanceOutput", "instances", "urls"]

#: Parameters that name the resource group of trainings. The first is Tidepool's: WMLA's name for GPU slots is unknown.
_RESOURCE_GROUP_PARAMETERS = ("gpu_executor_rg_param", "executor_rg_param")
_TERMS_OF_PARAMETERS = {"execution_user": "execution_user", "deploy_home": "deployment_directory"}
_MEBIBYTE = 1024**2
#: Path of the root of the tree of consumers.
_ROOT = "/"
#: Similarity to a known parameter from which an unknown name is reported as a misspelling.
_SIMILARITY = 0.9
_TEXT = {(200, "text/plain"): OpenApiTypes.STR}
_FILTERS = [
    OpenApiParameter("id", str, description="Id of a single instance group."),
    OpenApiParameter("name", str, description="Name of a single instance group."),
    OpenApiParameter("consumerpath", str),
    OpenApiParameter(
        "fields", str, description="Fields to return, separated by commas, such as name,state; default: all."
    ),
]


def _state(now: GroupNow) -> str:
    if now.group.state != InstanceGroup.State.STOPPED:
        return str(now.group.state)
    return "READY" if now.deployment.ready else "DEPLOY_ERROR"


def _memory(now: GroupNow) -> dict[str, int | None]:
    return {"total": None if now.memory_used_bytes is None else round(now.memory_used_bytes / _MEBIBYTE)}


class MeanUtilisation(Shape):
    mean = Real(allow_null=True, help_text="Mean over its held GPUs, in percent.")


class InstanceOutput(serializers.Serializer[Any]):
    id = Text(lambda now: identities().group_id(now.group.pk), help_text="Id of the instance group (sigId).")
    name = Text(source="group.name")
    state = Text(_state, help_text="REGISTERED, READY, DEPLOY_ERROR or STARTED.")
    description = Text(source="group.description")
    consumerpath = Text(lambda now: consumer_of(now.group))
    createtime = Text(lambda now: iso(now.group.created_at))
    runningapplications = Whole(source="running")
    waitingapplications = Whole(source="waiting")
    gpuslots = Whole(source="held", help_text="Number of GPUs that its applications hold.")
    totalgpuslots = Whole(source="deployment.slots", help_text="Number of GPUs on its ready hosts.")
    gpumemused = TotalMemory(_memory)
    gpudevutil = MeanUtilisation(lambda now: {"mean": now.utilisation_percent})
    hosts = Whole(lambda now: len(now.deployment.hosts))
    blockedhosts = Whole(source="deployment.blocked")
    parameters = Json(
        lambda now: {
            "executor_rg_param": now.group.resource_group.name,
            "execution_user": now.group.execution_user,
            "deploy_home": now.group.deployment_directory,
        }
    )
    sparkparameters = Json(
        lambda now: {
            parameter.name: _as_text(getattr(now.group, parameter.field)) for parameter in PARAMETERS if parameter.field
        },
        help_text="The parameters that have an effect here.",
    )


def instances(groups: Iterable[InstanceGroup]) -> list[dict[str, Any]]:
    """Return the rows in a fixed number of queries."""
    rows = list(groups)
    prefetch_related_objects(rows, "resource_group__hosts")
    return list(InstanceOutput(groups_now(rows), many=True).data)


def instance_of(group: InstanceGroup) -> dict[str, Any]:
    return instances([group])[0]


class ConfigurationInput(serializers.Serializer[Any]):
    parameters = ObjectField(required=False, help_text="execution_user, deploy_home, executor_rg_param and others.")
    sparkparameters = ObjectField(required=False, help_text="Parameters such as SPARK_EGO_APP_SCHEDULE_POLICY.")


class InstanceInput(ConfigurationInput):
    conductorinstancename = serializers.CharField()
    consumerpath = serializers.CharField(
        required=False, help_text="/, or / and the group's name: each instance group is a consumer at the root."
    )
    template = serializers.CharField(required=False, help_text="Name of a template of Tidepool or WMLA; not in WMLA.")


class PriorityInput(serializers.Serializer[Any]):
    priority = serializers.IntegerField(help_text="From 1 to 10000, within the bounds of its instance group.")


class PriorityOutput(serializers.Serializer[Any]):
    applicationid = Text()
    priority = Whole()


class Instances(ConductorView):
    @extend_schema(parameters=_FILTERS, responses=InstanceOutput(many=True))
    def get(self, request: Request) -> Response:
        """List the instance groups that the user may submit to; for administrators, all."""
        rows = instances(visible_groups(request.user))
        for name in ("id", "name", "consumerpath"):
            if wanted := request.query_params.get(name):
                rows = [row for row in rows if row[name] == wanted]
        if fields := request.query_params.get("fields", "").strip():
            # Unknown fields are ignored, because clients request many.
            shown = {"id", *(name.strip() for name in fields.split(","))}
            rows = [{name: value for name, value in row.items() if name in shown} for row in rows]
        return Response(rows)

    @extend_schema(request=InstanceInput, responses={201: OpenApiTypes.STR})
    def post(self, request: Request) -> Response:
        """Register an instance group; the response is its id as a JSON string."""
        require_cluster_admin(request.user)
        group = group_actions.create_instance_group(parsed_instance(json_body(request)), signed_in(request))
        return Response(identities().group_id(group.pk), status=201)


class _InstanceView(ConductorView):
    def group(self) -> InstanceGroup:
        return group_of(signed_in(self.request), self.kwargs["sig_id"])


class InstanceConfiguration(_InstanceView):
    @extend_schema(request=ConfigurationInput, responses=InstanceOutput)
    def put(self, request: Request, sig_id: str) -> Response:
        """Change all given fields, or none if one is invalid."""
        group, body = self.group(), json_body(request)
        _check_unchanged(body, group.name)
        change = group_actions.change_instance_group(group.pk, parsed_configuration(body), signed_in(request))
        return Response(instance_of(change.group))


class InstanceDeploy(_InstanceView):
    @extend_schema(request=None, responses=InstanceOutput)
    def put(self, request: Request, sig_id: str) -> Response:
        """Deploy the group; nothing is installed. Its state is READY, or DEPLOY_ERROR while none of its hosts is
        ready."""
        return Response(instance_of(group_actions.deploy_instance_group(self.group().pk, signed_in(request))))


class InstanceStart(_InstanceView):
    @extend_schema(request=None, responses=InstanceOutput)
    def put(self, request: Request, sig_id: str) -> Response:
        """Start the group, so that its applications can start. Refused if none of its hosts is ready."""
        return Response(instance_of(group_actions.start_instance_group(self.group().pk, signed_in(request))))


class InstanceStop(_InstanceView):
    @extend_schema(request=None, responses=InstanceOutput)
    def put(self, request: Request, sig_id: str) -> Response:
        """Stop the group: it accepts no applications and starts no waiting ones; running ones continue."""
        return Response(instance_of(group_actions.stop_instance_group(self.group().pk, signed_in(request))))


class Applications(_InstanceView):
    @extend_schema(parameters=[StateQuery], responses=ApplicationOutput(many=True))
    def get(self, request: Request, sig_id: str) -> Response:
        """List the newest 200 applications of this group that the user may see."""
        jobs = jobs_in_list(signed_in(request), validated(StateQuery, request.query_params), self.group())
        return Response(ApplicationOutput(applications(jobs, Dialect.ON_PREM), many=True).data)


class _ApplicationView(_InstanceView):
    def job(self) -> Job:
        """Find a job of this group by the id of its driver or its application."""
        group, job = self.group(), job_of(signed_in(self.request), self.kwargs["application_id"])
        if job.instance_group_id != group.pk:
            raise NotFound(f"Application {self.kwargs['application_id'][:100]!a} is not one of {group.name}.")
        return job


class ApplicationPriority(_ApplicationView):
    @extend_schema(request=PriorityInput, responses=PriorityOutput)
    def put(self, request: Request, sig_id: str, application_id: str) -> Response:
        """Change the priority. The scheduler applies it at once. This URL does not exist in WMLA."""
        job, priority = self.job(), json_body(request).get("priority")
        if not isinstance(priority, int) or isinstance(priority, bool):
            raise field_error("priority", "Send the priority as a whole number from 1 to 10000.")
        actions.change_job(job.pk, actions.JobChange(priority=priority), signed_in(request).get_username())
        return Response({"applicationid": application_id, "priority": priority})


class DriverLog(_ApplicationView):
    @extend_schema(operation_id="driver_log", responses=_TEXT)
    def get(self, request: Request, sig_id: str, application_id: str, stream: str) -> StreamingHttpResponse:
        """Return stdout or stderr of rank 0."""
        return log_answer(request, driver_log(self.job(), stream))


class ExecutorLog(_ApplicationView):
    @extend_schema(responses=_TEXT)
    def get(
        self, request: Request, sig_id: str, application_id: str, executor_id: str, stream: str
    ) -> StreamingHttpResponse:
        """Return stdout or stderr of one rank."""
        return log_answer(request, executor_log(self.job(), executor_id, stream))


def parsed_instance(body: Mapping[str, Any]) -> group_actions.InstanceGroupSpec:
    """Parse a request to create an instance. Fields that do not apply here (Spark's version, packages) are ignored."""
    name, template = body.get("conductorinstancename"), body.get("template", "")
    if not isinstance(name, str) or not name:
        raise field_error("conductorinstancename", "Send the instance group's name as conductorinstancename.")
    if not isinstance(template, str):
        raise field_error("template", "template must be the name of a template.")
    _check_consumer(body, name)
    parameters = _object(body, "parameters")
    terms = {column: _text(parameters, key) for key, column in _TERMS_OF_PARAMETERS.items() if key in parameters}
    terms |= _spark_terms(body)
    return group_actions.InstanceGroupSpec(name, _resource_group(parameters), template, terms)


def _check_unchanged(body: Mapping[str, Any], name: str) -> None:
    """Refuse a change of what a group keeps: its name and its place in the tree of consumers."""
    if body.get("conductorinstancename") not in (None, "", name):
        raise field_error(
            "conductorinstancename", f"An instance group keeps its name, {name}: create another one, or leave this out."
        )
    _check_consumer(body, name)


def _check_consumer(body: Mapping[str, Any], name: str) -> None:
    path = body.get("consumerpath")
    if path not in (None, "", _ROOT, _ROOT + name):
        sentence = "the tree of consumers has one level, in which each instance group is a consumer"
        raise field_error("consumerpath", f"consumerpath is {ascii(path)[:80]}, but {sentence}: send {_ROOT!r}.")


def parsed_configuration(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms of a group from the Spark parameters and the other fields of a change."""
    parameters = _object(body, "parameters")
    terms = {column: _text(parameters, key) for key, column in _TERMS_OF_PARAMETERS.items() if key in parameters}
    if any(key in parameters for key in _RESOURCE_GROUP_PARAMETERS):
        terms["resource_group"] = _resource_group(parameters)
    return terms | _spark_terms(body)


def _spark_terms(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms that Spark parameters set here; all other parameters concern only Spark.

    Clients send dozens of parameters. A near miss of an effective name is refused, because it would have no effect.
    """
    given = {name: _as_text(value) for name, value in _object(body, "sparkparameters").items()}
    known, unknown = known_values(given)
    for name in unknown:
        if near := _similar_parameter(name):
            raise field_error("sparkparameters", f"Parameter {name[:80]!a} is not known: did you mean {near}?")
    try:
        return read_values(known).terms
    except ParameterError as error:
        raise field_error("sparkparameters", str(error)) from error


def _similar_parameter(name: str) -> str | None:
    effective = [parameter.name for parameter in PARAMETERS if parameter.has_effect]
    near = get_close_matches(name.upper().replace(".", "_"), effective, n=1, cutoff=_SIMILARITY)
    if not near:
        return None
    return near[0] if "_" in name else twin(near[0])


def _resource_group(parameters: Mapping[str, Any]) -> str:
    """Return the name of the resource group with GPUs that these fields select. No other group replaces it."""
    key = next((name for name in _RESOURCE_GROUP_PARAMETERS if name in parameters), _RESOURCE_GROUP_PARAMETERS[1])
    name = _text(parameters, key)
    kinds = dict(ResourceGroup.objects.order_by("name").values_list("name", "kind"))
    of_gpus = [group for group, kind in kinds.items() if kind == ResourceGroup.Kind.GPU]
    if not name:
        raise field_error(key, f"Send the resource group whose GPUs it uses as {key}. {_gpu_groups(of_gpus)}")
    if name not in kinds:
        raise field_error(key, f"Resource group {name[:80]!a} not found. {_gpu_groups(of_gpus)}")
    if name not in of_gpus:
        gpus, executors = _RESOURCE_GROUP_PARAMETERS
        raise field_error(
            key,
            f"{key} is {name[:80]!a}, whose slots are CPUs, but trainings hold GPUs: send a resource group of GPUs as "
            f"{executors}, or beside it as {gpus}. {_gpu_groups(of_gpus)}",
        )
    return name


def _gpu_groups(names: Collection[str]) -> str:
    return f"Resource groups with GPUs: {', '.join(names)}." if names else "Create a resource group with GPUs first."


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise field_error(name, f"{name} must be an object of names and values.")
    return value


def _text(parameters: Mapping[str, Any], name: str) -> str:
    value = parameters.get(name, "")
    if not isinstance(value, str):
        raise field_error(name, f"{name} must be a string.")
    return value


def _as_text(value: Any) -> str:
    """Return the value in the format of a parameter file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise UserError("The values of sparkparameters must be strings, numbers or booleans.")


_SIG = "instances/<sig_id>"
_APPLICATION = f"{_SIG}/applications/<application_id>"

urls: list[URLPattern] = [
    route("instances", Instances, "instances"),
    route(f"{_SIG}/configuration", InstanceConfiguration, "instance-configuration"),
    route(f"{_SIG}/deploy", InstanceDeploy, "instance-deploy"),
    route(f"{_SIG}/start", InstanceStart, "instance-start"),
    route(f"{_SIG}/stop", InstanceStop, "instance-stop"),
    route(f"{_SIG}/applications", Applications, "applications"),
    route(f"{_APPLICATION}/priority", ApplicationPriority, "application-priority"),
    # These precede the routes of executors, whose pattern would match "logs" as an executor.
    route(f"{_APPLICATION}/logs/<stream>/download", DriverLog, "driver-log"),
    route(f"{_APPLICATION}/<executor_id>/logs/<stream>/download", ExecutorLog, "executor-log"),
]
