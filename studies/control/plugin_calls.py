"""Calls of a study's plug-in: submit the training that asks it, read its answer, queue the proposals as trials.

A plug-in is a user's code, so its training is an ordinary one of the study's owner, on one slot. A call's row is
written in the transaction that submits its training, and its trials in the one that marks it as answered; the next call
continues from the state of the last answered one. So the controller may die at any point.
"""

import json
import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone
from tidepool.safe_open import open_regular
from tidepool.search_plugin import ANSWER_FILE, ASK_FILE, STATE_FILE

from core.claims import Claim, ClaimLost
from core.errors import UserError
from core.time import duration
from jobs.actions.job_commands import cancel, rank_in_bundle
from jobs.actions.submission import Submission, submit
from jobs.files.job_folder import job_folder
from jobs.models import Job, SlotClaim
from jobs.states import TERMINAL, TRAINING, JobState
from studies.control.changes import add_trial, set_state
from studies.decision import SCRIPT_ERRORS
from studies.models import PluginCall, Study, Trial
from studies.plugin_answers import MAX_ANSWER_BYTES, BadAnswer, proposals_in
from studies.space import parse_space

__all__ = ["ask_if_due", "end_call", "has_no_more", "settle_call"]

_STATE = PluginCall.State
#: Longest time that a call's training may hold its slot.
_PATIENCE = timedelta(minutes=10)
#: Number of calls in a row that may be lost without a fault of the plug-in.
_MAX_LOST = 3
#: Rank within the study: above all of a pruner's, because trials wait for the call.
_RANK = 1000


def settle_call(claim: Claim[Study], now: datetime) -> bool:
    """Read the answer of the open call, if its training is over; return whether anything has changed.

    Pauses the study if the plug-in failed.
    """
    study = claim.row
    call = _open_call(study)
    if call is None:
        return False
    job = call.job
    if job is None or (job.state == JobState.FAILED and job.reason_code not in SCRIPT_ERRORS):
        return _lost(claim, call)
    if job.state not in TERMINAL:
        return _overdue(claim, call, job, now)
    if job.state != JobState.SUCCEEDED:
        return _failed(claim, call, job.error_words or job.reason_text)
    try:
        points = proposals_in(_answer(job), parse_space(study.space), call.samples)
    except BadAnswer as error:
        return _failed(claim, call, str(error))
    with transaction.atomic():
        _hold(claim)
        for point in points:
            add_trial(study, point, origin=Trial.Origin.SAMPLER)
        _close(call, _STATE.ANSWERED, proposed=len(points))
    return True


def ask_if_due(claim: Claim[Study], samples: int) -> bool:
    """Submit a call for so many proposals unless one is open; return whether it was. Raises UserError if refused.

    After an answer with fewer proposals than were asked for, the plug-in is asked again once it has a result to learn
    from, or no trial is open.
    """
    study = claim.row
    if samples < 1 or has_no_more(study) or _open_call(study) is not None:
        return False
    answered = _answered(study)
    results = _untold(study, answered)
    last = answered[-1] if answered else None
    is_open = study.trials.filter(state__in=(Trial.State.WAITING, Trial.State.RUNNING)).exists()
    if last is not None and last.proposed < last.samples and is_open and not results:
        return False
    if study.plugin is None:
        raise UserError("The plug-in of this study was deleted.")
    number = study.plugin_calls.count()

    def store(job: Job) -> None:
        _hold(claim)
        if study.plugin_calls.count() != number:
            raise ClaimLost(f"Study {study.pk} has changed meanwhile.")
        PluginCall.objects.create(
            study=study,
            number=number,
            job=job,
            samples=samples,
            told=[trial.number for trial in results],
            created_at=timezone.now(),
        )

    job = submit(_submission(study, number, _question(study, samples, results, last)), study.owner, store)
    rank_in_bundle(job.pk, _RANK)
    return True


def has_no_more(study: Study) -> bool:
    """Return whether the plug-in has answered that it proposes no more values."""
    return study.plugin_calls.filter(state=_STATE.ANSWERED, proposed=0).exists()


def end_call(study: Study) -> bool:
    """Stop the open call of a study that is over; return whether there was one."""
    call = _open_call(study)
    if call is None:
        return False
    if call.job is not None and call.job.state not in TERMINAL:
        cancel(call.job.pk, study.owner.get_username())
    _close(call, _STATE.FAILED)
    return True


def _open_call(study: Study) -> PluginCall | None:
    calls = study.plugin_calls.filter(state=_STATE.ASKED)
    return calls.select_related("job__run", "job__owner", "job__model__model").first()


