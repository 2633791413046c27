"""Changes that users and administrators request. Only pages, the API and WMLA's addresses call these.

submission.py                   submit, clone, run again exactly, validate
submission_checks.py            checks of a submission
job_commands.py, bulk.py        cancel, suspend, resume, wait, change, undo; bulk.py for many jobs
groups.py                       instance groups
saved_filters.py                named filters of the list

Changes that the system makes on its own are in `jobs.control`.
"""

from jobs.actions.job_commands import (
    JobChange,
    cancel,
    change_job,
    keep_idle_gpus,
    resume,
    suspend,
    undo_changes,
    wait_for_ranks,
)
from jobs.actions.submission import Submission, ValidationRequest, clone, run_again_exactly, submit, validate
from jobs.actions.submission_checks import InvalidSubmission

__all__ = [
    "InvalidSubmission",
    "JobChange",
    "Submission",
    "ValidationRequest",
    "cancel",
    "change_job",
    "clone",
    "keep_idle_gpus",
    "resume",
    "run_again_exactly",
    "submit",
    "suspend",
    "undo_changes",
    "validate",
    "wait_for_ranks",
]
