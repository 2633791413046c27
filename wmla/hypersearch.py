"""`/hypersearch`: hyperparameter searches as studies, in the dialects of both generations of WMLA."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Prefetch, QuerySet
from django.http import HttpResponse
from django.urls import URLPattern
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import Conflict, UserError
from core.rest import signed_in, validated
from core.text import checked_name, shown_text
from jobs.actions.submission import Submission
from jobs.models import Job
from studies import actions
from studies.measures import current_value
from studies.models import Study, Trial
from studies.queries import studies
from wmla.answer_fields import Choice, Json, Many, Real, Text, Whole
from wmla.base_view import WmlaView, route
from wmla.hypersearch_algorithms import finder
from wmla.hypersearch_names import (
    EXPERIMENT_WORDS,
    SEARCH_WORDS,
    experiment_word,
    is_name_of_ours,
    name_of,
    progress_text,
    search_word,
    study_named,
    time_text,
)
from wmla.hypersearch_request import SearchRequest, parse_request
from wmla.identifiers import identities, submitted
from wmla.job_names import Dialect
from wmla.submission import prepare, with_files
from wmla.uploads import PARSERS, data_field, preflight_answer, uploaded_files

__all__ = [
    "ExperimentOutput",
    "Found",
    "algorithm_of",
    "check_hpo_name",
    "delete_search",
    "duration_text",
    "found_search",
    "restart_search",
    "stop_search",
    "study_request",
    "urls",
    "with_trials",
]

_ADDRESS = "/platform/rest/deeplearning/v1/hypersearch"
_MAX_LISTED = 1000
#: Largest definition of a search: thousands of experiments.
_MAX_DATA = 2 * 1024**2
_ORDERS = {"id": "id", "createtime": "created_at"}
_DELETED = {204: None}
#: Segment below the address of searches that names none of them.
_ALGORITHM = "algorithm"


@dataclass(frozen=True)
class Found:
    """A study and its trials, in order of number."""

    study: Study
    trials: Sequence[Trial]
    now: datetime

    @property
    def submitted(self) -> list[Trial]:
        """Trials with a training: clients look up the training of every experiment that they see."""
        return [trial for trial in self.trials if trial.job is not None]

    @property
    def best(self) -> Trial | None:
        """Return the complete trial with the best value, of equals the first."""
        sign = 1 if self.study.goal == Study.Goal.MINIMIZE else -1
        complete = [trial for trial in self.submitted if trial.state == Trial.State.COMPLETE]
        return min(complete, key=lambda trial: (sign * (trial.value or 0.0), trial.number), default=None)

    def count(self, *states: str) -> int:
        return sum(trial.state in states for trial in self.submitted)

    def experiment(self, trial: Trial) -> "Experiment":
        assert trial.job is not None
        return Experiment(self._id_of(trial), trial, trial.job, self.study)

    def _id_of(self, trial: Trial) -> int:
        """Return the number that the client gave to the experiment, or otherwise the trial's."""
        ids: list[int] = self.study.asked.get("ids", [])
        by_key: dict[int | None, Trial] = {each.pk: each for each in self.trials} if ids else {}
        while trial.repeats_id in by_key:
            trial = by_key[trial.repeats_id]
        return ids[trial.number] if trial.number < len(ids) else trial.number


@dataclass(frozen=True)
class Experiment:
    id: int
    trial: Trial
    job: Job
    study: Study


class HyperParamOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    dataType = serializers.ChoiceField(["double", "int", "str"])
    fixedVal = serializers.CharField(help_text="Value as text.")
    userDefined = serializers.BooleanField()
    type = serializers.CharField(required=False, help_text="`fix`, in ExperimentGridSearch only.")


