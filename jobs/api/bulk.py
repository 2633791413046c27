"""Bulk actions on jobs, the list of jobs as CSV, and the user's saved filters."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any
from urllib.parse import parse_qsl

from django.contrib.auth.models import User
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.downloads import Cell, csv_chunks, file_response
from core.errors import field_error
from core.rest import Filters, NamedPages, signed_in, validated
from core.time import iso
from jobs.actions.bulk import MAX_JOBS, Outcome, cancel_many, change_priority_of_many, tag_many, undo_many
from jobs.actions.saved_filters import forget_filter, save_filter
from jobs.actions.tags import parsed_tag_change
from jobs.api.serializers import TagsField
from jobs.models import Job, SavedFilter
from jobs.queries.job_columns import ExtraColumn, extra_columns, joined_columns, value_of
from jobs.queries.job_list import JobFilter, all_pages

__all__ = ["JobBulk", "JobExport", "SavedFilterDetail", "SavedFilterList"]

_BIGGEST_ID = 2**63 - 1
_BIGGEST_EVENT = 2**31 - 1
#: Largest number of events of a job in an undo: one for each kind of change.
_MOST_EVENTS = 3

_COLUMNS: dict[str, Callable[[Job], Cell]] = {
    "id": lambda job: job.pk,
    "name": lambda job: job.name,
    "owner": lambda job: job.owner.get_username(),
    "state": lambda job: job.state,
    "reason": lambda job: job.reason_text,
    "tags": lambda job: " ".join(tag.name for tag in job.tags.all()),
    "model": lambda job: job.model.model.name,
    "model version": lambda job: job.model.number,
    "dataset": lambda job: job.dataset_name,
    "dataset version": lambda job: job.dataset.number if job.dataset else "",
    "instance group": lambda job: job.instance_group.name,
    "min GPUs": lambda job: job.min_slots,
    "max GPUs": lambda job: job.max_slots,
    "GPUs now": lambda job: job.run.slots,
    "priority": lambda job: job.priority,
    "step": lambda job: job.run.step,
    "epoch": lambda job: job.run.epoch,
    "progress": lambda job: job.run.progress,
    "final metrics": lambda job: json.dumps(job.run.final_metrics, ensure_ascii=False),
    "parameters": lambda job: json.dumps(job.parameters, ensure_ascii=False),
    "error": lambda job: job.error.get("message", ""),
    "submitted (UTC)": lambda job: iso(job.submitted_at),
    "started (UTC)": lambda job: iso(job.started_at),
    "ended (UTC)": lambda job: iso(job.finished_at),
}


def _extra_cell(job: Job, column: ExtraColumn) -> Cell:
    value = value_of(job, column)
    return value if value is None or isinstance(value, int | float | str) else json.dumps(value, ensure_ascii=False)


class ChangeField(serializers.Serializer[Any]):
    job = serializers.IntegerField(min_value=1, max_value=_BIGGEST_ID)
    events = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=_BIGGEST_EVENT), min_length=1, max_length=_MOST_EVENTS
    )


class BulkInput(serializers.Serializer[Any]):
    action = serializers.ChoiceField(["cancel", "priority", "tag", "undo"])
    jobs = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=_BIGGEST_ID),
        default=list,
        help_text=f"Ids, at most {MAX_JOBS}, for the actions `cancel`, `priority` and `tag`.",
    )
    add = TagsField(help_text="Tags, for the action `tag`.")
    remove = TagsField(help_text="Tags, for the action `tag`.")
    priority = serializers.IntegerField(required=False, help_text="1 to 10,000, for the action `priority`.")
    changes = ChangeField(many=True, default=list, help_text="`changes` of an earlier response, for the action `undo`.")


class RefusalOutput(serializers.Serializer[Any]):
    job = serializers.IntegerField()
    name = serializers.CharField()
    error = serializers.CharField(source="sentence")
    code = serializers.CharField()


class BulkOutput(serializers.Serializer[Any]):
    done = serializers.ListField(child=serializers.IntegerField())
    refused = RefusalOutput(many=True)
    changes = ChangeField(many=True, help_text="Input of the action `undo` that reverts it.")


class JobBulk(GenericAPIView[Job]):
    serializer_class: type[serializers.BaseSerializer[Any]] = BulkOutput

    @extend_schema(request=BulkInput, responses=BulkOutput)
    def post(self, request: Request) -> Response:
        """Stop jobs, set their priority, change their tags, or undo a change of priority. Refused jobs are listed."""
        outcome = _carried_out(validated(BulkInput, request.data), signed_in(request))
        changes = [{"job": job, "events": events} for job, events in outcome.changes.items()]
        return Response(BulkOutput({**asdict(outcome), "changes": changes}).data)


def _carried_out(values: dict[str, Any], user: User) -> Outcome:
    match values["action"]:
        case "cancel":
            return cancel_many(values["jobs"], user)
        case "tag":
            return tag_many(values["jobs"], parsed_tag_change(values["add"], values["remove"]), user)
        case "undo":
            changes: dict[int, list[int]] = {}
            for change in values["changes"]:
                changes.setdefault(change["job"], []).extend(change["events"])
            return undo_many(changes, user)
    if "priority" not in values:
        raise field_error("priority", "Send the new priority.")
    return change_priority_of_many(values["jobs"], values["priority"], user)


class JobExport(GenericAPIView[Job]):
    queryset = Job.objects.all()
    pagination_class = None
    filter_backends = [Filters]
    filterset_class = JobFilter

    @extend_schema(filters=True, responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request) -> StreamingHttpResponse:
        """Return every job of the list as CSV. Text that a spreadsheet would execute is prefixed with an apostrophe."""
        wanted = JobFilter(joined_columns(request.query_params))
        extra = extra_columns(wanted.chosen_columns)
        rows = (
            [*(cell(job) for cell in _COLUMNS.values()), *(_extra_cell(job, column) for column in extra)]
            for job in all_pages(signed_in(request), wanted)
        )
        heads = [*_COLUMNS, *(f"{column.kind} {column.label}" for column in extra)]
        return file_response(request, csv_chunks(heads, rows), "jobs.csv", "text/csv; charset=utf-8")


class SavedFilterInput(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    parameters = serializers.CharField(
        max_length=10_000, help_text="Query string of `jobs/`, such as `state=FAILED&within=7d`."
    )


class SavedFilterOutput(serializers.ModelSerializer[SavedFilter]):
    class Meta:
        model = SavedFilter
        fields = ["id", "name", "parameters", "created_at"]


class SavedFilterList(ListAPIView[SavedFilter]):
    """The user's saved filters of the list of jobs."""

    serializer_class = SavedFilterOutput
    pagination_class = NamedPages
    queryset = SavedFilter.objects.none()

    def get_queryset(self) -> Any:
        return SavedFilter.objects.filter(owner=signed_in(self.request))

    @extend_schema(request=SavedFilterInput, responses={201: SavedFilterOutput})
    def post(self, request: Request) -> Response:
        given = validated(SavedFilterInput, request.data)
        parameters = dict(parse_qsl(given["parameters"]))
        saved = save_filter(signed_in(request), given["name"], parameters)
        return Response(SavedFilterOutput(saved).data, status=201)


class SavedFilterDetail(APIView):
    @extend_schema(responses={204: OpenApiResponse(description="The filter is deleted.")})
    def delete(self, request: Request, filter_id: int) -> Response:
        forget_filter(signed_in(request), filter_id)
        return Response(status=204)
