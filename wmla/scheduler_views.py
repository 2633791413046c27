"""The deep learning service's view of applications, instance groups and resource plans."""

from __future__ import annotations

from typing import Any

from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import UserError
from core.rest import ObjectField, signed_in, validated
from core.roles import require_cluster_admin
from jobs import actions
from jobs.actions import groups as group_actions
from jobs.models import Job
from jobs.permissions import Refusal, Verb, refusal
from jobs.queries.groups import visible_groups
from wmla.application_lists import ApplicationQuery, EngineQuery, jobs_in_list
from wmla.applications import engine_applications, scheduled_applications
from wmla.conductor_shapes import EngineApplicationOutput, InstanceOutput, ScheduledApplicationOutput
from wmla.instances import instances
from wmla.logs import LogQuery, driver_log, executor_log, launcher_log, log_answer, text_stream
from wmla.lookup import group_of, job_of
from wmla.resource_plans import plan_of, plan_tree
from wmla.view import WmlaView

__all__ = [
    "ApplicationDriverLog",
    "ApplicationExecutorLog",
    "ApplicationStop",
    "EngineApplication",
    "EngineApplications",
    "KubernetesObjects",
    "ResourcePlan",
    "ResourcePlanTree",
    "SchedulerApplications",
    "SchedulerInstances",
]

_TEXT = {(200, "text/plain"): OpenApiTypes.STR}
_DONE = {204: OpenApiResponse(description="Done.")}
_LAUNCHER = "launcherlog"


class PlanOutput(serializers.Serializer[Any]):
    id = serializers.CharField()
    pid = serializers.CharField(allow_null=True, help_text="Of its parent; null: it is the root.")
    name = serializers.CharField()
    consumer = serializers.CharField()
    sigId = serializers.CharField()
    resourcegroup = serializers.CharField()
    policy = serializers.CharField()
    preemption = serializers.BooleanField()
    reclaimgrace = serializers.IntegerField(help_text="Seconds.")
    owned = serializers.IntegerField(allow_null=True, help_text="Its quota of GPUs; null: none.")
    ratio = serializers.IntegerField(help_text="Its part of what is over all quotas.")
    borrow = serializers.BooleanField()
    lend = serializers.BooleanField()
    demand = serializers.IntegerField(help_text="The most GPUs that its applications want.")
    assigned = serializers.IntegerField(help_text="GPUs that they hold.")
    childTreeDto = serializers.ListField(child=ObjectField())


class PlanTreeOutput(serializers.Serializer[Any]):
    id = serializers.CharField()
    pid = serializers.CharField(allow_null=True)
    name = serializers.CharField()
    childTreeDto = PlanOutput(many=True)


class _ApplicationView(WmlaView):
    def job(self) -> Job:
        return job_of(signed_in(self.request), self.kwargs["application_id"])


class SchedulerApplications(WmlaView):
    @extend_schema(parameters=[ApplicationQuery], responses=ScheduledApplicationOutput(many=True))
    def get(self, request: Request) -> Response:
        """List the user's applications (for an administrator, everybody's), newest first. 416 behind the end."""
        jobs = jobs_in_list(signed_in(request), validated(ApplicationQuery, request.query_params))
        return Response(scheduled_applications(jobs, timezone.now()))


class ApplicationStop(_ApplicationView):
    @extend_schema(request=None, responses=_DONE)
    def put(self, request: Request, application_id: str) -> Response:
        """Stop the application for good."""
        job = self.job()
        if refusal(Verb.CANCEL, job.state) == Refusal.OVER:
            raise UserError(f"Application {application_id[:100]} is already stopped.")
        actions.cancel(job.pk, signed_in(request).get_username())
        return Response(status=204)


class ApplicationDriverLog(_ApplicationView):
    @extend_schema(parameters=[LogQuery], responses=_TEXT)
    def get(self, request: Request, application_id: str, stream: str) -> StreamingHttpResponse:
        """Return stdout or stderr of rank 0, or launcherlog: a line for each event of the application."""
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
        return Response(engine_applications(jobs))


class EngineApplication(_ApplicationView):
    @extend_schema(operation_id="engine_application", responses=EngineApplicationOutput(many=True))
    def get(self, request: Request, application_id: str) -> Response:
        """Return a list with this application: clients take its first element."""
        return Response(engine_applications([self.job()]))


class ResourcePlanTree(WmlaView):
    @extend_schema(responses=PlanTreeOutput)
    def get(self, request: Request) -> Response:
        """Return the root of the tree of consumers, with a plan for each instance group that the user may use."""
        return Response(plan_tree(signed_in(request)))


class ResourcePlan(WmlaView):
    @extend_schema(responses=PlanOutput)
    def get(self, request: Request, plan: str) -> Response:
        """Return the plan of one instance group, by its name or id."""
        return Response(plan_of(group_of(signed_in(request), plan)))

    @extend_schema(responses=_DONE)
    def delete(self, request: Request, plan: str) -> Response:
        """Delete the instance group. Refused if it has trainings, over or not, whose record it is."""
        require_cluster_admin(request.user)
        group_actions.delete_instance_group(group_of(signed_in(request), plan).pk, signed_in(request))
        return Response(status=204)


class KubernetesObjects(WmlaView):
    @extend_schema(
        parameters=[OpenApiParameter("type", str), OpenApiParameter("name", str)],
        responses={200: {"type": "array", "items": {"type": "object"}}},
    )
    def get(self, request: Request) -> Response:
        """Return an empty list: there is no Kubernetes."""
        return Response([])