class ExperimentOutput(serializers.Serializer[Any]):
    """A trial with its training. Cloud Pak omits some of the on-prem fields."""

    id = Whole()
    state = Choice(lambda one: experiment_word(one.trial, one.job), choices=EXPERIMENT_WORDS)
    appId = Text(lambda one: identities().app_id(submitted(one.job)))
    driverId = Text(lambda one: identities().driver_id(submitted(one.job)), required=False)
    maxiteration = Whole(lambda one: 0, required=False)
    metricVal = Real(lambda one: _metric_value(one), allow_null=True, help_text="Null: there is no value yet.")
    startTime = Text(lambda one: time_text(one.job.started_at), allow_null=True)
    endTime = Text(lambda one: time_text(one.job.finished_at), allow_null=True)
    hyperParams = serializers.SerializerMethodField()

    @extend_schema_field(HyperParamOutput(many=True))
    def get_hyperParams(self, one: Experiment) -> list[dict[str, Any]]:
        values = {**one.trial.values, **one.study.parameters}
        order = [*one.study.asked.get("order", []), *sorted(values)]
        kind = {"type": "fix"} if one.study.asked.get("ids") else {}
        return [
            {"name": name, "dataType": _data_type(values[name]), "fixedVal": str(values[name]), "userDefined": False}
            | kind
            for name in dict.fromkeys(order)
            if name in values
        ]

    def to_representation(self, instance: Experiment) -> dict[str, Any]:
        return _of_dialect(self, super().to_representation(instance), instance.study)


class HyperSearchOutput(serializers.Serializer[Any]):
    """A search with its experiments. Cloud Pak's searches also repeat their definition."""

    hpoName = Text(lambda found: name_of(found.study))
    state = Choice(lambda found: search_word(found.study, found.trials), choices=SEARCH_WORDS)
    progress = Text(lambda found: progress_text(found.study, found.trials), help_text="Such as `3/8`; `-`: no limit.")
    creator = Text(source="study.owner.username")
    createtime = Text(lambda found: time_text(found.study.created_at))
    duration = Text(lambda found: duration_text(found), help_text="`hh:mm:ss`.")
    running = Whole(lambda found: found.count(Trial.State.RUNNING))
    complete = Whole(lambda found: found.count(Trial.State.COMPLETE, Trial.State.PRUNED))
    failed = Whole(lambda found: found.count(Trial.State.FAILED))
    experiments = serializers.SerializerMethodField()
    best = serializers.SerializerMethodField(help_text="Absent before an experiment has a value.")
    algoDef = Json(lambda found: found.study.asked.get("algoDef") or algorithm_of(found.study))
    hyperParams = Many(lambda found: found.study.asked.get("hyperParams", []))

    @extend_schema_field(ExperimentOutput(many=True))
    def get_experiments(self, found: Found) -> list[dict[str, Any]]:
        rows = [found.experiment(trial) for trial in found.submitted]
        return list(ExperimentOutput(rows, many=True).data)

    @extend_schema_field(ExperimentOutput)
    def get_best(self, found: Found) -> dict[str, Any] | None:
        return None if found.best is None else dict(ExperimentOutput(found.experiment(found.best)).data)

    def to_representation(self, instance: Found) -> dict[str, Any]:
        values = super().to_representation(instance)
        if instance.study.dialect == Dialect.ON_PREM:
            values = {name: value for name, value in values.items() if name not in ("algoDef", "hyperParams")}
        return {name: value for name, value in values.items() if name != "best" or value is not None}


class MadeOutput(serializers.Serializer[Any]):
    uid = serializers.CharField(help_text="The search's hpoName.")
    href = serializers.CharField(help_text="Path of the search.")


class StartInput(serializers.Serializer[Any]):
    file = serializers.FileField(help_text="Gzipped tar of the model's folder, or a .py file, as in `execs`.")
    data = serializers.CharField(  # type: ignore[assignment]
        help_text='JSON: {"modelSpec": {...}, "algoDef": {...}, "hyperParams": [...]}, or `experiments`.'
    )


class ListQuery(serializers.Serializer[Any]):
    limit = serializers.IntegerField(default=_MAX_LISTED, min_value=1, max_value=2**31 - 1)
    state = serializers.CharField(required=False, max_length=200, help_text="One or more states, separated by commas.")
    sort_by = serializers.CharField(
        default="id:desc", max_length=50, help_text="`id` or `createtime`, followed by `:asc` or `:desc`."
    )


