"""Shapes of jobs and instance groups in the API. Jobs are written by `jobs.queries`, so that pages and events agree."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.actions.beginning import Weights
from jobs.actions.groups import InstanceGroupSpec
from jobs.actions.submission import Submission
from jobs.logs import LogPiece
from jobs.models import Checkpoint, InstanceGroup, Job
from jobs.queries import job_as_json
from jobs.states import JobState
from webapp.lib.rest import ObjectField, ReferenceField

__all__ = [
    "AllocationOutput",
    "CheckpointOutput",
    "EventOutput",
    "InstanceGroupInput",
    "InstanceGroupOutput",
    "JobChange",
    "JobInput",
    "JobOutput",
    "LogOutput",
    "LogQuery",
    "MetricOutput",
    "MetricQuery",
    "RankOutput",
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
        ]
    }
)
class WeightsField(serializers.Field[Weights, Any, Any, Any]):
    """Whose weights. Whether there are such is the action's business."""

    default_error_messages = {
        "invalid": 'Give the number of a job, or {{"checkpoint": its number}} for those of one checkpoint.'
    }

    def to_internal_value(self, data: Any) -> Weights:
        if isinstance(data, str) and data.isascii() and data.isdecimal() and len(data) < 20:
            data = int(data)  # from a form
        if isinstance(data, bool) or not isinstance(data, int | dict):
            self.fail("invalid")
        return data

    def to_representation(self, value: Any) -> Any:
        return value


class JobInput(serializers.Serializer[Submission]):
    """What fits together is judged by the action, which says everything that is wrong at once."""

    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    model = ReferenceField()
    dataset = ReferenceField()
    instance_group = ReferenceField()
    min_slots = serializers.IntegerField(default=1)
    max_slots = serializers.IntegerField()
    priority = serializers.IntegerField(default=None, allow_null=True, help_text="1 to 10000.")
    parameters = ObjectField(default=dict, help_text="Each reaches the script as `--name value`.")
    exactness = serializers.ChoiceField(
        Job.Exactness.choices,
        default=Job.Exactness.SUM,
        help_text="What a resize may change: the rounding of sums, and what looks at a GPU's batch; or not one bit.",
    )
    virtual_ranks = serializers.IntegerField(
        default=None,
        allow_null=True,
        help_text="In `bitwise`: parts of each step, at least max_slots, fixed for the job. Absent: the least power of "
        "two that is enough.",
    )
    effective_batch_size = serializers.IntegerField(
        default=None,
        allow_null=True,
        help_text="Samples per step over all GPUs, however many there are. Absent: as the script says.",
    )
    seed = serializers.IntegerField(default=0, help_text="Of the order of samples and of random numbers in steps.")
    checkpoint = serializers.IntegerField(
        default=None,
        allow_null=True,
        help_text="Id of one to continue, with all of its state. Not with initial_weights.",
    )
    initial_weights = WeightsField(
        default=None,
        allow_null=True,
        help_text="Begin at step 0 with these weights: id of a job, for those it ended with (else its newest "
        'checkpoint\'s); or `{"checkpoint": id}`, for those of that checkpoint.',
    )
    checkpoint_seconds = serializers.IntegerField(
        default=None,
        allow_null=True,
        help_text="Most seconds between two checkpoints; 0: none but at a halt. Absent: as the script says, or 60.",
    )
    checkpoints_kept = serializers.IntegerField(
        default=None,
        allow_null=True,
        help_text="How many of the newest checkpoints stay, 1 to 1000. Absent: as the script says, or 2.",
    )

    def submission(self) -> Submission:
        return Submission(**self.validated_data)


class JobChange(serializers.Serializer[Any]):
    priority = serializers.IntegerField(required=False)
    max_slots = serializers.IntegerField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs:
            raise serializers.ValidationError("Give priority, max_slots or both: nothing else of a job can be changed.")
        return attrs


class ReasonOutput(serializers.Serializer[Any]):
    code = serializers.CharField()
    params = ObjectField()
    text = serializers.CharField()


class JobErrorOutput(serializers.Serializer[Any]):
    kind = serializers.CharField()
    message = serializers.CharField()
    traceback = serializers.CharField()
    #: About its attempts.
    tried = serializers.CharField(required=False)


