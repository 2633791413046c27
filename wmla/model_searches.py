"""`/models/{m}/hypersearch`: searches for the hyperparameters of a model, as studies, and models made of the best."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpResponse
from django.urls import URLPattern
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import Conflict, NotFound, UserError, field_error
from core.parameters import Scalar
from core.rest import signed_in
from core.text import shown_text
from jobs.actions.submission import Submission
from models_registry import queries
from models_registry.actions import ModelRegistration, register
from models_registry.code_inspection import inspect_code
from models_registry.model_settings import own_parameters, setting_uses
from models_registry.models import RegisteredModelVersion
from models_registry.script_declarations import Declared
from studies import actions
from studies.models import Study, Trial
from studies.queries import studies
from studies.space import parse_space, some_point
from wmla.answer_fields import Choice, Json, Text, Whole
from wmla.base_view import LIST_PARAMETERS, json_body, requested_rows, route
from wmla.hypersearch import (
    ExperimentOutput,
    Found,
    algorithm_of,
    check_hpo_name,
    delete_search,
    duration_text,
    found_search,
    restart_search,
    stop_search,
    study_request,
    with_trials,
)
from wmla.hypersearch_algorithms import finder
from wmla.hypersearch_names import SEARCH_WORDS, name_of, progress_text, search_word, study_named, time_text
from wmla.hypersearch_request import SearchRequest, parse_search
from wmla.hypersearch_space import number_in
from wmla.identifiers import group_meant, identities
from wmla.job_names import Dialect
from wmla.registered_models import ModelView, WmlaModelOutput, found_model, setting_of
from wmla.submission import default_group

__all__ = ["urls"]

_FRAMEWORKS = ("pytorch", "pytorchonelastic")
#: Field of `resDef` -> the setting that it is, in the trainings' `config.json`, too.
_SETTINGS = {"batchsize": "batch_size", "maxiteration": "epochs"}
_RESOURCE = "epochs"
_EXAMPLE = (
    '{"hpoName": "tuning", "resDef": {"framework": "PyTorch", "maxiteration": "5", '
    '"batchsize": 32}, "algoDef": {"algorithm": "Random", "maxJobNum": 8}, "hyperParams": [...]}'
)


class _GridOutput(serializers.Serializer[Any]):
    experiments = serializers.SerializerMethodField()
    best = serializers.SerializerMethodField(help_text="Null before an experiment has a value.")
    running = Whole(lambda found: found.count(Trial.State.RUNNING))
    complete = Whole(lambda found: found.count(Trial.State.COMPLETE, Trial.State.PRUNED))
    failed = Whole(lambda found: found.count(Trial.State.FAILED))
    progress = Text(lambda found: progress_text(found.study, found.trials))
    duration = Text(lambda found: duration_text(found), help_text="`hh:mm:ss`.")

    @extend_schema_field(ExperimentOutput(many=True))
    def get_experiments(self, found: Found) -> list[dict[str, Any]]:
        return list(ExperimentOutput([found.experiment(trial) for trial in found.submitted], many=True).data)

    @extend_schema_field(ExperimentOutput(allow_null=True))
    def get_best(self, found: Found) -> dict[str, Any] | None:
        return None if found.best is None else dict(ExperimentOutput(found.experiment(found.best)).data)


class ModelSearchOutput(serializers.Serializer[Any]):
    input = Json(lambda found: _input(found.study), help_text="Definition of the search.")
    searchGrid = _GridOutput(source="*")
    state = Choice(lambda found: search_word(found.study, found.trials), choices=SEARCH_WORDS)
    creator = Text(source="study.owner.username")
    createtime = Text(lambda found: time_text(found.study.created_at))
    sigId = Text(lambda found: identities().group_id(found.study.instance_group_id))
    sigName = Text(source="study.instance_group.name")
    consumerName = Text(lambda found: None, allow_null=True, help_text="There are no consumers here.")


class ModelSearches(ModelView):
    @extend_schema(parameters=LIST_PARAMETERS, responses=ModelSearchOutput(many=True))
    def get(self, request: Request, model: str) -> Response:
        """List the user's searches with this model (for an administrator, those of all users), newest first."""
        rows = requested_rows(request, studies(signed_in(request)).filter(model__model=self.model).order_by("-id"))
        return Response(ModelSearchOutput(with_trials(rows), many=True).data)

    @extend_schema(request=OpenApiTypes.OBJECT, responses=ModelSearchOutput)
    def post(self, request: Request, model: str) -> Response:
        """Start a search with the newest version of the model."""
        user, newest, body = signed_in(request), self.newest, json_body(request)
        resources = _resources(body)
        asked = parse_search(_as_search(body, resources), finder(user))
        if not asked.name:
            raise field_error("hpoName", f"hpoName is missing: send a JSON object like {_EXAMPLE}.")
        check_hpo_name(request, asked.name)
        wanted = study_request(asked, _submission(user, newest, asked, resources))
        constants = _constants(asked, resources)
        study = actions.create_study(_with_model(wanted, newest, constants, body), user)
        return Response(ModelSearchOutput(found_search(study)).data)


