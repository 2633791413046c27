"""Conductor's instances and their applications. Ours beside them: the priority of an application, which is changed by
`PUT .../applications/{driver or application id}/priority` with `{"priority": n}`."""

from __future__ import annotations

from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import NotFound, field_error
from core.rest import signed_in, validated
from core.roles import require_cluster_admin
from jobs import actions
from jobs.actions import groups as group_actions
from jobs.models import InstanceGroup, Job
from jobs.queries.groups import visible_groups
from wmla.application_lists import StateQuery, jobs_in_list
from wmla.applications import listed_applications
from wmla.conductor_shapes import (
    ApplicationOutput,
    ConfigurationInput,
    InstanceInput,
    InstanceOutput,
    PriorityInput,
    PriorityOutput,
)
from wmla.identities import Dialect
from wmla.instances import instance_of, instances, only_fields, parsed_configuration, parsed_instance
from wmla.logs import driver_log, executor_log, log_answer
from wmla.lookup import group_of, identities, job_of
from wmla.view import ConductorView, json_body

__all__ = [
    "ApplicationPriority",
    "Applications",
    "DriverLog",
    "ExecutorLog",
    "InstanceConfiguration",
    "InstanceDeploy",
    "InstanceStart",
    "InstanceStop",
    "Instances",
]

_TEXT = {(200, "text/plain"): OpenApiTypes.STR}
_FILTERS = [
    OpenApiParameter("id", str, description="Of one."),
    OpenApiParameter("name", str, description="Of one."),
    OpenApiParameter("consumerpath", str),
    OpenApiParameter("fields", str, description="With commas, such as name,state; absent: all."),
]


class Instances(ConductorView):
    @extend_schema(parameters=_FILTERS, responses=InstanceOutput(many=True))
    def get(self, request: Request) -> Response:
        """List the instance groups that the user may submit to; for administrators, all."""
        rows = instances(visible_groups(request.user))
        for name in ("id", "name", "consumerpath"):
            if wanted := request.query_params.get(name):
                rows = [row for row in rows if row[name] == wanted]
        return Response(only_fields(rows, request.query_params.get("fields", "")))

    @extend_schema(request=InstanceInput, responses={201: OpenApiTypes.STR})
    def post(self, request: Request) -> Response:
        """Register an instance group; the answer is its id, in quotes."""
        require_cluster_admin(request.user)
        group = group_actions.create_instance_group(parsed_instance(json_body(request)), signed_in(request))
        return Response(identities().group_id(group.pk), status=201)


class _InstanceView(ConductorView):
    def group(self) -> InstanceGroup:
        return group_of(signed_in(self.request), self.kwargs["sig_id"])


class InstanceConfiguration(_InstanceView):
    @extend_schema(request=ConfigurationInput, responses=InstanceOutput)
    def put(self, request: Request, sig_id: str) -> Response:
        """Change all that is given, or nothing."""
        group = self.group()
        change = group_actions.change_instance_group(
            group.pk, parsed_configuration(json_body(request)), signed_in(request)
        )
        return Response(instance_of(change.group))


class InstanceDeploy(_InstanceView):
    @extend_schema(request=None, responses=InstanceOutput)
    def put(self, request: Request, sig_id: str) -> Response:
        """Deploy the group, without installing anything: it is READY, or DEPLOY_ERROR while none of its hosts is."""
        return Response(instance_of(group_actions.deploy_instance_group(self.group().pk, signed_in(request))))


class InstanceStart(_InstanceView):
    @extend_schema(request=None, responses=InstanceOutput)
    def put(self, request: Request, sig_id: str) -> Response:
        """Let its applications begin. Refused if none of its hosts is ready."""
        return Response(instance_of(group_actions.start_instance_group(self.group().pk, signed_in(request))))


class InstanceStop(_InstanceView):
    @extend_schema(request=None, responses=InstanceOutput)
    def put(self, request: Request, sig_id: str) -> Response:
        """Take no more applications and start none that waits; those that run go on."""
        return Response(instance_of(group_actions.stop_instance_group(self.group().pk, signed_in(request))))


class Applications(_InstanceView):
    @extend_schema(parameters=[StateQuery], responses=ApplicationOutput(many=True))
    def get(self, request: Request, sig_id: str) -> Response:
        """List the newest 200 applications of this group that the user may see."""
        jobs = jobs_in_list(signed_in(request), validated(StateQuery, request.query_params), self.group())
        return Response(listed_applications(jobs, timezone.now(), Dialect.ON_PREM))


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
        """Change the priority, by an address of our own. The scheduler moves GPUs by it at once."""
        job, priority = self.job(), json_body(request).get("priority")
        if not isinstance(priority, int) or isinstance(priority, bool):
            raise field_error("priority", "Send the priority as a whole number from 1 to 10000.")
        changed = actions.change_priority(job.pk, priority, signed_in(request).get_username())
        return Response({"applicationid": application_id, "priority": changed.priority})


class DriverLog(_ApplicationView):
    @extend_schema(operation_id="driver_log", responses=_TEXT)
    def get(self, request: Request, sig_id: str, application_id: str, stream: str) -> StreamingHttpResponse:
        """Return what rank 0 wrote: stdout or stderr."""
        return log_answer(request, driver_log(self.job(), stream))


class ExecutorLog(_ApplicationView):
    @extend_schema(responses=_TEXT)
    def get(
        self, request: Request, sig_id: str, application_id: str, executor_id: str, stream: str
    ) -> StreamingHttpResponse:
        """Return what one rank wrote: stdout or stderr."""
        return log_answer(request, executor_log(self.job(), executor_id, stream))
