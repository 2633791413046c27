"""`/execs`: trainings submitted with `args` and a model's files, in the dialects of both generations of WMLA."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from django.urls import URLPattern
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.downloads import file_response
from core.errors import UserError
from core.rest import signed_in, validated
from jobs.actions.job_commands import hide
from jobs.files.job_folder import job_folder
from jobs.files.result_files import sized_zip
from jobs.models import Job
from jobs.states import JobState
from wmla.answer_fields import Address, Choice, Flag, Text, Whole
from wmla.arguments import accepted_arguments
from wmla.base_view import WmlaView, route, stop
from wmla.identifiers import identities, job_of, submitted, wmla_jobs
from wmla.job_names import EXEC_WORDS, KNOWN_WORDS, Dialect, state_word, states_behind
from wmla.logs import LOG_TYPES, as_json_string, launcher_log, rank_log, train_log
from wmla.service_info import framework_of
from wmla.submission import parse_form, prepare, submit
from wmla.uploads import PARSERS, data_field, preflight_answer, uploaded_files

__all__ = ["urls"]

_MAX_LISTED = 1000
_MAX_DATA = 64 * 1024
_ORDERS = {"id": "id", "createTime": "submitted_at"}
_DELETED = {204: None}


class ExecOutput(serializers.Serializer[Any]):
    """A training as a flat object, which notebooks put in a table. Cloud Pak omits some of the on-prem fields."""

    id = Text(lambda job: identities().exec_id(submitted(job)))
    args = Text(source="submitted_args")
    submissionId = Text(lambda job: identities().submission_id(submitted(job)))
    creator = Text(source="owner.username")
    state = Choice(lambda job: state_word(job.state, job.dialect), choices=EXEC_WORDS)
    appId = Text(lambda job: identities().app_id(submitted(job)))
    schedulerUrl = Address(lambda job: "")
    modelFileOwnerName = Text(source="owner.username")
    workDir = Text(lambda job: job_folder(job).code)
    appName = Text(lambda job: _app_name(job))
    createTime = Text(lambda job: f"{job.submitted_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")
    elastic = Flag(lambda job: framework_of(job).is_elastic)
    nameSpace = Text(lambda job: "wmla")
    numWorker = Whole(source="max_slots")
    framework = Text(lambda job: framework_of(job).name)
    sigId = Text(lambda job: identities().group_id(job.instance_group_id), required=False)
    sigName = Text(source="instance_group.name", required=False)
    userName = Text(source="owner.username", required=False)
    executionUserName = Text(lambda job: job.instance_group.execution_user or job.owner.get_username(), required=False)
    masterURL = Address(lambda job: "", required=False)

    def to_representation(self, instance: Job) -> dict[str, Any]:
        values = super().to_representation(instance)
        is_on_prem = instance.dialect == Dialect.ON_PREM
        return values if is_on_prem else {name: value for name, value in values.items() if self.fields[name].required}


class ExecDetailOutput(ExecOutput):
    events = Text(
        lambda job: b"".join(launcher_log(job)).decode() if job.state == JobState.FAILED else None,
        allow_null=True,
        help_text="One line for each event; only of a failed training.",
    )

    def to_representation(self, instance: Job) -> dict[str, Any]:
        values = super().to_representation(instance)
        return {name: value for name, value in values.items() if value is not None}


class SubmitInput(serializers.Serializer[Any]):
    file = serializers.FileField(help_text="Gzipped tar of the model's folder, or a single .py file. May be repeated.")
    data = serializers.CharField(  # type: ignore[assignment]
        required=False,
        help_text='JSON: {"args": "...", "hardwareSpec": {...}, "dataSource": [...]}; all fields are optional.',
    )


class ListQuery(serializers.Serializer[Any]):
    limit = serializers.IntegerField(default=_MAX_LISTED, min_value=1, max_value=2**31 - 1)
    state = serializers.CharField(required=False, max_length=200, help_text="One or more states, separated by commas.")
    sort_by = serializers.CharField(
        default="id:desc", max_length=50, help_text="`id` or `createTime`, followed by `:asc` or `:desc`."
    )


class LogQuery(serializers.Serializer[Any]):
    logType = serializers.ChoiceField(
        list(LOG_TYPES), required=False, help_text="Output of rank 0; default: the steps."
    )


class Execs(WmlaView):
    parser_classes = PARSERS

    @extend_schema(operation_id="execs_list", parameters=[ListQuery], responses=ExecOutput(many=True))
    def get(self, request: Request) -> Response:
        """List the user's trainings from any interface; for an administrator, those of all users."""
        asked = validated(ListQuery, request.query_params)
        jobs = wmla_jobs(signed_in(request)).order_by(*_order(asked["sort_by"]))
        if words := asked.get("state"):
            jobs = jobs.filter(state__in=_states(words))
        return _answer(request, jobs[: min(asked["limit"], _MAX_LISTED)])

    @extend_schema(
        parameters=[
            OpenApiParameter(
                "args", str, description="Options of the launcher, then of the script; may be sent in `data` instead."
            ),
            OpenApiParameter("sigName", str, description="Name of the instance group; not in Cloud Pak."),
        ],
        request={"multipart/form-data": SubmitInput},
        responses=ExecOutput,
    )
    def post(self, request: Request) -> Response:
        """Submit a training. Errors in the URL are reported before the files are read."""
        user, sig_name = signed_in(request), request.query_params.get("sigName", "")
        # args may be in the form instead of the URL.
        args = request.query_params.get("args")
        if args is not None:
            prepare(user, sig_name, args)
        if (answer := preflight_answer(request)) is not None:
            return answer
        form = parse_form(data_field(request, _MAX_DATA))
        if args is not None and form.args not in ("", args):
            raise UserError("args differs between the URL and data: send it in only one of them.")
        prepared = prepare(user, sig_name, form.args if args is None else args, form)
        return _answer(request, submit(user, prepared, uploaded_files(request)))

    @extend_schema(operation_id="execs_delete_all", responses=_DELETED)
    def delete(self, request: Request) -> HttpResponse:
        """Stop and delete all of the user's trainings."""
        user = signed_in(request)
        hide(list(wmla_jobs(user).filter(owner=user).values_list("pk", flat=True)), user.get_username())
        return HttpResponse(status=204)


