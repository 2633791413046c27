"""JSON of jobs in the API, beside that of `jobs.queries.serializers`."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from core.rest import ObjectField, ReferenceField, StrictSerializer
from jobs.actions.initial_state import WEIGHTS_WANTED, Weights
from jobs.api.provenance import SourceInput
from jobs.models import Checkpoint, Job
from jobs.options import OPTIONS, Option
from jobs.queries.queue_position import expected_start
from jobs.queries.serializers import JobOutput
from jobs.tags import MOST_TAGS

__all__ = [
    "CheckpointOutput",
    "JobChangeInput",
    "JobCloneInput",
    "JobInLine",
    "JobInput",
    "MetricOutput",
    "MetricQuery",
    "SubmissionInput",
    "TagsField",
    "option_fields",
]


@extend_schema_field(
    {
        "oneOf": [
            {"type": "integer"},
            {
                "type": "object",
                "properties": {"checkpoint": {"type": "integer"}},
                "required": ["checkpoint"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"upload": {"type": "integer"}},
                "required": ["upload"],
                "additionalProperties": False,
            },
        ]
    }
)
class WeightsField(serializers.Field[Weights, Any, Any, Any]):
    """A reference to weights; the action checks that they exist."""

    default_error_messages = {"invalid": WEIGHTS_WANTED.replace("{", "{{").replace("}", "}}")}

    def to_internal_value(self, data: Any) -> Weights:
        if isinstance(data, str) and data.isascii() and data.isdecimal() and len(data) < 20:
            data = int(data)  # from a form
        if isinstance(data, bool) or not isinstance(data, int | dict):
            self.fail("invalid")
        return data

    def to_representation(self, value: Any) -> Any:
        return value


class ExpectedStartOutput(serializers.Serializer[Any]):
    earliest = serializers.CharField()
    latest = serializers.CharField(allow_null=True, help_text="Null: the latest start has no known bound.")


@extend_schema_field(ExpectedStartOutput(allow_null=True))
class ExpectedStartField(serializers.Field[Any, Any, Any, Any]):
    def to_representation(self, value: Job) -> dict[str, str | None] | None:
        return expected_start(value)


class JobInLine(JobOutput):
    queue_position = serializers.IntegerField(
        source="place.position",
        allow_null=True,
        help_text="Position of a waiting job; 1 is the next of its group to start.",
    )
    expected_start = ExpectedStartField(
        source="*", allow_null=True, help_text="When a waiting job starts if no other is submitted; null: unknown."
    )


class TagsField(serializers.ListField):
    child = serializers.CharField(max_length=200)

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=MOST_TAGS, default=list, **options)


class SubmissionInput(StrictSerializer):
    """Fields of everything that submits trainings."""

    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    model = ReferenceField()
    model_version = serializers.IntegerField(
        default=None, allow_null=True, help_text="Version number; absent: the newest."
    )
    dataset = ReferenceField(default=None, allow_null=True, help_text="Leave it out if the script reads no dataset.")
    instance_group = ReferenceField(
        default=None, allow_null=True, help_text="Absent: the only group that you may submit to."
    )
    source = SourceInput(  # type: ignore[assignment]
        default=None, allow_null=True, help_text="Where the code comes from; the training's provenance shows it."
    )


class JobInput(SubmissionInput):
    """A submission; the action checks its fields together and reports all errors at once."""

    parameters = ObjectField(default=dict, help_text="Arguments passed to the script as `--name value`.")
    arguments = serializers.ListField(
        child=serializers.CharField(allow_blank=True, trim_whitespace=False),
        default=list,
        help_text="Arguments after the parameters, in this order.",
    )
    tags = TagsField(help_text="Words without spaces, by which lists filter; stored in lower case.")
    checkpoint = serializers.IntegerField(
        default=None,
        allow_null=True,
        help_text="Id of the checkpoint to resume from. Not with initial_weights.",
    )
    initial_weights = WeightsField(
        default=None,
        allow_null=True,
        help_text="Weights to start from at step 0: id of a job, for its final weights (or its newest "
        'checkpoint\'s); `{"checkpoint": id}`, for those of that checkpoint; or `{"upload": id}`, for a file that was '
        "uploaded: the state_dict as torch.save wrote it, safetensors, or a zip file of what save_pretrained wrote.",
    )

    skip_unusable_requirements = serializers.BooleanField(
        default=False,
        help_text="Go on without the lines of the requirements that cannot be used; an event of the job names them.",
    )

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {**super().get_fields(), **option_fields()}


def option_fields() -> dict[str, serializers.Field[Any, Any, Any, Any]]:
    """Return the fields of a training's options, by name."""
    return {name: _field_of(option) for name, option in OPTIONS.items()}


def _field_of(option: Option) -> serializers.Field[Any, Any, Any, Any]:
    shown: dict[str, Any] = {"label": option.label or None, "help_text": option.help_with("Absent")}
    if option.is_variables:
        return ObjectField(default=dict, **shown)
    if option.most_characters:
        return serializers.CharField(
            default="", allow_blank=True, trim_whitespace=False, max_length=option.most_characters, **shown
        )
    if not option.is_required:
        shown |= {"default": option.default, "allow_null": option.default is None}
    return serializers.ChoiceField(option.choices, **shown) if option.choices else serializers.IntegerField(**shown)


class JobChangeInput(StrictSerializer):
    priority = serializers.IntegerField(required=False)
    max_slots = serializers.IntegerField(required=False)
    min_slots = serializers.IntegerField(
        required=False, help_text="Only for an elastic job that waits or is suspended."
    )
    max_seconds = serializers.IntegerField(
        required=False,
        allow_null=True,
        help_text="Seconds from each start, including the current one; null or 0: no limit.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs:
            raise serializers.ValidationError(
                "Give priority, max_slots, min_slots or max_seconds: nothing else of a job can be changed."
            )
        if "max_seconds" in attrs:
            attrs["max_seconds"] = attrs["max_seconds"] or 0
        return attrs


class JobCloneInput(StrictSerializer):
    exactly = serializers.BooleanField(
        default=False,
        help_text="Whether to run with the versions of Python and all packages that the newest attempt had.",
    )


class JobWaitInput(StrictSerializer):
    minutes = serializers.IntegerField(help_text="Minutes from now; at most a week.")


class MetricQuery(serializers.Serializer[Any]):
    name = serializers.CharField(default="", max_length=64, allow_blank=True, help_text="Absent: all metrics.")
    every = serializers.IntegerField(
        default=None,
        min_value=1,
        max_value=2**31 - 1,
        help_text="Return every n-th value; absent: few enough for a chart.",
    )


class MetricOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    step = serializers.IntegerField()
    epoch = serializers.IntegerField()
    value = serializers.FloatField(allow_null=True, help_text="Null: not a finite number.")
    at = serializers.DateTimeField()


class CheckpointOutput(serializers.ModelSerializer[Checkpoint]):
    versions: serializers.Field[Any, Any, Any, Any] = serializers.StringRelatedField(
        many=True, read_only=True, help_text="Model versions with these weights."
    )

    class Meta:
        model = Checkpoint
        fields = [
            *("id", "attempt", "step", "epoch", "path", "size_bytes", "sha256", "problem", "kept", "created_at"),
            "versions",
        ]
        extra_kwargs = {
            "problem": {"help_text": 'Why no training can resume from it; "": one can.'},
            "kept": {"help_text": "Whether it is kept, even when newer checkpoints are written."},
        }
