"""JSON of a job and its related rows, shared by pages, live events and the API."""

from collections.abc import Sequence, Set
from datetime import UTC, datetime
from functools import cache
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from core.live import without_nan
from core.rest import ObjectField
from core.time import iso
from jobs.models import AllocationPoint, Job, JobEvent, Rank
from jobs.options import OPTIONS, Option, masked
from jobs.states import JobState
from workers.models import Slot

__all__ = [
    "AllocationOutput",
    "EventOutput",
    "JobOutput",
    "JobStateOutput",
    "Moment",
    "RankOutput",
    "ReasonOutput",
    "as_json",
    "changed_fields",
]


def as_json(serializer: type[serializers.Serializer[Any]], row: Any) -> dict[str, Any]:
    """Return the row as serialized, with NaN replaced by None."""
    values: dict[str, Any] = without_nan(_instance(serializer).to_representation(row))
    return values


def changed_fields(serializer: type[serializers.Serializer[Any]], row: Any, columns: Set[str]) -> dict[str, Any]:
    """Return those fields of `as_json` that depend on these columns, of the row or of one that it refers to."""
    found = {}
    for names, field in _by_columns(serializer):
        if names & columns:
            value = field.get_attribute(row)
            found[str(field.field_name)] = None if value is None else field.to_representation(value)
    values: dict[str, Any] = without_nan(found)
    return values


@cache
def _by_columns(serializer: type[serializers.Serializer[Any]]) -> Sequence[tuple[Set[str], Any]]:
    """Return the columns that each field depends on, and the field."""
    fields = _instance(serializer)._readable_fields
    return [({*field.source_attrs[-1:], *getattr(field, "columns", ())}, field) for field in fields]