class HyperSearches(WmlaView):
    parser_classes = PARSERS

    @extend_schema(operation_id="hypersearch_list", parameters=[ListQuery], responses=HyperSearchOutput(many=True))
    def get(self, request: Request) -> Response:
        """List the user's searches from any interface; for an administrator, those of all users."""
        asked = validated(ListQuery, request.query_params)
        rows = studies(signed_in(request)).order_by(*_order(asked["sort_by"]))
        limit, wanted = min(asked["limit"], _MAX_LISTED), _words(asked.get("state", ""))
        # The state follows from the trials.
        found = with_trials(rows[: _MAX_LISTED if wanted else limit])
        found = [one for one in found if not wanted or search_word(one.study, one.trials) in wanted]
        return Response(HyperSearchOutput(found[:limit], many=True).data)

    @extend_schema(request={"multipart/form-data": StartInput}, responses=MadeOutput)
    def post(self, request: Request) -> Response:
        """Start a search. With `sigName`, as in WMLA on-prem, the answer is its hpoName alone, a JSON string."""
        user = signed_in(request)
        if (answer := preflight_answer(request)) is not None:
            return answer
        asked = parse_request(data_field(request, _MAX_DATA), finder(user))
        check_hpo_name(request, asked.name)
        prepared = prepare(user, asked.sig_name, asked.args)
        submission, _ = with_files(user, prepared, uploaded_files(request))
        study = actions.create_study(study_request(asked, submission), user)
        name = name_of(study)
        if study.dialect == Dialect.ON_PREM:
            return Response(name)
        return Response({"uid": name, "href": f"{_ADDRESS}/{name}"})

    @extend_schema(operation_id="hypersearch_delete_all", responses=_DELETED)
    def delete(self, request: Request) -> HttpResponse:
        """Delete all of the user's searches, or none if one still runs. Their trainings stay."""
        user = signed_in(request)
        found = with_trials(studies(user).filter(owner=user))
        if open_ones := [one for one in found if not _is_over(one)]:
            raise Conflict(f"{name_of(open_ones[0].study)} still runs: stop it before you delete all searches.")
        for one in found:
            delete_search(request, one)
        return HttpResponse(status=204)


class SearchView(WmlaView):
    """Base class of the views of one search."""

    def found(self) -> Found:
        return found_search(study_named(signed_in(self.request), self.kwargs["hpo_name"]))

    def stop(self) -> HttpResponse:
        stop_search(self.request, study_named(signed_in(self.request), self.kwargs["hpo_name"]))
        return HttpResponse(status=204)


class HyperSearch(SearchView):
    @extend_schema(operation_id="hypersearch_get", responses=HyperSearchOutput)
    def get(self, request: Request, hpo_name: str) -> Response:
        """Return the search with its experiments that have been submitted."""
        return Response(HyperSearchOutput(self.found()).data)

    @extend_schema(operation_id="hypersearch_stop", request=None, responses=_DELETED)
    def put(self, request: Request, hpo_name: str) -> HttpResponse:
        """Stop the search and its experiments."""
        return self.stop()

    @extend_schema(operation_id="hypersearch_delete", responses=_DELETED)
    def delete(self, request: Request, hpo_name: str) -> HttpResponse:
        """Delete a search that is over. Its trainings stay."""
        delete_search(request, self.found())
        return HttpResponse(status=204)


class HyperSearchForce(SearchView):
    @extend_schema(request=None, responses=_DELETED)
    def put(self, request: Request, hpo_name: str) -> HttpResponse:
        """Stop the search, like PUT without `force`: no experiment outlives its search here."""
        return self.stop()


class HyperSearchRestart(SearchView):
    @extend_schema(request=None, responses=HyperSearchOutput)
    def put(self, request: Request, hpo_name: str) -> Response:
        """Continue a stopped search: experiments that were stopped are started again."""
        restart_search(request, self.found().study)
        return Response(HyperSearchOutput(self.found()).data)


def study_request(asked: SearchRequest, submission: Submission) -> actions.StudyRequest:
    options: dict[str, Any] = {"max_slots": submission.max_slots, "environment": dict(submission.environment)}
    if submission.priority is not None:
        options["priority"] = submission.priority
    return actions.StudyRequest(
        name=asked.name or submission.name,
        model=submission.model,
        dataset=submission.dataset,
        instance_group=submission.instance_group,
        space=asked.space,
        metric=asked.metric,
        goal=asked.goal,
        sampler=asked.algorithm.sampler,
        plugin=asked.algorithm.plugin,
        plugin_arguments=asked.plugin_arguments,
        sampler_options=asked.sampler_options,
        pruner=asked.algorithm.pruner,
        seed=asked.seed,
        trials=asked.trials,
        minutes=asked.minutes,
        at_once=asked.at_once,
        parameters=asked.parameters,
        arguments=submission.arguments,
        options=options,
        queued=[experiment.values for experiment in asked.experiments],
        dialect=submission.dialect,
        asked={**asked.asked, "hpoName": asked.name} if asked.name else asked.asked,
    )


