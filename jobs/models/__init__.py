"""Rows of the jobs app, one file per subject. What must never happen is a constraint here."""

from jobs.models.jobs import ChosenColumns, InstanceGroup, Job, JobEvent, JobRun, SavedFilter
from jobs.models.labels import JobTag, Note
from jobs.models.profiles import JobProfile, ThroughputPoint
from jobs.models.replays import Replay
from jobs.models.reports import Report, ReportBlock, ShareLink
from jobs.models.runs import (
    AllocationPoint,
    Checkpoint,
    Generation,
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
from jobs.models.usage import GpuActivity, GpuPrice, UsageBucket, UsageMark, UsageName

__all__ = [
    "AllocationPoint",
    "Checkpoint",
    "ChosenColumns",
    "Generation",
    "GpuActivity",
    "GpuPrice",
    "InstanceGroup",
    "Job",
    "JobEvent",
    "JobProfile",
    "JobRun",
    "JobTag",
    "Journal",
    "MetricPoint",
    "Note",
    "Rank",
    "Replay",
    "Report",
    "ReportBlock",
    "SavedFilter",
    "SchedulerLease",
    "ShareLink",
    "SlotClaim",
    "SubmissionKey",
    "ThroughputPoint",
    "TrainedVersion",
    "UnstoredEntry",
    "UsageBucket",
    "UsageMark",
    "UsageName",
    "Validation",
]
