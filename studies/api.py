"""`/api/v1/studies/…`: studies that the user may see, their trials, and their changes."""

from collections.abc import Iterator
from typing import Any

from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.dataclass_serializers import output_of
from core.downloads import Cell, csv_chunks, file_response
from core.errors import NotFound
from core.keyset import Order
from core.rest import ObjectField, Pages, StrictSerializer, signed_in, validated
from core.text import whole
from jobs.api.serializers import SubmissionInput, TagsField, option_fields
from studies import actions
from studies.models import MAX_TRIALS, NNI, Study, Trial
from studies.preview import StudyPreview, preview
from studies.pruners import PRUNERS
from studies.queries import find_study, studies, trials_of, with_best
from studies.samplers import SAMPLERS
from studies.words import best_sentence

__all__ = [
    "StudyBest",
    "StudyDetail",
    "StudyEnqueue",
    "StudyExport",
    "StudyImportance",
    "StudyList",
    "StudyPause",
    "StudyPreviewed",
    "StudyResume",
    "StudySeeds",
    "StudyStop",
    "StudyTrials",
    "urlpatterns",
]

_MAX_INTEGER = 2**31 - 1
#: Options of trainings that a study sets itself.
_OWN = ("seed",)
_SPACE = (
    "Name of a parameter -> list of values; or an object with kind (uniform, log_uniform, int, log_int, normal or "
    "log_normal) and low and high, or mean and deviation, and a step or round_to; or one value, for "
    "every trial."
)


class StudyInput(SubmissionInput):
    space = ObjectField(help_text=_SPACE)
    metric = serializers.CharField(max_length=1000, help_text="A metric that the script reports, such as accuracy.")
    goal = serializers.ChoiceField(Study.Goal.choices, default=Study.Goal.MINIMIZE)
    value_of = serializers.ChoiceField(
        Study.ValueOf.choices, default=Study.ValueOf.LAST, help_text="Which value of the metric counts."
    )
    sampler = serializers.ChoiceField([(name, name) for name in SAMPLERS], default="tpe")
    pruner = serializers.ChoiceField([(name, name) for name in PRUNERS], default="none")
    seed = serializers.IntegerField(
        default=0, min_value=0, max_value=_MAX_INTEGER, help_text="Seed of the sampler and of the trainings."
    )
    trials = serializers.IntegerField(default=None, allow_null=True, help_text="Absent: no limit.")
    minutes = serializers.IntegerField(default=None, allow_null=True, help_text="Time limit. Absent: none.")
    gpu_hours = serializers.FloatField(default=None, allow_null=True, help_text="Absent: no limit.")
    at_once = serializers.IntegerField(
        default=None, allow_null=True, help_text="Most trials at the same time. Absent: as many as there are GPUs."
    )
    parameters = ObjectField(default=dict, help_text="Parameters that are the same in every trial.")
    tags = TagsField(help_text="Tags of the trainings.")
    arguments = serializers.ListField(
        child=serializers.CharField(allow_blank=True, trim_whitespace=False), default=list
    )
    dialect = serializers.ChoiceField(
        [(NNI, "NNI")],
        default="",
        allow_blank=True,
        help_text="nni: the script asks the module `nni` for its values, and gets none as arguments.",
    )

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        options = {name: field for name, field in option_fields().items() if name not in _OWN}
        options["max_slots"] = serializers.IntegerField(default=1, help_text="Most GPUs of one trial.")
        return {**super().get_fields(), **options}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        names = set(option_fields()) - set(_OWN)
        options = {name: value for name, value in attrs.items() if name in names}
        rest = {name: value for name, value in attrs.items() if name not in names}
        return {**rest, "options": {**options, "seed": attrs["seed"]}}


class StudyChangeInput(StrictSerializer):
    trials = serializers.IntegerField(required=False, allow_null=True, help_text="null: no limit.")
    at_once = serializers.IntegerField(required=False, allow_null=True, help_text="null: as many as there are GPUs.")
    minutes = serializers.IntegerField(required=False, allow_null=True, help_text="null: no limit.")
    gpu_hours = serializers.FloatField(required=False, allow_null=True, help_text="null: no limit.")
    priority = serializers.IntegerField(required=False)
    metric = serializers.CharField(
        required=False, max_length=1000, help_text="The values of trials that are over are read again."
    )
    goal = serializers.ChoiceField(Study.Goal.choices, required=False)
    value_of = serializers.ChoiceField(Study.ValueOf.choices, required=False)


