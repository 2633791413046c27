"""`/api/v1/jobs/`: submission, list, changes and related rows of jobs."""

from collections.abc import Callable
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from core.downloads import file_response
from core.errors import existing
from core.etags import seen_in, with_etag
from core.rest import (
    PARSERS_WITH_FILES,
    Filters,
    ListPages,
    Pages,
    keyset_answer,
    page_size_of,
    signed_in,
    validated,
)
from jobs import actions
from jobs.actions.idempotency import HEADER, once
from jobs.actions.job_commands import changeable_values
from jobs.api import serializers
from jobs.api.provenance import ProvenanceOutput
from jobs.files.result_files import checkpoint_chunks, result_name, zip_chunks
from jobs.models import Checkpoint, Job
from jobs.queries import jobs as queries
from jobs.queries.job_list import JobFilter, job_page_of
from jobs.queries.metrics import metric_names, metric_series
from jobs.queries.provenance import ran
from jobs.queries.queue_position import with_places
from jobs.queries.serializers import AllocationOutput, EventOutput, JobOutput, RankOutput, as_json

__all__ = [
    "IDEMPOTENCY_KEY",
    "JobAllocation",
    "JobCancel",
    "JobCheckpointDownload",
    "JobCheckpoints",
    "JobClone",
    "JobDetail",
    "JobEvents",
    "JobList",
    "JobMetrics",
    "JobProvenance",
    "JobRanks",
    "JobResult",
    "JobResume",
    "JobSuspend",
    "JobUndo",
    "JobView",
    "JobWait",
    "sent_again",
    "without_source",
]


IDEMPOTENCY_KEY = OpenApiParameter(
    HEADER, str, OpenApiParameter.HEADER, description="8 to 128 characters, random for each request."
)


class JobList(ListAPIView[Job]):
    """The user's jobs, newest first (an administrator sees everybody's); POST submits one."""

    serializer_class = serializers.JobInLine
    queryset = Job.objects.all()
    pagination_class = Pages
    filter_backends = [Filters]
    filterset_class = JobFilter

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        given = request.query_params.dict()
        page = job_page_of(signed_in(request), JobFilter(given), given, page_size_of(given))
        rows = [as_json(serializers.JobInLine, job) for job in with_places(page.rows)]
        return Response(keyset_answer(request, page, rows))

    @extend_schema(request=serializers.JobInput, responses={201: serializers.JobInLine}, parameters=[IDEMPOTENCY_KEY])
    def post(self, request: Request) -> Response:
        """Submit a job. With the header `Idempotency-Key`, a repeated request creates no second job."""
        given, user = validated(serializers.JobInput, request.data), signed_in(request)
        made, is_new = once(
            user,
            request.headers.get(HEADER),
            {"submit": without_source(request.data)},
            lambda then: actions.submit(actions.Submission(**given), user, then),
        )
        [job] = with_places([made])
        return Response(serializers.JobInLine(job).data, status=201, headers=sent_again(is_new))


def without_source(data: Any) -> dict[str, Any]:
    """Return the request without its source: the same command may be repeated after a commit."""
    return {name: value for name, value in data.items() if name != "source"}


def sent_again(is_new: bool) -> dict[str, str]:
    return {} if is_new else {"Idempotency-Replayed": "true"}


class JobView(GenericAPIView[Any]):
    # Base of the views of one job; jobs of other users do not exist. (A docstring would describe the endpoints.)
    serializer_class: type[BaseSerializer[Any]] = JobOutput
    queryset: Any = Job.objects.none()

    def get_object(self) -> Job:
        return queries.get_visible_job(self.request.user, self.kwargs["job"])


class JobDetail(JobView, RetrieveAPIView[Job]):
    serializer_class = serializers.JobInLine
    has_etag = True

    def get_object(self) -> Job:
        [job] = with_places([super().get_object()])
        return job

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self._response()

    @extend_schema(request=serializers.JobChangeInput)
    def patch(self, request: Request, job: int) -> Response:
        """Change the priority, the maximum of slots, the minimum of a waiting job, or the time limit."""
        given = validated(serializers.JobChangeInput, request.data)
        super().get_object()
        actions.change_job(job, actions.JobChange(**given), signed_in(request).get_username(), seen_in(request))
        return self._response()

    def _response(self) -> Response:
        job = self.get_object()
        return with_etag(Response(serializers.JobInLine(job).data), changeable_values(job))


class JobUndo(JobView):
    @extend_schema(request=None, responses=JobOutput)
    def post(self, request: Request, job: int, seq: int) -> Response:
        """Restore the value from before this event, unless it has been changed again since."""
        self.get_object()
        actions.undo_changes(job, [seq], signed_in(request).get_username())
        return Response(JobOutput(self.get_object()).data)


