"""`/api/v1/jobs/`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from core.downloads import file_response
from core.rest import Filters, ListPages, Pages, found, keyset_answer, page_size_of, signed_in, validated
from jobs import actions
from jobs.api import serializers
from jobs.files.result import checkpoint_chunks, result_name, zip_chunks
from jobs.insight.advice import job_advice
from jobs.insight.previews import preview_change, preview_submission
from jobs.models import Checkpoint, Job
from jobs.queries import jobs as queries
from jobs.queries.listing import JobFilter, job_page_of

__all__ = [
    "JobAdvice",
    "JobAllocation",
    "JobCancel",
    "JobChangePreview",
    "JobCheckpointDownload",
    "JobCheckpoints",
    "JobClone",
    "JobDetail",
    "JobEvents",
    "JobList",
    "JobMetrics",
    "JobPreview",
    "JobRanks",
    "JobResult",
    "JobResume",
    "JobSuspend",
    "JobUndo",
    "JobView",
]


class JobList(ListAPIView[Job]):
    """The user's jobs, newest first (an administrator sees everybody's); POST submits one."""

    serializer_class = serializers.JobOutput
    queryset = Job.objects.all()
    pagination_class = Pages
    filter_backends = [Filters]
    filterset_class = JobFilter

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        given = request.query_params.dict()
        page = job_page_of(signed_in(request), JobFilter(given), given, page_size_of(given))
        return Response(keyset_answer(request, page, [queries.job_as_json(job) for job in page.rows]))

    @extend_schema(request=serializers.JobInput, responses={201: serializers.JobOutput})
    def post(self, request: Request) -> Response:
        given = validated(serializers.JobInput, request.data)
        job = actions.submit(actions.Submission(**given), signed_in(request))
        return Response(queries.job_as_json(job), status=201)


class JobView(GenericAPIView[Job]):
    """Base of the views of one job; jobs of other users do not exist."""

    serializer_class: type[BaseSerializer[Any]] = serializers.JobOutput

    def job(self) -> Job:
        return queries.get_visible_job(self.request.user, self.kwargs["job"])

    def listed(self, rows: list[dict[str, Any]]) -> Response:
        return self.get_paginated_response(self.paginate_queryset(rows))


class JobDetail(JobView):
    def get(self, request: Request, job: int) -> Response:
        return Response(queries.job_as_json(self.job()))

    @extend_schema(request=serializers.JobChangeInput)
    def patch(self, request: Request, job: int) -> Response:
        """Change the priority, the most slots, the least of one that waits, or several of these."""
        given = validated(serializers.JobChangeInput, request.data)
        self.job()
        actions.change_job(job, actions.JobChange(**given), signed_in(request).get_username())
        return Response(queries.job_as_json(self.job()))


class JobPreview(GenericAPIView[Job]):
    @extend_schema(operation_id="jobs_preview", request=serializers.JobInput, responses=serializers.PreviewOutput)
    def post(self, request: Request) -> Response:
        """Predict what would happen if this were submitted now. Nothing is written."""
        given = validated(serializers.JobInput, request.data)
        return Response(preview_submission(actions.Submission(**given), signed_in(request)))


class JobChangePreview(JobView):
    @extend_schema(
        operation_id="jobs_change_preview", request=serializers.JobChangeInput, responses=serializers.PreviewOutput
    )
    def post(self, request: Request, job: int) -> Response:
        """Predict what would happen if the priority or the most slots were changed now. Nothing is written."""
        given = validated(serializers.JobChangeInput, request.data)
        return Response(preview_change(self.job(), actions.JobChange(**given), signed_in(request)))


class JobUndo(JobView):
    @extend_schema(request=None, responses=serializers.JobOutput)
    def post(self, request: Request, job: int, seq: int) -> Response:
        """Restore the priority, the most or the fewest slots that this event changed, unless changed again since."""
        self.job()
        actions.undo_change(job, seq, signed_in(request).get_username())
        return Response(queries.job_as_json(self.job()))


class JobCommand(JobView):
    """A command to a job, without further values."""

    command: Callable[[int, str], Job]

    @extend_schema(request=None, responses=serializers.JobOutput)
    def post(self, request: Request, job: int) -> Response:
        self.job()
        type(self).command(job, signed_in(request).get_username())
        return Response(queries.job_as_json(self.job()))


class JobCancel(JobCommand):
    command = staticmethod(actions.cancel)


class JobSuspend(JobCommand):
    command = staticmethod(actions.suspend)


class JobResume(JobCommand):
    command = staticmethod(actions.resume)


class JobClone(JobView):
    @extend_schema(request=None, responses={201: serializers.JobOutput})
    def post(self, request: Request, job: int) -> Response:
        """Submit the same training again, with the code as it was then."""
        copy = actions.clone(self.job(), signed_in(request))
        return Response(queries.job_as_json(copy), status=201)


class JobAllocation(JobView):
    pagination_class = None

    @extend_schema(responses=serializers.AllocationOutput(many=True))
    def get(self, request: Request, job: int) -> Response:
        """Return the world size over time: each point holds until the next."""
        return Response(queries.allocation_series(self.job()))


class JobAdvice(JobView):
    @extend_schema(responses=serializers.AdviceOutput)
    def get(self, request: Request, job: int) -> Response:
        """Return advice from the curves: divergence, overfitting, a plateau, GPUs without effect."""
        return Response(serializers.AdviceOutput(job_advice(self.job())).data)


class JobRanks(JobView):
    serializer_class = serializers.RankOutput
    pagination_class = ListPages

    @extend_schema(responses=serializers.RankOutput(many=True))
    def get(self, request: Request, job: int) -> Response:
        return self.listed(queries.rank_list(self.job()))


class JobEvents(JobView):
    serializer_class = serializers.EventOutput
    pagination_class = ListPages

    @extend_schema(responses=serializers.EventOutput(many=True))
    def get(self, request: Request, job: int) -> Response:
        return self.listed(queries.event_list(self.job()))


class JobMetrics(JobView):
    serializer_class = serializers.MetricOutput
    pagination_class = ListPages

    @extend_schema(parameters=[serializers.MetricQuery], responses=serializers.MetricOutput(many=True))
    def get(self, request: Request, job: int) -> Response:
        asked = validated(serializers.MetricQuery, request.query_params)
        row, name, every = self.job(), asked["name"], asked["every"]
        names = [name] if name else queries.metric_names(row)
        return self.listed([point for name in names for point in queries.metric_series(row, name, every)])


class JobResult(JobView):
    @extend_schema(responses={(200, "application/zip"): OpenApiTypes.BINARY})
    def get(self, request: Request, job: int) -> StreamingHttpResponse:
        """Model, checkpoints, logs, metrics and the submitted code as a zip file."""
        row = self.job()
        chunks = zip_chunks(row)
        return file_response(request, chunks, result_name(row))


class JobCheckpoints(ListAPIView[Checkpoint]):
    serializer_class = serializers.CheckpointOutput
    pagination_class = Pages
    queryset = Checkpoint.objects.none()

    def get_queryset(self) -> Any:
        return Checkpoint.objects.filter(job=queries.get_visible_job(self.request.user, self.kwargs["job"]))


class JobCheckpointDownload(JobView):
    @extend_schema(responses={(200, "application/zip"): OpenApiTypes.BINARY})
    def get(self, request: Request, job: int, checkpoint: int) -> StreamingHttpResponse:
        """One checkpoint as a zip file: safetensors, and JSON with its sha256."""
        row = self.job()
        point = Checkpoint.objects.filter(job=row, pk=checkpoint).first()
        chunks = checkpoint_chunks(found(point, "checkpoint"))
        return file_response(request, chunks, f"job-{row.pk}-step-{found(point, 'checkpoint').step}.zip")