class JobOutput(serializers.Serializer[Job]):
    id = serializers.IntegerField()
    name = serializers.CharField()
    owner = serializers.CharField()
    model = serializers.CharField()
    dataset = serializers.CharField()
    instance_group = serializers.CharField()
    state = serializers.ChoiceField([state.value for state in JobState])
    reason = ReasonOutput()
    min_slots = serializers.IntegerField()
    max_slots = serializers.IntegerField()
    slots = serializers.IntegerField(help_text="World size now.")
    target_slots = serializers.IntegerField()
    priority = serializers.IntegerField()
    incarnation = serializers.IntegerField()
    generation = serializers.IntegerField()
    step = serializers.IntegerField()
    epoch = serializers.IntegerField()
    progress = serializers.FloatField(allow_null=True)
    exactness = serializers.ChoiceField(Job.Exactness.choices)
    virtual_ranks = serializers.IntegerField(allow_null=True, help_text="Parts of each step in `bitwise`.")
    final_metrics = ObjectField()
    error = JobErrorOutput(allow_null=True)
    submitted_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)

    def to_representation(self, instance: Job) -> dict[str, Any]:
        return job_as_json(instance)


class AllocationOutput(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    slots = serializers.IntegerField()
    generation = serializers.IntegerField()
    incarnation = serializers.IntegerField()
    reason = ReasonOutput()
    pause_ms = serializers.FloatField(allow_null=True)


class RankOutput(serializers.Serializer[Any]):
    rank = serializers.IntegerField(allow_null=True)
    wid = serializers.CharField()
    pid = serializers.IntegerField(help_text="As on the host.")
    started_at = serializers.DateTimeField()
    host = serializers.CharField()
    slot = serializers.IntegerField()
    generation = serializers.IntegerField()
    incarnation = serializers.IntegerField()
    state = serializers.CharField()
    exit = ObjectField(allow_null=True)


class EventOutput(serializers.Serializer[Any]):
    seq = serializers.IntegerField()
    old = serializers.CharField()
    new = serializers.CharField()
    reason = ReasonOutput()
    actor = serializers.CharField()
    at = serializers.DateTimeField()


class MetricQuery(serializers.Serializer[Any]):
    name = serializers.CharField(default="", max_length=64, allow_blank=True, help_text="Absent: all metrics.")
    every = serializers.IntegerField(
        default=None, min_value=1, max_value=2**31 - 1, help_text="Each n-th step; absent: few enough for a chart."
    )


class MetricOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    step = serializers.IntegerField()
    epoch = serializers.IntegerField()
    value = serializers.FloatField(allow_null=True)
    at = serializers.DateTimeField()


class LogQuery(serializers.Serializer[Any]):
    rank = serializers.CharField(
        default="", allow_blank=True, max_length=128, help_text="Rank id or number; absent: rank 0."
    )
    stream = serializers.ChoiceField(["stdout", "stderr"], default="stdout")
    after = serializers.IntegerField(
        default=None, min_value=0, max_value=2**62, help_text="Byte offset; absent: the end of the log."
    )


class LogOutput(serializers.Serializer[LogPiece]):
    rank = serializers.CharField(allow_null=True)
    stream = serializers.CharField()
    text = serializers.CharField()
    next = serializers.IntegerField(help_text="Offset to ask for next.")


class CheckpointOutput(serializers.ModelSerializer[Checkpoint]):
    class Meta:
        model = Checkpoint
        fields = ["id", "incarnation", "step", "epoch", "path", "size_bytes", "sha256", "problem", "created_at"]


class InstanceGroupInput(serializers.Serializer[InstanceGroupSpec]):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    resource_group = ReferenceField()
    policy = serializers.ChoiceField(InstanceGroup.Policy.choices, default=InstanceGroup.Policy.FAIRSHARE)
    preemption = serializers.BooleanField(default=False)
    default_priority = serializers.IntegerField(default=5000)

    def spec(self) -> InstanceGroupSpec:
        return InstanceGroupSpec(**self.validated_data)


class InstanceGroupOutput(serializers.ModelSerializer[InstanceGroup]):
    resource_group = serializers.CharField(source="resource_group.name")

    class Meta:
        model = InstanceGroup
        fields = ["id", "name", "resource_group", "policy", "preemption", "default_priority", "created_at"]