def _answered(study: Study) -> list[PluginCall]:
    calls = study.plugin_calls.filter(state=_STATE.ANSWERED).order_by("number")
    return list(calls.select_related("job__run", "job__owner", "job__model__model"))


def _untold(study: Study, answered: Sequence[PluginCall]) -> list[Trial]:
    """Return the trials that are over, of which no answered call was told. Only those that the plug-in proposed."""
    told = {number for call in answered for number in call.told}
    over = study.trials.exclude(state__in=(Trial.State.WAITING, Trial.State.RUNNING)).exclude(
        repeated_by__origin=Trial.Origin.REPEAT
    )
    proposed = over.filter(origin__in=(Trial.Origin.SAMPLER, Trial.Origin.REPEAT)).order_by("number")
    return [trial for trial in proposed if trial.number not in told]


def _question(study: Study, samples: int, results: Sequence[Trial], last: PluginCall | None) -> dict[str, Any]:
    assert study.plugin is not None
    state = None if last is None or last.job is None else str(_results_of(last.job) / STATE_FILE)
    return {
        "name": study.plugin.name,
        "hyper_parameters": study.plugin_arguments.get("hyper_parameters", []),
        "options": study.plugin_arguments.get("options", {}),
        "objective": study.goal,
        "metric": study.metric,
        "log_level": study.plugin.log_level,
        "samples": samples,
        "results": [_result(trial) for trial in results],
        "state": state,
    }


def _result(trial: Trial) -> dict[str, Any]:
    """Return an experiment that has ended, in WMLA's words; `values` has the values in their own types."""
    return {
        "id": trial.number,
        "state": "FAILED" if trial.state == Trial.State.FAILED else "FINISHED",
        "metricVal": trial.value,
        "values": trial.values,
        "hyperParams": [{"name": name, "fixedVal": str(value)} for name, value in trial.values.items()],
    }


def _submission(study: Study, number: int, question: dict[str, Any]) -> Submission:
    assert study.plugin is not None
    return Submission(
        name=f"{study.name[:200]}, proposals {number + 1}",
        model=study.plugin.code,
        instance_group=study.instance_group.name,
        max_slots=1,
        priority=study.options.get("priority"),
        tags=(f"study-{study.pk}",),
        code_files={ASK_FILE: json.dumps(question)},
        bundle=study.pk,
    )


def _results_of(job: Job) -> Any:
    return job_folder(job).attempt(job.run.attempt)


def _answer(job: Job) -> bytes:
    descriptor = open_regular(_results_of(job) / ANSWER_FILE)
    if descriptor is None:
        raise BadAnswer("its training ended without an answer.")
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(MAX_ANSWER_BYTES + 1)


def _overdue(claim: Claim[Study], call: PluginCall, job: Job, now: datetime) -> bool:
    since = SlotClaim.objects.open().filter(job=job, claimed_at__lte=now - _PATIENCE)
    if job.state not in TRAINING or not since.exists():
        return False
    cancel(job.pk, claim.row.owner.get_username())
    return _failed(claim, call, f"it has not answered within {duration(_PATIENCE.total_seconds())}.")


def _lost(claim: Claim[Study], call: PluginCall) -> bool:
    """Close a call that was lost without a fault of the plug-in. It is repeated, but not forever."""
    newest = claim.row.plugin_calls.filter(number__lt=call.number).order_by("-number")[: _MAX_LOST - 1]
    if len(newest) == _MAX_LOST - 1 and all(earlier.is_lost for earlier in newest):
        return _failed(claim, call, call.job.reason_text if call.job else "its training was deleted.")
    with transaction.atomic():
        _hold(claim)
        _close(call, _STATE.FAILED, is_lost=True)
    return True


@transaction.atomic
def _failed(claim: Claim[Study], call: PluginCall, why: str) -> bool:
    """Close the call, and pause the study with the reason."""
    study = claim.row
    _hold(claim)
    _close(call, _STATE.FAILED)
    name = "" if study.plugin is None else f" {study.plugin.name}"
    sentence = f"The plug-in{name} failed: {why}"
    return set_state(study, Study.State.PAUSED, sentence, only=[Study.State.RUNNING], plugin_failed=True)


def _close(call: PluginCall, state: str, **columns: Any) -> None:
    PluginCall.objects.filter(pk=call.pk, state=_STATE.ASKED).update(state=state, **columns)


def _hold(claim: Claim[Study]) -> None:
    """Lock the study in the caller's transaction. Raises ClaimLost if it has changed since it was claimed."""
    held = Study.objects.select_for_update().filter(pk=claim.row.pk, claim=claim.token, state=Study.State.RUNNING)
    if not held.exists():
        raise ClaimLost(f"Study {claim.row.pk} has changed meanwhile.")