def found_search(study: Study) -> Found:
    return Found(study, list(_trials().filter(study=study)), timezone.now())


def stop_search(request: Request, study: Study) -> None:
    """Stop the search and its experiments. Raises UserError if it is over."""
    if study.is_over:
        raise UserError(f"Hyperparameter search {shown_text(name_of(study))} is already stopped.")
    actions.stop(signed_in(request), study.pk)


def restart_search(request: Request, study: Study) -> None:
    """Continue a search that has stopped or failed."""
    act = actions.resume if study.state == Study.State.PAUSED else actions.restart
    act(signed_in(request), study.pk)


def check_hpo_name(request: Request, name: str) -> None:
    if not name:
        return
    checked_name(name, field="hpoName")
    if is_name_of_ours(name) or name == _ALGORITHM:
        raise UserError(f"hpoName {name[:100]!a} is reserved for the server: choose another.")
    if studies(signed_in(request)).filter(asked__hpoName=name).exists():
        raise Conflict(f"There is a hyperparameter search {shown_text(name)}: choose another hpoName.")


def _trials() -> QuerySet[Trial]:
    return Trial.objects.order_by("number").select_related("job__run", "job__owner", "job__model__model")


def with_trials(rows: QuerySet[Study]) -> list[Found]:
    now, found = timezone.now(), rows.prefetch_related(Prefetch("trials", _trials()))
    return [Found(study, list(study.trials.all()), now) for study in found]


def _is_over(found: Found) -> bool:
    return search_word(found.study, found.trials) not in ("SUBMITTED", "RUNNING")


def delete_search(request: Request, found: Found) -> None:
    """Delete the search. One that has failed, and paused for that, is stopped first."""
    if _is_over(found) and not found.study.is_over:
        actions.stop(signed_in(request), found.study.pk)
    actions.delete_study(signed_in(request), found.study.pk)


def _of_dialect(output: serializers.Serializer[Any], values: dict[str, Any], study: Study) -> dict[str, Any]:
    if study.dialect == Dialect.ON_PREM:
        return values
    return {name: value for name, value in values.items() if output.fields[name].required or name == "hyperParams"}


def _metric_value(one: Experiment) -> float | None:
    if one.trial.state == Trial.State.RUNNING:
        return current_value(one.job, one.study)
    return one.trial.value


def _data_type(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "str"
    return "int" if isinstance(value, int) else "double"


def algorithm_of(study: Study) -> Mapping[str, Any]:
    """Return the definition of a study that no WMLA client has started."""
    return {
        "algorithm": study.sampler,
        "maxRunTime": study.max_minutes or -1,
        "maxJobNum": study.trials_wanted or -1,
        "maxParalleJobNum": study.at_once or -1,
        "objectiveMetric": study.metric,
        "objective": study.goal,
    }


def duration_text(found: Found) -> str:
    seconds = int(((found.study.finished_at or found.now) - found.study.created_at).total_seconds())
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _order(text: str) -> tuple[str, str]:
    name, _, way = text.partition(":")
    if name.lower() not in _ORDERS or way not in ("", "asc", "desc"):
        raise UserError(f"sort_by is {text!a}: write one of {', '.join(_ORDERS)}, followed by :asc or :desc.")
    sign = "-" if way == "desc" else ""
    return f"{sign}{_ORDERS[name.lower()]}", f"{sign}id"


def _words(text: str) -> set[str]:
    """Return the states in the text, which are separated by commas; an empty set for an empty text."""
    wanted = {word.strip().upper() for word in text.split(",") if word.strip()}
    if unknown := sorted(wanted - set(SEARCH_WORDS)):
        raise UserError(f"State {unknown[0][:50]!a} is not known: use {', '.join(SEARCH_WORDS)}.")
    return wanted


urls: list[URLPattern] = [
    route("hypersearch", HyperSearches, "hypersearches"),
    route("hypersearch/<hpo_name>", HyperSearch, "hypersearch"),
    route("hypersearch/<hpo_name>/force", HyperSearchForce, "hypersearch-force"),
    route("hypersearch/<hpo_name>/restart", HyperSearchRestart, "hypersearch-restart"),
]
