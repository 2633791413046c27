"""Actions on many jobs at once, and the list of jobs as CSV."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.contrib.auth.models import User
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.csv_text import Cell, csv_chunks
from core.downloads import file_response
from core.errors import field_error
from core.rest import Filters, signed_in, validated
from core.time import iso
from jobs.actions.bulk import MAX_JOBS, Outcome, cancel_many, change_priority_of_many, undo_many
from jobs.models import Job
from jobs.queries.listing import JobFilter, all_pages

__all__ = ["JobBulk", "JobExport"]

_BIGGEST_ID = 2**63 - 1
_BIGGEST_EVENT = 2**31 - 1
#: One of each thing that can be undone.
_MOST_EVENTS = 3

_COLUMNS = (
    "id", "name", "owner", "state", "reason", "model", "model version", "dataset", "dataset version", "instance group",
    "min GPUs", "max GPUs", "GPUs now", "priority", "step", "epoch", "progress", "final metrics", "parameters", "error",
    "submitted (UTC)", "started (UTC)", "ended (UTC)",
)  # fmt: skip


class ChangeField(serializers.Serializer[Any]):
    job = serializers.IntegerField(min_value=1, max_value=_BIGGEST_ID)
    events = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=_BIGGEST_EVENT), min_length=1, max_length=_MOST_EVENTS
    )


class BulkInput(serializers.Serializer[Any]):
    action = serializers.ChoiceField(["cancel", "priority", "undo"])
    jobs = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=_BIGGEST_ID),
        default=list,
        help_text=f"Ids, at most {MAX_JOBS}, for the actions `cancel` and `priority`.",
    )
    priority = serializers.IntegerField(required=False, help_text="1 to 10000, for the action `priority`.")
    changes = ChangeField(many=True, default=list, help_text="As they were answered, for the action `undo`.")


class RefusalOutput(serializers.Serializer[Any]):
    job = serializers.IntegerField()
    name = serializers.CharField()
    error = serializers.CharField(source="sentence")
    code = serializers.CharField()


class BulkOutput(serializers.Serializer[Any]):
    done = serializers.ListField(child=serializers.IntegerField())
    refused = RefusalOutput(many=True)
    changes = ChangeField(many=True, help_text="What the action `undo` takes to undo it.")


class JobBulk(GenericAPIView[Job]):
    serializer_class: type[serializers.BaseSerializer[Any]] = BulkOutput

    @extend_schema(request=BulkInput, responses=BulkOutput)
    def post(self, request: Request) -> Response:
        """Stop many jobs, give them a priority, or undo that. Those that refuse are listed, the others go on."""
        given = validated(BulkInput, request.data)
        outcome = _carried_out(given, signed_in(request))
        changes = [{"job": job, "events": events} for job, events in outcome.changes.items()]
        return Response(BulkOutput({**asdict(outcome), "changes": changes}).data)


def _carried_out(values: dict[str, Any], user: User) -> Outcome:
    match values["action"]:
        case "cancel":
            return cancel_many(values["jobs"], user)
        case "undo":
            changes: dict[int, list[int]] = {}
            for change in values["changes"]:
                changes.setdefault(change["job"], []).extend(change["events"])
            return undo_many(changes, user)
    if "priority" not in values:
        raise field_error("priority", "Give the priority that they shall have.")
    return change_priority_of_many(values["jobs"], values["priority"], user)


class JobExport(GenericAPIView[Job]):
    queryset = Job.objects.all()
    pagination_class = None
    filter_backends = [Filters]
    filterset_class = JobFilter

    @extend_schema(filters=True, responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request) -> StreamingHttpResponse:
        """Every job of the list as CSV. Text that a spreadsheet would run begins with an apostrophe."""
        jobs = all_pages(signed_in(request), JobFilter(request.query_params.dict()))
        return file_response(request, csv_chunks(_COLUMNS, map(_row, jobs)), "jobs.csv", "text/csv; charset=utf-8")


def _row(job: Job) -> Sequence[Cell]:
    return (
        job.pk,
        job.name,
        job.owner.get_username(),
        job.state,
        job.reason_text,
        job.model.model.name,
        job.model.number,
        job.dataset.dataset.name,
        job.dataset.number,
        job.instance_group.name,
        job.min_slots,
        job.max_slots,
        job.run.slots,
        job.priority,
        job.run.step,
        job.run.epoch,
        job.run.progress,
        json.dumps(job.run.final_metrics, ensure_ascii=False),
        json.dumps(job.parameters, ensure_ascii=False),
        str(job.run.error.get("message", "")),
        iso(job.submitted_at),
        iso(job.started_at),
        iso(job.finished_at),
    )