@cache
def _instance(serializer: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    """Return the serializer's only instance: creating its fields takes longer than using them."""
    return serializer()


class Moment(serializers.DateTimeField):
    def to_representation(self, value: Any) -> Any:
        return iso(value)


class UnixTime(serializers.DateTimeField):
    def to_representation(self, value: Any) -> Any:
        return iso(datetime.fromtimestamp(value, UTC))


class ReasonOutput(serializers.Serializer[Any]):
    code = serializers.CharField()
    params = ObjectField()
    text = serializers.CharField()


class JobErrorOutput(serializers.Serializer[Any]):
    kind = serializers.CharField()
    message = serializers.CharField()
    traceback = serializers.CharField()
    #: Sentence about the attempts.
    tried = serializers.CharField(required=False)
    #: Sentences on what has filled a GPU's memory, where that ended the script.
    memory = serializers.CharField(required=False)


class FilledField(ObjectField):
    """An object field, null if empty."""

    def to_representation(self, value: Any) -> Any:
        return value or None


@extend_schema_field(JobErrorOutput(allow_null=True))
class JobErrorField(FilledField):
    #: Columns of the sentence about the attempts, which the error has from the reason.
    columns = ("reason_params",)


@extend_schema_field(ReasonOutput)
class ReasonField(serializers.Field[Any, Any, Any, Any]):
    """A reason from three attributes of a row; without a name for `params`, the params are empty."""

    def __init__(self, code: str, text: str, params: str = "") -> None:
        super().__init__(source="*")
        self._names = code, text, params
        self.columns = (code, params)

    def to_representation(self, value: Any) -> dict[str, Any]:
        code, text, params = self._names
        shown = getattr(value, params) if params else {}
        return {"code": str(getattr(value, code)), "params": shown, "text": getattr(value, text)}


class _JobNames(serializers.Serializer[Job]):
    id = serializers.IntegerField()
    name = serializers.CharField()
    owner = serializers.CharField(source="owner.username")
    model = serializers.CharField(source="model.model.name")
    dataset = serializers.CharField(source="dataset_name", help_text='"": the script reads none.')
    instance_group = serializers.CharField(source="instance_group.name")


class JobStateOutput(serializers.Serializer[Job]):
    # Fields that change after the submission. No other row is needed for them.
    state = serializers.ChoiceField([state.value for state in JobState])
    reason = ReasonField("reason_code", "reason_text", "reason_params")
    min_slots = serializers.IntegerField()
    max_slots = serializers.IntegerField()
    slots = serializers.IntegerField(source="run.slots", help_text="Current world size.")
    target_slots = serializers.IntegerField(source="run.target_slots", help_text="World size that it is to have.")
    priority = serializers.IntegerField()
    attempt = serializers.IntegerField(source="run.attempt")
    generation = serializers.IntegerField(source="run.generation")
    step = serializers.IntegerField(source="run.step")
    epoch = serializers.IntegerField(source="run.epoch")
    progress = serializers.FloatField(source="run.progress", allow_null=True, help_text="0 to 1; null: unknown.")
    final_metrics = ObjectField(source="run.final_metrics")
    value_sha256 = serializers.CharField(
        source="run.value_sha256",
        allow_null=True,
        help_text="Digest of the value that a function returned, as the site read it when the training succeeded. "
        "Empty: it left none; null: not known.",
    )
    curve_sources = ObjectField(
        source="run.curve_sources",
        help_text="For scripts without a session: metric -> `{kind, where}` of its source; kind is log, csv, "
        "json or tensorboard, and where the stream or file.",
    )
    curve_limits = ObjectField(
        source="run.curve_limits",
        help_text="Parts of the metrics that the curves lack: `names`, number of metrics of a step that were left out; "
        "`gaps`, true if points were written faster than they could be read.",
    )
    error = JobErrorField(allow_null=True)
    started_at = Moment(allow_null=True)
    finished_at = Moment(allow_null=True)


class JobOutput(_JobNames, JobStateOutput):
    ends_at = Moment(
        source="run.ends_at", allow_null=True, help_text="End by the time limit; null without one, or without GPUs."
    )
    submitted_at = Moment()
    tags: serializers.Field[Any, Any, Any, Any] = serializers.StringRelatedField(many=True)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        known = super().get_fields()
        return known | {name: _field_of(option) for name, option in OPTIONS.items() if name not in known}


@extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
class MaskedField(serializers.Field[Any, Any, Any, Any]):
    def to_representation(self, value: dict[str, str]) -> dict[str, str]:
        return masked(value)


def _field_of(option: Option) -> serializers.Field[Any, Any, Any, Any]:
    if option.is_variables:
        return MaskedField(help_text=f"{option.help} Values are masked.")
    if option.most_characters:
        return serializers.CharField(help_text=option.help)
    if option.choices:
        return serializers.ChoiceField(option.choices, help_text=option.help)
    return serializers.IntegerField(allow_null=option.default is None and not option.is_required, help_text=option.help)


class AllocationOutput(serializers.Serializer[AllocationPoint]):
    at = Moment()
    slots = serializers.IntegerField()
    generation = serializers.IntegerField()
    attempt = serializers.IntegerField()
    reason = ReasonField("reason_code", "reason_text")
    pause_ms = serializers.FloatField(allow_null=True)


class EventOutput(serializers.Serializer[JobEvent]):
    seq = serializers.IntegerField()
    old = serializers.CharField()
    new = serializers.CharField()
    reason = ReasonField("reason", "text", "detail")
    actor = serializers.CharField()
    at = Moment()


class GpuOutput(serializers.Serializer[Slot]):
    model = serializers.CharField(source="device_model")
    virtual = serializers.BooleanField(help_text="Simulated by a CPU process.")
    utilisation_percent = serializers.FloatField(source="reading.utilisation_percent", allow_null=True)
    memory_used_bytes = serializers.IntegerField(source="reading.memory_used_bytes", allow_null=True)
    memory_total_bytes = serializers.IntegerField(source="reading.memory_total_bytes", allow_null=True)


class RankOutput(serializers.Serializer[Rank]):
    rank = serializers.IntegerField(allow_null=True)
    member_id = serializers.CharField()
    pid = serializers.IntegerField(help_text="Process id on the host.")
    started_at = UnixTime()
    host = serializers.CharField()
    slot = serializers.IntegerField()
    generation = serializers.IntegerField()
    attempt = serializers.IntegerField()
    state = serializers.CharField()
    exit = FilledField(allow_null=True)
    gpu = GpuOutput(allow_null=True, help_text="Current reading; null for a rank that has ended.")