class ExecView(WmlaView):
    """Base class of the views of one training, found by any of its identifiers."""

    def job(self) -> Job:
        return job_of(signed_in(self.request), self.kwargs["exec_id"])


class Exec(ExecView):
    @extend_schema(operation_id="execs_get", responses=ExecDetailOutput)
    def get(self, request: Request, exec_id: str) -> Response:
        """Return the training, with its events if it failed."""
        return Response(ExecDetailOutput(self.job(), context={"request": request}).data)

    @extend_schema(operation_id="execs_delete", responses=_DELETED)
    def delete(self, request: Request, exec_id: str) -> HttpResponse:
        """Stop the training and remove it from WMLA's lists; its usage records remain."""
        hide([self.job().pk], signed_in(request).get_username())
        return HttpResponse(status=204)


class ExecStop(ExecView):
    @extend_schema(request=None, responses=_DELETED)
    def post(self, request: Request, exec_id: str) -> HttpResponse:
        stop(request, self.job(), f"Training {exec_id[:100]}")
        return HttpResponse(status=204)


class ExecDeploy(ExecView):
    @extend_schema(request=OpenApiTypes.OBJECT, responses={400: OpenApiTypes.STR})
    def post(self, request: Request, exec_id: str) -> Response:
        """Always refuse: elastic inference is not supported."""
        self.job()
        raise UserError(
            "Deploying a trained model for inference is not supported here: download it with GET "
            f"/execs/{exec_id[:100]}/result, and serve the weights below model/train."
        )


