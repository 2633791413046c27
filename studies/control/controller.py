"""Turns of the controller: settle trials, judge them at the pruner's rungs, submit, pause, finish.

A turn holds the study's claim. All state is in the rows, so the controller may die at any point: a trial's row is
created in the transaction that submits its training.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from core.claims import Claim, ClaimLost, Claims
from core.errors import UserError
from jobs.actions.job_commands import cancel, prune, rank_in_bundle
from jobs.models import Job
from jobs.states import TERMINAL, Reason
from studies.control.changes import changed, set_state
from studies.control.plugin_calls import ask_if_due, end_call, has_no_more, settle_call
from studies.control.settlement import MAX_WHY, settle
from studies.decision import (
    ERRORS_IN_A_ROW,
    Ending,
    Limits,
    Progress,
    places,
    why_finished,
    why_paused,
)
from studies.importance import importance
from studies.measures import gpu_seconds, measured_at, measured_by_results, reported_names
from studies.models import PLUGIN, PluginCall, Study, Trial
from studies.pruners import Verdict, judge, others_at, rungs_of, value_at
from studies.rows import best_trial, counted_trials, goal_of, past_trials, read_number, search_of, stored_number
from studies.samplers import PastTrial, propose
from studies.submission import at_once_of, submit_trial
from studies.words import best_sentence

__all__ = ["active_studies", "take_turn"]

logger = logging.getLogger(__name__)

_CLAIMS = Claims(
    Study,
    duration=timedelta(seconds=60),
    waiting={"claim": ""},
    related=("owner", "model__model", "dataset__dataset", "instance_group__resource_group", "plugin__code__model"),
)
#: Growth of the number of finished trials after which the importance of the parameters is computed again: it takes up
#: to a second for 1,000 trials.
_IMPORTANCE_GROWTH = 1.05
_WHOLE_GRID = "Every point of the grid has been tried."
_NO_MORE_PROPOSALS = "The plug-in proposes no more values."


def active_studies() -> QuerySet[Study]:
    """Return the studies that need turns: those that submit trials, and those with trials that are not settled."""
    unsettled = Trial.objects.filter(study=OuterRef("pk"), state=Trial.State.RUNNING)
    asked = PluginCall.objects.filter(study=OuterRef("pk"), state=PluginCall.State.ASKED)
    is_left = Q(state__in=(Study.State.FINISHED, Study.State.STOPPED)) & Exists(asked)
    return Study.objects.filter(Q(state=Study.State.RUNNING) | Exists(unsettled) | is_left).order_by("pk")


def take_turn(study: int, now: datetime) -> bool:
    """Do what is due for one study; return whether anything changed. No effect while another controller has it."""
    claim = _CLAIMS.claim(study, now)
    if claim is None:
        return False
    try:
        has_changed = _turn(claim, now)
        _CLAIMS.finish(claim)
    except ClaimLost as error:
        logger.info("%s", error)
        return False
    except BaseException:
        Study.objects.filter(pk=study, claim=claim.token).update(claim="", claimed_until=None)
        raise
    if has_changed:
        _keep_importance(claim.row)
        changed(study)
    return has_changed


def _turn(claim: Claim[Study], now: datetime) -> bool:
    study = claim.row
    running = list(
        study.trials.filter(state=Trial.State.RUNNING, job__isnull=False).select_related(
            "job__run", "job__owner", "job__model__model"
        )
    )
    over = [trial for trial in running if _job(trial).state in TERMINAL]
    training = [trial for trial in running if trial not in over]
    endings = [settle(study, trial, now) for trial in over]
    has_changed = bool(over)
    if study.is_over:
        for trial in training:
            cancel(_job(trial).pk, study.owner.get_username())
        return end_call(study) or has_changed
    for trial in training if study.pruner != "none" else ():
        has_changed = _judge_rungs(study, trial, now) or has_changed
    if study.state == Study.State.RUNNING:
        has_changed = _pause_or_go_on(claim, over, endings, now) or has_changed
    return has_changed


def _job(trial: Trial) -> Job:
    assert trial.job is not None
    return trial.job


def _pause_or_go_on(claim: Claim[Study], over: Sequence[Trial], endings: Sequence[Ending], now: datetime) -> bool:
    study = claim.row
    if sentence := _why_paused(study, over, endings):
        return set_state(study, Study.State.PAUSED, sentence, only=[Study.State.RUNNING])
    is_settled = study.sampler == PLUGIN and settle_call(claim, now)
    if study.state != Study.State.RUNNING:
        return is_settled
    limits, progress = _limits(study), _progress(study, now)
    if not (sentence := why_finished(limits, progress)):
        has_changed, is_exhausted = _submit_trials(claim, limits, progress)
        if has_changed or not is_exhausted:
            return has_changed or is_settled
        exhausted = _NO_MORE_PROPOSALS if study.sampler == PLUGIN else _WHOLE_GRID
        sentence = why_finished(limits, replace(progress, exhausted=exhausted))
    if not sentence:
        return is_settled
    reason = f"{sentence} {best_sentence(study, best_trial(study))}"
    return set_state(study, Study.State.FINISHED, reason, only=[Study.State.RUNNING])


def _keep_importance(study: Study) -> None:
    """Compute the importance of the parameters again if enough trials have finished since, or the study is over."""
    finished = study.trials.filter(state=Trial.State.COMPLETE).count()
    is_due = finished >= _IMPORTANCE_GROWTH * study.importance_trials or study.is_over
    if finished > study.importance_trials and is_due:
        found = importance(search_of(study), past_trials(study))
        Study.objects.filter(pk=study.pk).update(importance=found, importance_trials=finished)


def _limits(study: Study) -> Limits:
    return Limits(
        trials=study.trials_wanted,
        seconds=None if study.max_minutes is None else 60.0 * study.max_minutes,
        gpu_seconds=None if study.max_gpu_hours is None else 3600.0 * study.max_gpu_hours,
    )


def _progress(study: Study, now: datetime) -> Progress:
    is_open = Q(state__in=(Trial.State.WAITING, Trial.State.RUNNING))
    used = 0.0
    if study.max_gpu_hours is not None:
        used = gpu_seconds(study, now)
    return Progress(
        counted=counted_trials(study).count(),
        open=study.trials.filter(is_open).count(),
        seconds=(now - study.created_at).total_seconds(),
        gpu_seconds=used,
    )


def _why_paused(study: Study, over: Sequence[Trial], endings: Sequence[Ending]) -> str:
    if not over or study.trials.filter(state__in=(Trial.State.COMPLETE, Trial.State.PRUNED)).exists():
        return ""
    lacking = [trial for trial, ending in zip(over, endings, strict=True) if ending.lacks_metric]
    newest = study.trials.filter(state=Trial.State.FAILED).order_by("-finished_at", "-number")[:ERRORS_IN_A_ROW]
    errors = [trial.why for trial in newest if trial.is_script_error][::-1]
    return why_paused(
        metric=study.metric,
        lacks_metric=bool(lacking),
        reported=reported_names(_job(lacking[-1])) if lacking else [],
        errors=errors,
    )


def _judge_rungs(study: Study, trial: Trial, now: datetime) -> bool:
    """Judge the trial at each rung that it has reached; return whether it reached one."""
    job, has_changed = _job(trial), False
    rungs = rungs_of(study.pruner, trial.number, study.seed)
    while trial.rung < len(rungs):
        rung = rungs[trial.rung]
        measured = measured_by_results(job, study, rung)
        if measured is None:
            measured = measured_at(job, study.metric, rung)
        if measured is None:
            break
        has_changed = True
        trial.reported = [*trial.reported, [rung, stored_number(measured)]]
        trial.rung += 1
        verdict = _verdict(study, trial, rung)
        if verdict.prunes:
            _prune(study, trial, verdict.sentence, measured, now)
            break
        same = study.trials.filter(pk=trial.pk, state=Trial.State.RUNNING, study__metric=study.metric)
        same.update(reported=trial.reported, rung=trial.rung)
        rank_in_bundle(job.pk, trial.rung)
    return has_changed


def _verdict(study: Study, trial: Trial, rung: float) -> Verdict:
    goal, past = goal_of(study), past_trials(study)
    own = replace(past[trial.number], reported={at: read_number(value) for at, value in trial.reported})
    value = value_at(study.pruner, goal, rung, own.reported)
    assert value is not None
    others = others_at(study.pruner, goal, rung, own, past, seed=study.seed)
    return judge(study.pruner, goal, rung, value, others)


@transaction.atomic
def _prune(study: Study, trial: Trial, sentence: str, value: float, now: datetime) -> None:
    job = prune(_job(trial).pk, sentence)
    if job.reason_code != Reason.PRUNED:
        return  # the training ended first: it is settled in the next turn
    study.trials.filter(pk=trial.pk, state=Trial.State.RUNNING).update(
        state=Trial.State.PRUNED,
        value=stored_number(value),
        reported=trial.reported,
        rung=trial.rung,
        why=sentence[:MAX_WHY],
        finished_at=now,
    )


def _submit_trials(claim: Claim[Study], limits: Limits, progress: Progress) -> tuple[bool, bool]:
    """Submit as many trials as there are places; return whether any was, and whether the space is exhausted."""
    study, has_changed = claim.row, False
    queued = list(study.trials.filter(state=Trial.State.WAITING).order_by("number"))
    at_once = at_once_of(study)
    submitted = progress.open - len(queued)
    for trial in queued[: max(0, at_once - submitted)]:
        has_changed = _submit(claim, trial) or has_changed
        if study.state != Study.State.RUNNING:
            return True, False
    left = places(limits, progress, at_once)
    if study.sampler == PLUGIN:
        return _ask_plugin(claim, left) or has_changed, has_no_more(study)
    past = past_trials(study) if left else []
    for _ in range(left):
        number = past[-1].number + 1 if past else 0
        proposal = propose(search_of(study), past, number)
        if proposal is None:
            return has_changed, True
        trial = Trial(study=study, number=number, values=proposal.values, attributes=proposal.attributes)
        if not _submit(claim, trial):
            return has_changed or study.state != Study.State.RUNNING, False
        past.append(PastTrial(number, proposal.values, "running", None, {}, proposal.attributes))
        has_changed = True
        _CLAIMS.renew(claim, timezone.now())
    return has_changed, False


def _ask_plugin(claim: Claim[Study], samples: int) -> bool:
    """Ask the plug-in for proposals; return whether anything has changed. Pauses the study if that is refused."""
    try:
        return ask_if_due(claim, samples)
    except UserError as error:
        sentence = f"The plug-in cannot be asked for values: {error.message}"
        return set_state(claim.row, Study.State.PAUSED, sentence, only=[Study.State.RUNNING], plugin_failed=True)


def _submit(claim: Claim[Study], trial: Trial) -> bool:
    """Submit one trial; pause the study and return False if its training is refused."""
    try:
        submit_trial(claim, trial)
    except UserError as error:
        sentence = f"Trial {trial.number} cannot be submitted: {error.message}"
        set_state(claim.row, Study.State.PAUSED, sentence, only=[Study.State.RUNNING])
        return False
    return True