class ModelSearchView(ModelView):
    """Base class of the views of one search."""

    def study(self) -> Study:
        study = study_named(signed_in(self.request), self.kwargs["tuning"])
        if study.model.model_id != self.model.pk:
            raise NotFound(f"Model {self.model.name} has no search {shown_text(self.kwargs['tuning'])}.")
        return study

    def answer(self) -> Response:
        return Response(ModelSearchOutput(found_search(self.study())).data)

    def registered(self, name: str, source: RegisteredModelVersion) -> Response:
        """Register a version with the best values, and answer with its model."""
        user, found = signed_in(self.request), found_search(self.study())
        if found.best is None:
            raise Conflict("No experiment of this search has a value yet.", code="no_result")
        values = {**found.study.parameters, **found.best.values}
        version = register(user, _registration(name, source, values))
        return Response(WmlaModelOutput(found_model(user, version.model.name)).data)


class ModelSearch(ModelSearchView):
    @extend_schema(responses=ModelSearchOutput)
    def get(self, request: Request, model: str, tuning: str) -> Response:
        return self.answer()

    @extend_schema(responses={200: None})
    def delete(self, request: Request, model: str, tuning: str) -> HttpResponse:
        """Delete a search that is over. Its trainings stay."""
        delete_search(request, found_search(self.study()))
        return HttpResponse(status=200)


class ModelSearchStop(ModelSearchView):
    @extend_schema(request=None, responses={200: None})
    def put(self, request: Request, model: str, tuning: str) -> HttpResponse:
        """Stop the search and its experiments."""
        stop_search(request, self.study())
        return HttpResponse(status=200)


class ModelSearchForce(ModelSearchView):
    @extend_schema(request=None, responses={204: None})
    def put(self, request: Request, model: str, tuning: str) -> HttpResponse:
        """Stop the search, like `stop`: no experiment outlives its search here."""
        stop_search(request, self.study())
        return HttpResponse(status=204)


class ModelSearchRestart(ModelSearchView):
    @extend_schema(request=None, responses=ModelSearchOutput)
    def put(self, request: Request, model: str, tuning: str) -> Response:
        """Continue a stopped search: experiments that were stopped are started again."""
        restart_search(request, self.study())
        return self.answer()


class ModelSearchUpdate(ModelSearchView):
    @extend_schema(request=None, responses=WmlaModelOutput)
    def put(self, request: Request, model: str, tuning: str) -> Response:
        """Create the model's next version with the best values; started trainings keep theirs."""
        return self.registered(self.model.name, self.newest)


class ModelSearchCreate(ModelSearchView):
    @extend_schema(request=None, responses={201: WmlaModelOutput})
    def put(self, request: Request, model: str, tuning: str, new: str) -> Response:
        """Create a model with the searched code and the best values."""
        study = self.study()
        if queries.models(signed_in(request)).filter(name=new).exists():
            raise Conflict(f"Model {shown_text(new)} already exists: choose another name.")
        answer = self.registered(new, study.model)
        answer.status_code = 201
        return answer