class TrialOutput(serializers.ModelSerializer[Trial]):
    job = serializers.IntegerField(source="job_id", allow_null=True, help_text="Id of the training.")
    values = serializers.DictField()
    reported = serializers.ListField(
        child=serializers.ListField(child=serializers.FloatField(allow_null=True)),
        help_text="[progress, value] at each rung of the pruner; null: not a number.",
    )

    class Meta:
        model = Trial
        fields = ["number", "job", "values", "origin", "state", "value", "reported", "why", "created_at", "finished_at"]


class StudyOutput(serializers.ModelSerializer[Study]):
    owner = serializers.CharField(source="owner.username")
    model = serializers.CharField(source="model.model.name")
    dataset = serializers.CharField(source="dataset.dataset.name", default=None, allow_null=True)
    instance_group = serializers.CharField(source="instance_group.name")
    parameters = serializers.DictField()
    tags = serializers.ListField(child=serializers.CharField())
    space = serializers.DictField()
    trials = serializers.IntegerField(source="trials_wanted", allow_null=True)
    minutes = serializers.IntegerField(source="max_minutes", allow_null=True)
    gpu_hours = serializers.FloatField(source="max_gpu_hours", allow_null=True)
    counts = serializers.SerializerMethodField(help_text="Number of trials by state.")
    best = serializers.SerializerMethodField()
    best_text = serializers.SerializerMethodField(help_text="Sentence that names the best trial.")

    class Meta:
        model = Study
        fields = [
            *("id", "name", "owner", "model", "dataset", "instance_group", "parameters", "tags", "space"),
            *(
                "metric",
                "goal",
                "value_of",
                "sampler",
                "pruner",
                "seed",
                "trials",
                "minutes",
                "gpu_hours",
                "at_once",
                "state",
                "reason",
            ),
            *("counts", "best", "best_text", "revision", "created_at", "finished_at"),
        ]

    def get_counts(self, study: Study) -> dict[str, int]:
        return {state.lower(): getattr(study, f"{state.lower()}_count") for state in Trial.State.values}

    @extend_schema_field(TrialOutput(allow_null=True))
    def get_best(self, study: Study) -> dict[str, Any] | None:
        best = study.best  # type: ignore[attr-defined]
        return None if best is None else TrialOutput(best).data

    def get_best_text(self, study: Study) -> str:
        return best_sentence(study, study.best)  # type: ignore[attr-defined]


class EnqueueInput(StrictSerializer):
    values = serializers.ListField(
        child=ObjectField(), min_length=1, max_length=1000, help_text="Values of each queued trial."
    )


class SeedsInput(StrictSerializer):
    trial = serializers.IntegerField(min_value=0, max_value=_MAX_INTEGER, help_text="Number of the trial to repeat.")
    count = serializers.IntegerField(default=3, min_value=1, max_value=MAX_TRIALS)


class TrialPages(Pages):
    order = Order("number", parse=whole)


class StudyView(GenericAPIView[Any]):
    # Base of the views of one study; studies of other users do not exist.
    serializer_class: Any = StudyOutput
    queryset: Any = Study.objects.none()
    refuses_with = (404,)

    def study(self) -> Study:
        return find_study(self.request.user, self.kwargs["study"])

    def answer(self, status: int = 200) -> Response:
        return Response(StudyOutput(self.study()).data, status=status)


class StudyList(ListAPIView[Study]):
    """Studies that the user may see, newest first."""

    serializer_class = StudyOutput
    pagination_class = Pages
    queryset = Study.objects.none()

    def get_queryset(self) -> Any:
        return studies(self.request.user)

    def paginate_queryset(self, queryset: Any) -> Any:
        return with_best(super().paginate_queryset(queryset) or ())

    @extend_schema(request=StudyInput, responses={201: StudyOutput})
    def post(self, request: Request) -> Response:
        """Create a study; its trials are submitted within seconds."""
        given = validated(StudyInput, request.data)
        made = actions.create_study(actions.StudyRequest(**given), signed_in(request))
        return Response(StudyOutput(find_study(request.user, made.pk)).data, status=201)


class StudyPreviewed(GenericAPIView[Any]):
    serializer_class = output_of(StudyPreview)

    @extend_schema(request=StudyInput, responses=output_of(StudyPreview))
    def post(self, request: Request) -> Response:
        """Check a study without creating it, and estimate its cost."""
        given = actions.StudyRequest(**validated(StudyInput, request.data))
        return Response(self.get_serializer(preview(given, signed_in(request))).data)