class ExecLog(ExecView):
    @extend_schema(parameters=[LogQuery], responses={(200, "application/json"): OpenApiTypes.STR})
    def get(self, request: Request, exec_id: str) -> StreamingHttpResponse:
        """Return the steps so far, one per line, as a JSON string, or as plain text with `Accept: text/plain`."""
        asked = validated(LogQuery, request.query_params)
        job, kind = self.job(), asked.get("logType")
        chunks = rank_log(job, kind) if kind else train_log(job)
        if _wants_text(request):
            return _streamed(request, chunks, "text/plain; charset=utf-8")
        return _streamed(request, as_json_string(chunks), "application/json")


class ExecResult(ExecView):
    @extend_schema(responses={(200, "application/zip"): OpenApiTypes.BINARY})
    def get(self, request: Request, exec_id: str) -> StreamingHttpResponse:
        """Download model, checkpoints, logs and code as a zip file. The Content-Disposition header has its size in
        bytes."""
        job = self.job()
        zipped = sized_zip(job)
        exec_name = identities().exec_id(submitted(job))
        name = exec_name if job.dialect == Dialect.ON_PREM else f"dlpd-model-{exec_name}"
        response = _streamed(request, zipped.chunks(), "application/zip", closes=zipped.close)
        safe = re.sub(r"[^\w.@+-]", "_", name, flags=re.ASCII)
        # Keep this exact format: clients split it at "size=" and ";".
        response["Content-Disposition"] = f"attachment;filename={safe}.zip;size={zipped.size_bytes}"
        return response


def _app_name(job: Job) -> str:
    """Return the job's name, or its framework's app name if the submission gave none, as WMLA does."""
    named = not job.submitted_args or accepted_arguments(job.submitted_args).app_name
    return job.name if named else framework_of(job).app_name


def _answer(request: Request, jobs: Job | Iterable[Job]) -> Response:
    """Return a response with trainings. Needs their owners, models and instance groups."""
    return Response(ExecOutput(jobs, many=not isinstance(jobs, Job), context={"request": request}).data)


def _streamed(request: Request, chunks: Iterator[bytes], kind: str, closes: Any = None) -> StreamingHttpResponse:
    response = file_response(request, chunks, "log", kind)
    del response["Content-Disposition"]
    if closes is not None:
        # A client may disconnect before the first byte, and a generator that was never started closes nothing.
        response._resource_closers.append(closes)  # type: ignore[attr-defined]
    return response


def _wants_text(request: Request) -> bool:
    accepted = request.headers.get("Accept", "")
    return any(kind in accepted for kind in ("text/plain", "octet-stream")) and "json" not in accepted


def _order(text: str) -> tuple[str, str]:
    name, _, way = text.partition(":")
    if name not in _ORDERS or way not in ("", "asc", "desc"):
        raise UserError(f"sort_by is {text!a}: write one of {', '.join(_ORDERS)}, followed by :asc or :desc.")
    sign = "-" if way == "desc" else ""
    return f"{sign}{_ORDERS[name]}", f"{sign}id"


def _states(words: str) -> set[str]:
    wanted = [word.strip().upper() for word in words.split(",")]
    if unknown := [word for word in wanted if word not in KNOWN_WORDS]:
        raise UserError(f"State {unknown[0][:50]!a} is not known: use {', '.join(KNOWN_WORDS)}.")
    return {str(state) for word in wanted for state in states_behind(word)}


urls: list[URLPattern] = [
    route("execs", Execs, "execs"),
    route("execs/<exec_id>", Exec, "exec"),
    route("execs/<exec_id>/stop", ExecStop, "exec-stop"),
    route("execs/<exec_id>/deploy", ExecDeploy, "exec-deploy"),
    route("execs/<exec_id>/log", ExecLog, "exec-log"),
    route("execs/<exec_id>/result", ExecResult, "exec-result"),
]
