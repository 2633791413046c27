"""Rows of the jobs app, one file per subject. What must never happen is a constraint here."""

from jobs.models.claims import SlotClaim
from jobs.models.events import JobEvent
from jobs.models.generations import AllocationPoint, Generation, Rank
from jobs.models.instance_groups import InstanceGroup
from jobs.models.job_runs import JobRun
from jobs.models.jobs import Job
from jobs.models.leadership import SchedulerLease
from jobs.models.records import Checkpoint, Journal, MetricPoint, Validation
from jobs.models.saved_filters import SavedFilter
from jobs.models.usage import GpuActivity, GpuPrice, UsageBucket, UsageMark, UsageName

__all__ = [
    "AllocationPoint",
    "Checkpoint",
    "Generation",
    "GpuActivity",
    "GpuPrice",
    "InstanceGroup",
    "Job",
    "JobEvent",
    "JobRun",
    "Journal",
    "MetricPoint",
    "Rank",
    "SavedFilter",
    "SchedulerLease",
    "SlotClaim",
    "UsageBucket",
    "UsageMark",
    "UsageName",
    "Validation",
]