class StudyDetail(StudyView):
    def get(self, request: Request, study: int) -> Response:
        return self.answer()

    @extend_schema(request=StudyChangeInput, responses=StudyOutput)
    def patch(self, request: Request, study: int) -> Response:
        """Change limits, the priority or the compared metric. A higher limit continues a finished study."""
        given = validated(StudyChangeInput, request.data)
        values: dict[str, Any] = {name: 0 if value is None else value for name, value in given.items()}
        change = actions.StudyChange(**values)
        actions.change_study(signed_in(request), study, change)
        return self.answer()

    @extend_schema(responses={204: OpenApiResponse(description="Deleted.")})
    def delete(self, request: Request, study: int) -> Response:
        """Delete a study that is over. Its trainings stay."""
        actions.delete_study(signed_in(request), study)
        return Response(status=204)


class StudyPause(StudyView):
    @extend_schema(request=None, responses=StudyOutput)
    def post(self, request: Request, study: int) -> Response:
        """Submit no more trials; those that have been submitted train on."""
        actions.pause(signed_in(request), study)
        return self.answer()


class StudyResume(StudyView):
    @extend_schema(request=None, responses=StudyOutput)
    def post(self, request: Request, study: int) -> Response:
        """Submit trials again."""
        actions.resume(signed_in(request), study)
        return self.answer()


class StudyStop(StudyView):
    @extend_schema(request=None, responses=StudyOutput)
    def post(self, request: Request, study: int) -> Response:
        """End the study for good, and stop its trials."""
        actions.stop(signed_in(request), study)
        return self.answer()


class StudyEnqueue(StudyView):
    serializer_class = TrialOutput

    @extend_schema(request=EnqueueInput, responses={201: TrialOutput(many=True)})
    def post(self, request: Request, study: int) -> Response:
        """Queue trials with these values, before all others."""
        given = validated(EnqueueInput, request.data)
        made = actions.enqueue(signed_in(request), study, given["values"])
        return Response(TrialOutput(made, many=True).data, status=201)


class StudySeeds(StudyView):
    serializer_class = TrialOutput

    @extend_schema(request=SeedsInput, responses={201: TrialOutput(many=True)})
    def post(self, request: Request, study: int) -> Response:
        """Repeat a trial with other seeds."""
        given = validated(SeedsInput, request.data)
        made = actions.more_seeds(signed_in(request), study, given["trial"], given["count"])
        return Response(TrialOutput(made, many=True).data, status=201)


class StudyTrials(StudyView, ListAPIView[Any]):
    """Trials of a study, in order of number."""

    serializer_class = TrialOutput
    pagination_class = TrialPages

    def get_queryset(self) -> Any:
        return trials_of(self.study())


class StudyBest(StudyView):
    serializer_class = TrialOutput

    @extend_schema(responses=TrialOutput)
    def get(self, request: Request, study: int) -> Response:
        """Return the complete trial with the best value."""
        best = self.study().best  # type: ignore[attr-defined]
        if best is None:
            raise NotFound("No trial of this study is complete yet.")
        return Response(TrialOutput(best).data)


class StudyImportance(StudyView):
    """Share of each parameter in the differences of the values, by PED-ANOVA; {} with too few trials."""

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, study: int) -> Response:
        return Response(self.study().importance)


class StudyExport(StudyView):
    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request, study: int) -> Any:
        """Download the trials as CSV."""
        row = self.study()
        names = list(row.space)
        head = ["trial", "training", "state", "value", *names, "why"]
        return file_response(request, csv_chunks(head, _cells(row, names)), "trials.csv", "text/csv; charset=utf-8")


def _cells(study: Study, names: list[str]) -> Iterator[list[Cell]]:
    for trial in study.trials.order_by("number").iterator():
        values = [trial.values.get(name, "") for name in names]
        yield [
            trial.number,
            trial.job_id or "",
            trial.state,
            "" if trial.value is None else trial.value,
            *values,
            trial.why,
        ]


urlpatterns = [
    path("studies/", StudyList.as_view(), name="studies"),
    path("studies/preview/", StudyPreviewed.as_view(), name="study-preview"),
    path("studies/<int:study>/", StudyDetail.as_view(), name="study"),
    path("studies/<int:study>/pause/", StudyPause.as_view(), name="study-pause"),
    path("studies/<int:study>/resume/", StudyResume.as_view(), name="study-resume"),
    path("studies/<int:study>/stop/", StudyStop.as_view(), name="study-stop"),
    path("studies/<int:study>/enqueue/", StudyEnqueue.as_view(), name="study-enqueue"),
    path("studies/<int:study>/seeds/", StudySeeds.as_view(), name="study-seeds"),
    path("studies/<int:study>/trials/", StudyTrials.as_view(), name="study-trials"),
    path("studies/<int:study>/best/", StudyBest.as_view(), name="study-best"),
    path("studies/<int:study>/importance/", StudyImportance.as_view(), name="study-importance"),
    path("studies/<int:study>/export.csv", StudyExport.as_view(), name="study-export"),
]