class JobCommand(JobView):
    """A command to a job, without a request body."""

    command: Callable[[int, str], Job]

    @extend_schema(request=None, responses=JobOutput)
    def post(self, request: Request, job: int) -> Response:
        self.get_object()
        type(self).command(job, signed_in(request).get_username())
        return Response(JobOutput(self.get_object()).data)


class JobCancel(JobCommand):
    command = staticmethod(actions.cancel)


class JobSuspend(JobCommand):
    command = staticmethod(actions.suspend)


class JobResume(JobCommand):
    command = staticmethod(actions.resume)


class JobKeepGpus(JobCommand):
    """Keep idle GPUs for an hour: three times in an attempt, after the warning."""

    command = staticmethod(actions.keep_idle_gpus)


class JobWait(JobView):
    @extend_schema(request=serializers.JobWaitInput, responses=JobOutput)
    def post(self, request: Request, job: int) -> Response:
        """Postpone the end of processes that stay after others of the group have exited with 0."""
        minutes = validated(serializers.JobWaitInput, request.data)["minutes"]
        self.get_object()
        actions.wait_for_ranks(job, signed_in(request).get_username(), minutes)
        return Response(JobOutput(self.get_object()).data)


class JobClone(JobView):
    #: Clients that send an empty form have nothing to say, and get a clone.
    parser_classes = PARSERS_WITH_FILES

    @extend_schema(
        request={"application/json": serializers.JobCloneInput},
        responses={201: JobOutput},
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request, job: int) -> Response:
        """Submit the training again, with its code as submitted; once per `Idempotency-Key`."""
        is_exact = validated(serializers.JobCloneInput, request.data)["exactly"]
        row, user = self.get_object(), signed_in(request)
        asked = {"clone": job, "exactly": True} if is_exact else {"clone": job}
        make = actions.run_again_exactly if is_exact else actions.clone
        copy, is_new = once(user, request.headers.get(HEADER), asked, lambda then: make(row, user, then=then))
        return Response(JobOutput(copy).data, status=201, headers=sent_again(is_new))


class JobAllocation(JobView, ListAPIView[Any]):
    """Return the world size over time: each point holds until the next one."""

    serializer_class = AllocationOutput
    pagination_class = None

    def get_queryset(self) -> Any:
        return queries.allocation_series(self.get_object())


class JobRanks(JobView, ListAPIView[Any]):
    serializer_class = RankOutput
    pagination_class = ListPages

    def get_queryset(self) -> Any:
        return queries.rank_list(self.get_object())


class JobProvenance(JobView):
    @extend_schema(responses=ProvenanceOutput)
    def get(self, request: Request, job: int) -> Response:
        """Return what exactly ran: commit, difference and command, and the versions of each attempt."""
        return Response(ProvenanceOutput(ran(self.get_object())).data)


class JobEvents(JobView, ListAPIView[Any]):
    serializer_class = EventOutput
    pagination_class = ListPages

    def get_queryset(self) -> Any:
        return queries.event_list(self.get_object())


class JobMetrics(JobView, ListAPIView[Any]):
    serializer_class = serializers.MetricOutput
    pagination_class = ListPages

    @extend_schema(parameters=[serializers.MetricQuery])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.list(request)

    def get_queryset(self) -> Any:
        asked = validated(serializers.MetricQuery, self.request.query_params)
        job, name, every = self.get_object(), asked["name"], asked["every"]
        names = [name] if name else metric_names(job)
        return [point for name in names for point in metric_series(job, name, every)]


class JobResult(JobView):
    @extend_schema(responses={(200, "application/zip"): OpenApiTypes.BINARY})
    def get(self, request: Request, job: int) -> StreamingHttpResponse:
        """Return the model, checkpoints, logs, metrics and submitted code as a zip file."""
        row = self.get_object()
        return file_response(request, zip_chunks(row), result_name(row))


class JobCheckpoints(JobView, ListAPIView[Any]):
    serializer_class = serializers.CheckpointOutput
    pagination_class = Pages
    queryset = Checkpoint.objects.none()

    def get_queryset(self) -> Any:
        return Checkpoint.objects.filter(job=self.get_object()).prefetch_related("versions__version__model")


class JobCheckpointDownload(JobView):
    @extend_schema(responses={(200, "application/zip"): OpenApiTypes.BINARY})
    def get(self, request: Request, job: int, checkpoint: int) -> StreamingHttpResponse:
        """Return a checkpoint as a zip file: safetensors, and JSON with its sha256."""
        row = self.get_object()
        point = existing(Checkpoint.objects.filter(job=row, pk=checkpoint).first(), "checkpoint")
        return file_response(request, checkpoint_chunks(point), f"job-{row.pk}-step-{point.step}.zip")
