"""Everything that changes a job, a claim or what is known of a host: the only writers of these rows.

submission.py, checks.py   submit, clone, and what can be wrong with it
owner.py                   cancel, suspend, resume, change_priority, change_max_slots
plans.py, lifecycle.py     apply a plan: start, resize, preempt
hosts.py, journals.py, metrics.py, judgement.py   what reports of executors change
ending.py, lost_hosts.py   how jobs end or are queued again
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
from jobs.actions.owner import cancel, change_max_slots, change_priority, resume, suspend
from jobs.actions.submission import Submission, clone, submit
from jobs.actions.transition import StaleJob, Why

__all__ = [
    "ClaimLost",
    "InvalidSubmission",
    "StaleJob",
    "Submission",
    "Why",
    "cancel",
    "change_max_slots",
    "change_priority",
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
    "start",
    "submit",
    "suspend",
]