def _resources(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `resDef`. Refuse what has no counterpart."""
    given = body.get("resDef")
    if not isinstance(given, dict):
        raise field_error("resDef", f"resDef is missing: send a JSON object like {_EXAMPLE}.")
    framework = str(given.get("framework") or "PyTorch")
    if framework.lower() not in _FRAMEWORKS:
        raise field_error("framework", "Models are trained with PyTorch here: send that as framework.")
    if str(given.get("syncMode") or "SYNC").upper() != "SYNC":
        raise field_error("syncMode", "Workers are always synchronous here: use SYNC.")
    if given.get("initWeightPath"):
        raise field_error("initWeightPath", "Searches start from no weights: leave initWeightPath out.")
    return given


def _as_search(body: Mapping[str, Any], resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition as `hypersearch` takes it: the loss counts, unless another metric is named."""
    algo = body.get("algoDef")
    algo = {"objectiveMetric": "loss", "objective": "minimize", **algo} if isinstance(algo, dict) else algo
    if isinstance(algo, dict) and str(algo.get("algorithm", "")).lower() == "hyperband":
        algo["algoParams"] = _with_resource(algo.get("algoParams") or [], resources)
    rows = body.get("experiments")
    if isinstance(rows, list):
        rows = [{**row, "hyperParams": row.get("fixedHyperParams")} if isinstance(row, dict) else row for row in rows]
    return {**body, "modelSpec": {}, "algoDef": algo, "experiments": rows}


def _with_resource(rows: Any, resources: Mapping[str, Any]) -> Any:
    """Return Hyperband's parameters with the length of a training as the resource, unless another one is named."""
    if not isinstance(rows, list):
        return rows
    names = {str(row.get("name", "")).lower() for row in rows if isinstance(row, dict)}
    resource = {"ResourceName": _RESOURCE, "ResourceValue": resources.get("maxiteration")}
    return [*rows, *({"name": name, "value": each} for name, each in resource.items() if name.lower() not in names)]


def _submission(
    user: User, newest: RegisteredModelVersion, asked: SearchRequest, resources: Mapping[str, Any]
) -> Submission:
    group = resources.get("resourceInstanceId")
    workers = [_whole(resources, name, 1) for name in ("workerNum", "gpuNum")]
    is_single = newest.engine == RegisteredModelVersion.Engine.SINGLE
    return Submission(
        name=asked.name,
        model=newest,
        dataset=newest.default_dataset or None,
        instance_group=(group_meant(user, str(group)) if group else default_group(user)).name,
        max_slots=1 if is_single else max(workers),
        dialect=Dialect.ON_PREM,
    )


def _whole(resources: Mapping[str, Any], name: str, absent: int) -> int:
    given = resources.get(name)
    number = float(absent) if given in (None, "", 0) else number_in(given)
    if number is None or number != int(number) or not 0 < number < 2**31:
        raise field_error(name, f"{name} is {ascii(given)[:50]}: send a whole number above 0.")
    return int(number)


def _constants(asked: SearchRequest, resources: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the parameters that are the same in every experiment: those of `resDef` that are not searched."""
    searched = {setting_of(name) for name in (*asked.space, *asked.parameters)}
    given = {ours: resources.get(name) for name, ours in _SETTINGS.items() if ours not in searched}
    wanted = {ours: _whole({ours: value}, ours, 1) for ours, value in given.items() if value not in (None, "", 0, "0")}
    # Hyperband's resource is a text in WMLA, and a number for the script's argument.
    texts = {name: int(value) if str(value).isdecimal() else value for name, value in asked.parameters.items()}
    return {**wanted, **texts}


def _with_model(
    wanted: actions.StudyRequest,
    newest: RegisteredModelVersion,
    constants: Mapping[str, Scalar],
    body: Mapping[str, Any],
) -> actions.StudyRequest:
    declared = inspect_code(newest.folder, newest.entry_point).declared
    some = {**some_point(parse_space(wanted.space)), **constants}
    arguments = {name: argument for name, value in some.items() if (argument := _argument_of(declared, name, value))}
    told = {name: body[name] for name in ("hyperParams", "algoDef", "resDef", "experiments") if name in body}
    asked = {**wanted.asked, "arguments": arguments, "input": told}
    return replace(wanted, parameters=constants, asked=asked)


def _argument_of(declared: Declared, name: str, value: Scalar) -> str:
    """Return the script's argument for the hyperparameter; "": the script reads it from `config.json`, if at all."""
    setting = setting_of(name)
    if setting:
        [use] = setting_uses({setting: value}, [each for each in declared.arguments if each.takes == "value"])
        return use.argument or (setting if declared.asks_manager else "")
    return name if any(each.name == name for each in declared.arguments) else ""


def _input(study: Study) -> dict[str, Any]:
    names = {"modelName": study.model.model.name, "hpoName": name_of(study)}
    made = {"hyperParams": study.asked.get("hyperParams", []), "resDef": {"framework": study.model.framework}}
    return {**made, "algoDef": algorithm_of(study), **study.asked.get("input", {}), **names}


def _registration(name: str, source: RegisteredModelVersion, values: Mapping[str, Any]) -> ModelRegistration:
    """Return the registration of the source's code with these values, as settings or as parameters."""
    arguments = inspect_code(source.folder, source.entry_point).arguments
    settings = {setting_of(each): value for each, value in values.items() if setting_of(each)}
    others = {each: value for each, value in values.items() if not setting_of(each)}
    known = {argument.name for argument in arguments}
    if lost := sorted(set(others) - known):
        raise UserError(
            f"{lost[0]} is neither a setting nor an argument of the model's script, which reads it from config.json: "
            "put the best values there."
        )
    parameters = own_parameters(source.parameters, source.settings, arguments)
    return ModelRegistration(
        name=name,
        source=source,
        framework=source.framework,
        engine=source.engine,
        default_dataset=source.default_dataset,
        settings={**source.settings, **settings},
        parameters={**parameters, **others},
        description=source.model.description,
    )


urls: list[URLPattern] = [
    route("models/<model>/hypersearch", ModelSearches, "model-searches"),
    route("models/<model>/hypersearch/<tuning>", ModelSearch, "model-search"),
    route("models/<model>/hypersearch/<tuning>/stop", ModelSearchStop, "model-search-stop"),
    route("models/<model>/hypersearch/<tuning>/force", ModelSearchForce, "model-search-force"),
    route("models/<model>/hypersearch/<tuning>/restart", ModelSearchRestart, "model-search-restart"),
    route("models/<model>/hypersearch/<tuning>/update", ModelSearchUpdate, "model-search-update"),
    route("models/<model>/hypersearch/<tuning>/create/<new>", ModelSearchCreate, "model-search-create"),
]
