"""Changes that owners and administrators ask for. Pages, the API and WMLA's addresses call these, and nothing else.

submission.py, checks.py   submit, clone, validate, and what can be wrong with it
owner.py                   cancel, suspend, resume, wait, change, undo; also of many jobs
groups.py                  instance groups
saved_filters.py           names for filters of the list

Changes that the system makes by itself are in `jobs.control`.
"""

from jobs.actions.job_commands import JobChange, cancel, change_job, resume, suspend, undo_changes, wait_for_ranks
from jobs.actions.submission import Submission, ValidationRequest, clone, submit, validate
from jobs.actions.submission_checks import InvalidSubmission

__all__ = [
    "InvalidSubmission",
    "JobChange",
    "Submission",
    "ValidationRequest",
    "cancel",
    "change_job",
    "clone",
    "resume",
    "submit",
    "suspend",
    "undo_changes",
    "validate",
    "wait_for_ranks",
]
