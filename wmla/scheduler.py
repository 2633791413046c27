"""The deep learning service's view of applications, instance groups and resource plans.

Resource plans form a tree of consumers with one level, in which each instance group has its share.
"""

from collections.abc import Sequence
from typing import Any

from django.db.models import Sum, prefetch_related_objects
from django.http import StreamingHttpResponse
from django.urls import URLPattern
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.rest import signed_in, validated
from core.roles import require_cluster_admin
from jobs.actions import groups as group_actions
from jobs.models import InstanceGroup, Job
from jobs.queries.groups import groups_now, visible_groups
from jobs.states import ACTIVE
from wmla.answer_fields import Flag, Json, Many, Text, Whole
from wmla.applications import (
    ApplicationQuery,
    EngineApplicationOutput,
    EngineQuery,
    ScheduledApplicationOutput,
    applications,
    consumer_of,
    jobs_in_list,
)
from wmla.base_view import WmlaView, route, stop
from wmla.conductor import InstanceOutput, instances
from wmla.identifiers import group_of, identities, job_of
from wmla.job_names import Dialect
from wmla.logs import LogQuery, driver_log, executor_log, launcher_log, log_answer, text_stream

__all__ = ["PlanOutput", "plans", "urls"]

_TEXT = {(200, "text/plain"): OpenApiTypes.STR}
_DONE = {204: OpenApiResponse(description="Done.")}
_LAUNCHER = "launcherlog"
#: Id of the tree's root, and prefix of consumers' paths.
_ROOT = "/"


class PlanOutput(serializers.Serializer[Any]):
    id = Text(source="group.name")
    pid = Text(lambda plan: _ROOT, allow_null=True, help_text="Id of its parent; null: it is the root.")
    name = Text(source="group.name")
    consumer = Text(lambda plan: consumer_of(plan["group"]))
    sigId = Text(lambda plan: identities().group_id(plan["group"].pk))
    resourcegroup = Text(source="group.resource_group.name")
    policy = Text(source="group.policy")
    preemption = Flag(source="group.preemption")
    reclaimgrace = Whole(source="group.reclaim_grace_seconds", help_text="Seconds.")
    owned = Whole(source="group.quota", allow_null=True, help_text="Its quota of GPUs; null: none.")
    ratio = Whole(source="group.weight", help_text="Weight of its share of the GPUs beyond all quotas.")
    borrow = Flag(source="group.borrows")
    lend = Flag(source="group.lends")
    demand = Whole(help_text="Maximum number of GPUs that its applications request.")
    assigned = Whole(source="held", help_text="Number of GPUs that its applications hold.")
    childTreeDto = Many(lambda plan: [], child=Json())


class PlanTreeOutput(serializers.Serializer[Any]):
    id = Text()
    pid = Text(allow_null=True)
    name = Text()
    childTreeDto = PlanOutput(many=True)


def plans(groups: Sequence[InstanceGroup]) -> list[dict[str, Any]]:
    """Return the resource plans of these instance groups, in a fixed number of queries."""
    prefetch_related_objects(groups, "resource_group__hosts")
    jobs = Job.objects.filter(instance_group__in=groups, state__in=sorted(ACTIVE), finished_at__isnull=True)
    sums = jobs.order_by().values("instance_group").annotate(wanted=Sum("max_slots"))
    demands = dict(sums.values_list("instance_group", "wanted"))
    rows = [
        {"group": now.group, "held": now.held, "demand": demands.get(now.group.pk, 0)} for now in groups_now(groups)
    ]
    return list(PlanOutput(rows, many=True).data)


class _ApplicationView(WmlaView):
    def job(self) -> Job:
        return job_of(signed_in(self.request), self.kwargs["application_id"])


class SchedulerApplications(WmlaView):
    @extend_schema(parameters=[ApplicationQuery], responses=ScheduledApplicationOutput(many=True))
    def get(self, request: Request) -> Response:
        """List the user's applications (for an administrator, those of all users), newest first. 416 beyond the end."""
        jobs = jobs_in_list(signed_in(request), validated(ApplicationQuery, request.query_params))
        return Response(ScheduledApplicationOutput(applications(jobs), many=True).data)


class ApplicationStop(_ApplicationView):
    @extend_schema(request=None, responses=_DONE)
    def put(self, request: Request, application_id: str) -> Response:
        """Stop the application permanently."""
        stop(request, self.job(), f"Application {application_id[:100]}")
        return Response(status=204)


