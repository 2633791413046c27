"""Everything that changes a job, a claim or what is known of a host: the only writers of these rows.

submission.py, checks.py   submit, clone, and what can be wrong with it
validation.py              validate: queue a run that measures a trained model
owner.py                   cancel, suspend, resume
bulk.py                    the same for many jobs
saved_filters.py           names for filters of the list
wishes.py                  change and undo the change of priority, most and fewest GPUs
plans.py, lifecycle.py     apply a plan: start, resize, preempt
hosts.py, journals.py, metrics.py, judgement.py   what reports of executors change
ending.py, lost_hosts.py, standstill.py   how jobs end or are queued again
restoring.py               what a database older than the folders has to learn from them
transition.py, claims.py, allocation.py   the steps that all of these are made of
"""

from jobs.actions.checks import InvalidSubmission
from jobs.actions.claims import ClaimLost, release_claims
from jobs.actions.ending import (
    finish_cancelled,
    finish_failed,
    finish_succeeded,
    requeue,
    requeue_interrupted,
)
from jobs.actions.lifecycle import mark_running, preempt, resize, start
from jobs.actions.owner import cancel, resume, suspend
from jobs.actions.restoring import catch_up_with_folders
from jobs.actions.standstill import slots_in_use, stop_trainings
from jobs.actions.submission import Submission, clone, submit
from jobs.actions.transition import StaleJob, Why
from jobs.actions.validation import ValidationRequest, validate
from jobs.actions.wishes import Wish, change_max_slots, change_priority, change_wish, undo_change, undo_changes

__all__ = [
    "ClaimLost",
    "InvalidSubmission",
    "StaleJob",
    "Submission",
    "ValidationRequest",
    "Why",
    "Wish",
    "cancel",
    "catch_up_with_folders",
    "change_max_slots",
    "change_priority",
    "change_wish",
    "clone",
    "finish_cancelled",
    "finish_failed",
    "finish_succeeded",
    "mark_running",
    "preempt",
    "release_claims",
    "requeue",
    "requeue_interrupted",
    "resize",
    "resume",
    "slots_in_use",
    "start",
    "stop_trainings",
    "submit",
    "suspend",
    "undo_change",
    "undo_changes",
    "validate",
]
