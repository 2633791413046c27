"""Changes that owners and administrators ask for. Pages, the API and WMLA's addresses call these, and nothing else.

submission.py, checks.py   submit, clone, and what can be wrong with it
validation.py              validate: queue a run that measures a trained model
owner.py                   cancel, suspend, resume
bulk.py                    the same for many jobs
change.py                  change and undo the change of priority, most and fewest GPUs
groups.py, group_checks.py instance groups
saved_filters.py           names for filters of the list

Changes that the system makes by itself are in `jobs.control`.
"""

from jobs.actions.change import JobChange, change_job, change_max_slots, change_priority, undo_change, undo_changes
from jobs.actions.checks import InvalidSubmission
from jobs.actions.owner import cancel, resume, suspend
from jobs.actions.submission import Submission, clone, submit
from jobs.actions.validation import ValidationRequest, validate

__all__ = [
    "InvalidSubmission",
    "JobChange",
    "Submission",
    "ValidationRequest",
    "cancel",
    "change_job",
    "change_max_slots",
    "change_priority",
    "clone",
    "resume",
    "submit",
    "suspend",
    "undo_change",
    "undo_changes",
    "validate",
]