class ApplicationDriverLog(_ApplicationView):
    @extend_schema(parameters=[LogQuery], responses=_TEXT)
    def get(self, request: Request, application_id: str, stream: str) -> StreamingHttpResponse:
        """Return stdout or stderr of rank 0, or the launcherlog: a line for each event of the application."""
        job = self.job()
        if stream == _LAUNCHER:
            return text_stream(request, launcher_log(job), _LAUNCHER)
        return log_answer(request, driver_log(job, stream))


class ApplicationExecutorLog(_ApplicationView):
    @extend_schema(parameters=[LogQuery], responses=_TEXT)
    def get(self, request: Request, application_id: str, executor_id: str, stream: str) -> StreamingHttpResponse:
        """Return stdout or stderr of one rank, by its id or by a number from 1."""
        return log_answer(request, executor_log(self.job(), executor_id, stream))


class SchedulerInstances(WmlaView):
    @extend_schema(responses=InstanceOutput(many=True))
    def get(self, request: Request) -> Response:
        """List the instance groups as Conductor does."""
        return Response(instances(visible_groups(request.user)))


class EngineApplications(WmlaView):
    @extend_schema(parameters=[EngineQuery], responses=EngineApplicationOutput(many=True))
    def get(self, request: Request) -> Response:
        """List the same applications with the fields of Cloud Pak's own scheduler."""
        jobs = jobs_in_list(signed_in(request), validated(EngineQuery, request.query_params))
        return Response(EngineApplicationOutput(applications(jobs, Dialect.CLOUD_PAK), many=True).data)


class EngineApplication(_ApplicationView):
    @extend_schema(operation_id="engine_application", responses=EngineApplicationOutput(many=True))
    def get(self, request: Request, application_id: str) -> Response:
        """Return a list with this application: clients take its first element."""
        rows = applications([self.job()], Dialect.CLOUD_PAK)
        return Response(EngineApplicationOutput(rows, many=True).data)


class ResourcePlanTree(WmlaView):
    @extend_schema(responses=PlanTreeOutput)
    def get(self, request: Request) -> Response:
        """Return the root of the tree of consumers, with a plan for each instance group that the user may use."""
        below = plans(list(visible_groups(signed_in(request))))
        return Response({"id": _ROOT, "pid": None, "name": _ROOT, "childTreeDto": below})


class ResourcePlan(WmlaView):
    @extend_schema(responses=PlanOutput)
    def get(self, request: Request, plan: str) -> Response:
        """Return the plan of one instance group, by its name or id."""
        return Response(plans([group_of(signed_in(request), plan)])[0])

    @extend_schema(responses=_DONE)
    def delete(self, request: Request, plan: str) -> Response:
        """Delete the instance group. Refused if it has trainings, even ended ones, whose records refer to it."""
        require_cluster_admin(request.user)
        group_actions.delete_instance_group(group_of(signed_in(request), plan).pk, signed_in(request))
        return Response(status=204)


class KubernetesObjects(WmlaView):
    @extend_schema(
        parameters=[OpenApiParameter("type", str), OpenApiParameter("name", str)],
        responses={200: {"type": "array", "items": {"type": "object"}}},
    )
    def get(self, request: Request) -> Response:
        """Return an empty list: trainings are not Kubernetes objects."""
        return Response([])


_APPLICATION = "scheduler/applications/<application_id>"

urls: list[URLPattern] = [
    route("scheduler/applications", SchedulerApplications, "scheduler-applications"),
    route(f"{_APPLICATION}/stop", ApplicationStop, "scheduler-stop"),
    route(f"{_APPLICATION}/driver/logs/<stream>", ApplicationDriverLog, "scheduler-driver-log"),
    route(f"{_APPLICATION}/executor/<executor_id>/logs/<stream>", ApplicationExecutorLog, "scheduler-executor-log"),
    route("scheduler/instances", SchedulerInstances, "scheduler-instances"),
    route("scheduler/engine/applications", EngineApplications, "engine-applications"),
    route("scheduler/engine/applications/<application_id>", EngineApplication, "engine-application"),
    route("scheduler/kubernetesobjects", KubernetesObjects, "kubernetes-objects"),
    route("resplans/resplantree", ResourcePlanTree, "resource-plan-tree"),
    route("resplans/resplan/<plan>", ResourcePlan, "resource-plan"),
]
