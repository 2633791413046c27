"""Models of the jobs app, one file per subject. Invariants are database constraints in these models."""

from jobs.models.disk import DiskUse
from jobs.models.environments import DefaultEnvironment, HostEnvironment, NamedEnvironment, RequiredEnvironment
from jobs.models.jobs import ChosenCharts, ChosenColumns, InstanceGroup, Job, JobEvent, JobRun, SavedFilter
from jobs.models.profiles import JobProfile, KindSpeedRatio, ThroughputPoint, TimeByCause
from jobs.models.provenance import AttemptSoftware, Environment, JobSource
from jobs.models.queues import GroupQueue, QueuedJob
from jobs.models.runs import (
    AllocationPoint,
    Checkpoint,
    Generation,
    GpuActivity,
    GpuSpans,
    Journal,
    MetricPoint,
    Rank,
    SchedulerLease,
    SlotClaim,
    SubmissionKey,
    TrainedVersion,
    UnstoredEntry,
    Validation,
)
from jobs.models.secrets import Secret, SecretUse
from jobs.models.tags_and_notes import JobTag, Note

__all__ = [
    "AllocationPoint",
    "AttemptSoftware",
    "Checkpoint",
    "ChosenCharts",
    "ChosenColumns",
    "DefaultEnvironment",
    "DiskUse",
    "Environment",
    "Generation",
    "GpuActivity",
    "GpuSpans",
    "GroupQueue",
    "HostEnvironment",
    "InstanceGroup",
    "Job",
    "JobEvent",
    "JobProfile",
    "JobRun",
    "JobSource",
    "JobTag",
    "Journal",
    "KindSpeedRatio",
    "MetricPoint",
    "NamedEnvironment",
    "Note",
    "QueuedJob",
    "Rank",
    "RequiredEnvironment",
    "SavedFilter",
    "SchedulerLease",
    "Secret",
    "SecretUse",
    "SlotClaim",
    "SubmissionKey",
    "ThroughputPoint",
    "TimeByCause",
    "TrainedVersion",
    "UnstoredEntry",
    "Validation",
]
