"""Changes of studies by their owners and administrators. The controller's own changes are in `studies.control`."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from core.audit.authors import authors_of
from core.audit.entries import audit
from core.edits import UNSEEN, Seen
from core.errors import Conflict, NotFound, UserError, field_error
from core.parameters import checked_parameters
from core.text import is_storable
from datasets.models import DatasetVersion
from jobs.actions.job_commands import JobChange, cancel, change_job
from jobs.actions.source import Source
from jobs.actions.submission import Checked, Submission, check
from jobs.actions.submission_checks import InvalidSubmission, Problems, check_priority
from jobs.options import OPTIONS
from jobs.permissions import Refused
from jobs.states import TERMINAL, JobState
from models_registry.models import RegisteredModelVersion
from studies.control.changes import add_trial, changed, set_state
from studies.control.plugin_calls import end_call
from studies.control.settlement import judge_again
from studies.models import MAX_TRIALS, PLUGIN, PluginCall, SearchPlugin, Study, Trial
from studies.pruners import PRUNERS
from studies.queries import find_study
from studies.rows import best_trial, search_of
from studies.samplers import SAMPLERS, check_search
from studies.space import Space, checked_point, parse_space, some_point, space_as_json
from studies.submission import arguments_from
from studies.trials import Search
from studies.words import best_sentence

__all__ = [
    "CheckedStudy",
    "StudyChange",
    "StudyRequest",
    "change_study",
    "check_study",
    "create_study",
    "delete_study",
    "enqueue",
    "more_seeds",
    "pause",
    "restart",
    "resume",
    "stop",
]

#: Kind of the object in the audit log.
KIND = "study"
_MAX_SEEDS = 20
_MAX_METRIC = 200
_WORDS: Mapping[str, Sequence[str]] = {
    "goal": Study.Goal.values,
    "value_of": Study.ValueOf.values,
    "pruner": PRUNERS,
}
_OPEN = (Study.State.RUNNING, Study.State.PAUSED)


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """A study as requested by a user. References are names or ids, or for model and dataset a version."""

    name: str
    model: int | str | RegisteredModelVersion
    model_version: int | None = None
    dataset: int | str | DatasetVersion | None = None
    instance_group: int | str | None = None
    #: Space in the notation of `studies.space.parse_space`.
    space: Any
    metric: str
    goal: str
    value_of: str = Study.ValueOf.LAST
    sampler: str = "tpe"
    sampler_options: Mapping[str, float] = field(default_factory=dict)
    #: Plug-in that proposes the values, in place of a sampler, and its arguments; see `Study`.
    plugin: SearchPlugin | None = None
    plugin_arguments: Mapping[str, Any] = field(default_factory=dict)
    pruner: str = "none"
    seed: int = 0
    #: Limits; None: no limit.
    trials: int | None = None
    minutes: int | None = None
    gpu_hours: float | None = None
    at_once: int | None = None
    #: Parameters that are the same in every trial, and arguments behind all parameters.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    #: Tags of the trainings beside the study's own.
    tags: Sequence[str] = ()
    #: Values of `jobs.options.Options` by name.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Values of trials that are queued with the study. The space may have more parameters than a trial.
    queued: Sequence[Mapping[str, Any]] = ()
    #: Interface of the request, and what its answers repeat: see `Study`.
    dialect: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)
    #: Origin of the code; None: unknown.
    source: Source | None = None


@dataclass(frozen=True)
class CheckedStudy:
    """A study without errors, not stored yet."""

    study: Study
    search: Search
    #: The first trial, checked like every training.
    first: Checked
    #: Sentences that the user should know beforehand.
    notices: Sequence[str]


@dataclass(frozen=True)
class StudyChange:
    """New values of a study; None keeps the current value, and 0 removes a limit."""

    trials: int | None = None
    at_once: int | None = None
    minutes: int | None = None
    gpu_hours: float | None = None
    priority: int | None = None
    metric: str | None = None
    goal: str | None = None
    value_of: str | None = None


def check_study(given: StudyRequest, owner: User) -> CheckedStudy:
    """Check a study and its first trial. Raises InvalidSubmission with a sentence for each invalid field."""
    problems = Problems()
    name = problems.checked_name(given.name)
    parameters = _checked_parameters(problems, given.parameters)
    space = _checked_space(problems, given, parameters)
    _check_words(problems, given)
    _check_limits(problems, given)
    study = Study(
        name=name or "study",
        owner=owner,
        parameters=parameters,
        arguments=list(given.arguments),
        tags=list(given.tags),
        options=dict(given.options),
        space=space_as_json(space),
        metric=given.metric.strip(),
        goal=given.goal,
        value_of=given.value_of,
        sampler=given.sampler if given.plugin is None else PLUGIN,
        plugin=given.plugin,
        plugin_arguments=dict(given.plugin_arguments),
        sampler_options=dict(given.sampler_options),
        pruner=given.pruner,
        seed=given.seed,
        trials_wanted=given.trials,
        max_minutes=given.minutes,
        max_gpu_hours=given.gpu_hours,
        at_once=given.at_once,
        dialect=given.dialect,
        asked=dict(given.asked),
        source={} if given.source is None else vars(given.source.cleaned),
    )
    problems.raise_if_any()
    search = search_of(study)
    # Neither a list of trials nor a plug-in needs a sampler.
    notices = [] if given.queued or given.plugin else _checked_search(search, given)
    values = given.queued[0] if given.queued else some_point(space)
    first = _checked_first(given, arguments_from(study, values), owner)
    study.model, study.dataset, study.instance_group = first.model, first.dataset, first.group
    return CheckedStudy(study, search, first, notices)


def create_study(given: StudyRequest, owner: User) -> Study:
    """Store a study; the controller submits its trials. Raises like `check_study`."""
    study = check_study(given, owner).study
    study.created_at = now = timezone.now()
    study.reason = "Trials are submitted as GPUs become free."
    with transaction.atomic():
        study.save(force_insert=True)
        Trial.objects.bulk_create(
            Trial(study=study, number=number, values=dict(values), origin=Trial.Origin.USER, created_at=now)
            for number, values in enumerate(given.queued)
        )
    return study


@transaction.atomic
def change_study(user: User, study_id: int, wanted: StudyChange, seen: Seen = UNSEEN) -> Study:
    """Change limits, the priority or the compared metric. A higher limit continues a finished study.

    seen: of the metric, its goal and which of its values counts.
    """
    study = _locked(user, study_id)
    limits, compared = _changed_limits(wanted), _changed_metric(study, wanted)
    present = {name: getattr(study, name) for name in compared}
    compared = seen.merged(compared, present, lambda: authors_of(KIND, study.pk))
    columns = limits | compared
    before = {name: getattr(study, name) for name in columns}
    for name, value in columns.items():
        setattr(study, name, value)
    if wanted.priority is not None:
        problems = Problems()
        check_priority(problems, wanted.priority, study.instance_group)
        problems.raise_if_any()
        study.options = {**study.options, "priority": wanted.priority}
        columns["options"] = study.options
    Study.objects.filter(pk=study.pk).update(**columns)
    if compared:
        judge_again(study)
    if study.state == Study.State.FINISHED and limits:
        _continue(user, study, "Continues with higher limits.")
    _audit(user, study, "changed", before, {name: columns[name] for name in before})
    changed(study.pk)
    if wanted.priority is not None:
        # After the commit: trainings are locked before their study elsewhere.
        transaction.on_commit(partial(_change_priorities, study, JobChange(priority=wanted.priority), user))
    return study


def pause(user: User, study_id: int) -> Study:
    """Submit no more trials; those that have been submitted train on. Idempotent."""
    study = find_study(user, study_id)
    reason = f"Paused by {user.get_username()}: submitted trials train on."
    if set_state(study, Study.State.PAUSED, reason, only=[Study.State.RUNNING], actor=user.get_username()):
        _audit(user, study, "paused")
    elif study.is_over:
        raise Conflict("The study is over: there is nothing to pause.")
    return study


def resume(user: User, study_id: int) -> Study:
    """Submit trials again. Idempotent."""
    study = find_study(user, study_id)
    reason = f"Resumed by {user.get_username()}."
    if set_state(study, Study.State.RUNNING, reason, only=[Study.State.PAUSED], actor=user.get_username()):
        _audit(user, study, "resumed")
    elif study.is_over:
        raise Conflict("The study is over: raise a limit to continue it, or create a new one.")
    return study


def stop(user: User, study_id: int) -> Study:
    """End the study for good, and stop its trials. Idempotent."""
    study = find_study(user, study_id)
    reason = f"Stopped by {user.get_username()}. {best_sentence(study, best_trial(study))}"
    if set_state(study, Study.State.STOPPED, reason, only=_OPEN, actor=user.get_username()):
        _audit(user, study, "stopped")
    elif study.state == Study.State.FINISHED:
        raise Conflict("The study is finished: there is nothing to stop.")
    for trial in study.trials.filter(state=Trial.State.WAITING):
        trial.state, trial.why, trial.finished_at = Trial.State.FAILED, "Stopped before it began.", timezone.now()
        trial.save(update_fields=["state", "why", "finished_at"])
    end_call(study)
    # The controller repeats this for trials that it submits at this moment.
    for trial in study.trials.filter(state=Trial.State.RUNNING).exclude(job__state__in=TERMINAL):
        if trial.job_id is not None:
            _cancel(trial.job_id, user)
    return study


@transaction.atomic
def restart(user: User, study_id: int) -> Study:
    """Continue a stopped study. Trials that were stopped are tried again, and count once."""
    study = _locked(user, study_id)
    if study.state != Study.State.STOPPED:
        raise Conflict("The study is not stopped: there is nothing to restart.")
    if study.trials.filter(state=Trial.State.RUNNING).exists():
        raise Conflict("The study's trials are still being stopped: restart it in a few seconds.", code="in_use")
    stopped = study.trials.filter(state=Trial.State.FAILED)
    stopped.filter(job=None).update(state=Trial.State.WAITING, why="", finished_at=None)
    for trial in stopped.filter(job__state=JobState.CANCELLED, repeated_by=None):
        add_trial(study, trial.values, origin=Trial.Origin.REPEAT, repeats=trial, job_seed=trial.job_seed)
    name = user.get_username()
    set_state(study, Study.State.RUNNING, f"Restarted by {name}.", only=[Study.State.STOPPED], actor=name)
    _audit(user, study, "restarted")
    return study


@transaction.atomic
def enqueue(user: User, study_id: int, values: Sequence[Mapping[str, Any]]) -> list[Trial]:
    """Queue trials with these values, before all others."""
    study = _locked(user, study_id)
    space = parse_space(study.space)
    checked = [checked_point(space, given) for given in values]
    trials = [add_trial(study, given, origin=Trial.Origin.USER) for given in checked]
    _make_room(user, study, len(trials))
    return trials


@transaction.atomic
def more_seeds(user: User, study_id: int, number: int, count: int) -> list[Trial]:
    """Queue repetitions of a trial with other seeds, to show how much of its value is chance."""
    study = _locked(user, study_id)
    if not 1 <= count <= _MAX_SEEDS:
        raise field_error("count", f"Ask for 1 to {_MAX_SEEDS} seeds.")
    trial = study.trials.filter(number=number).first()
    if trial is None:
        raise NotFound(f"Study {study.pk} has no trial {number}.")
    first = trial.repeats if trial.origin == Trial.Origin.SEED and trial.repeats else trial
    used = first.repeated_by.filter(origin=Trial.Origin.SEED).values_list("job_seed", flat=True)
    last = max([int(study.options.get("seed", 0)), *(seed for seed in used if seed is not None)])
    trials = [
        add_trial(study, first.values, origin=Trial.Origin.SEED, repeats=first, job_seed=last + place)
        for place in range(1, count + 1)
    ]
    _make_room(user, study, count)
    return trials


@transaction.atomic
def delete_study(user: User, study_id: int) -> None:
    """Delete the study and its trials' values. The trainings stay."""
    study = _locked(user, study_id)
    is_asking = study.plugin_calls.filter(state=PluginCall.State.ASKED).exists()
    if not study.is_over or is_asking or study.trials.filter(state=Trial.State.RUNNING).exists():
        raise Conflict("The study still has trials: stop it before you delete it.", code="in_use")
    number, owner = study.pk, study.owner.get_username()
    study.delete()
    audit(user, "deleted", kind=KIND, key=number, name=study.name, before={"owner": owner})


def _locked(user: User, study_id: int) -> Study:
    find_study(user, study_id)
    return Study.objects.select_for_update(of=("self",)).select_related("owner", "instance_group").get(pk=study_id)


def _checked_parameters(problems: Problems, given: object) -> dict[str, Any]:
    try:
        return dict(checked_parameters(given))
    except UserError as error:
        problems.add_all(error)
        return {}


def _checked_space(problems: Problems, given: StudyRequest, parameters: Mapping[str, Any]) -> Space:
    try:
        space = parse_space(given.space)
    except UserError as error:
        problems.add_all(error)
        return {}
    if twice := sorted(set(space) & set(parameters)):
        problems.add("space", f"{', '.join(twice)}: searched, and fixed under parameters. Remove one of the two.")
    return space


def _checked_search(search: Search, given: StudyRequest) -> list[str]:
    try:
        return check_search(search, given.trials, pruner=given.pruner)
    except UserError as error:
        # The sampler's options have another name here: `options` are those of the trainings.
        fields = {("sampler_options" if name == "options" else name): each for name, each in error.fields.items()}
        raise InvalidSubmission(fields) from error


def _check_words(problems: Problems, given: StudyRequest) -> None:
    for name in ("goal", "value_of", "pruner", "metric"):
        _check_word(problems, name, getattr(given, name), _WORDS.get(name))
    _check_word(problems, "sampler", given.sampler, SAMPLERS if given.plugin is None else (*SAMPLERS, PLUGIN))


def _check_word(problems: Problems, name: str, value: str, known: Sequence[str] | None) -> None:
    """Check that the value is a known word, or without those the name of a metric."""
    if known is not None and value not in known:
        problems.add(name, f"Choose {', '.join(known[:-1])} or {known[-1]}.")
    metric = value.strip()
    if known is None and (not metric or len(metric) > _MAX_METRIC or not is_storable(metric)):
        problems.add(name, "Enter the name of a metric that the script reports, such as loss.")


def _check_limits(problems: Problems, given: StudyRequest | StudyChange) -> None:
    if given.trials is not None and not 1 <= given.trials <= MAX_TRIALS:
        problems.add("trials", f"Enter 1 to {MAX_TRIALS:,} trials.")
    for name in ("minutes", "gpu_hours", "at_once"):
        value = getattr(given, name)
        if value is not None and not 0 < value <= 2**31 - 1:
            problems.add(name, "Enter a number above 0, or leave it out for no limit.")


def _checked_first(given: StudyRequest, parameters: Mapping[str, Any], owner: User) -> Checked:
    """Check the first trial as a training."""
    known = {name: value for name, value in given.options.items() if name in OPTIONS}
    if unknown := sorted(set(given.options) - set(known)):
        raise field_error("options", f"{unknown[0]} is not an option of a training.")
    submission = Submission(
        name=given.name,
        model=given.model,
        model_version=given.model_version,
        dataset=given.dataset,
        instance_group=given.instance_group,
        parameters=parameters,
        arguments=given.arguments,
        tags=given.tags,
        **known,
    )
    return check(submission, owner)


def _changed_limits(wanted: StudyChange) -> dict[str, Any]:
    columns = {"trials": "trials_wanted", "at_once": "at_once", "minutes": "max_minutes", "gpu_hours": "max_gpu_hours"}
    given = {name: getattr(wanted, name) for name in columns if getattr(wanted, name) is not None}
    problems = Problems()
    _check_limits(problems, StudyChange(**{name: value for name, value in given.items() if value != 0}))
    problems.raise_if_any()
    return {columns[name]: value or None for name, value in given.items()}


def _changed_metric(study: Study, wanted: StudyChange) -> dict[str, Any]:
    """Return the columns of another metric. Raises UserError."""
    given = {name: value for name in ("metric", "goal", "value_of") if (value := getattr(wanted, name)) is not None}
    problems = Problems()
    for name, value in given.items():
        _check_word(problems, name, value, _WORDS.get(name))
    if given and study.trials.filter(state=Trial.State.PRUNED).exists():
        problems.add(
            "metric", f"Trials were stopped early by their {study.metric}: create a study with the other metric."
        )
    problems.raise_if_any()
    return {name: value.strip() for name, value in given.items()}


def _change_priorities(study: Study, wanted: JobChange, user: User) -> None:
    for job in study.trials.filter(state=Trial.State.RUNNING).values_list("job", flat=True):
        with suppress(Refused):  # the training has ended meanwhile
            change_job(job, wanted, user.get_username())


def _cancel(job: int, user: User) -> None:
    with suppress(Refused):  # the training has ended meanwhile
        cancel(job, user.get_username())


def _make_room(user: User, study: Study, count: int) -> None:
    """Raise the limit of trials by the number of queued ones, and continue a finished study. Raises Conflict."""
    if study.state == Study.State.STOPPED:
        raise Conflict("A stopped study takes no more trials: create a new one.")
    if study.trials_wanted is not None:
        Study.objects.filter(pk=study.pk).update(trials_wanted=min(MAX_TRIALS, study.trials_wanted + count))
    _continue(user, study, "Continues with queued trials.")
    changed(study.pk)


def _continue(user: User, study: Study, reason: str) -> None:
    """Continue the study if it is finished."""
    set_state(study, Study.State.RUNNING, reason, only=[Study.State.FINISHED], actor=user.get_username())


def _audit(user: User, study: Study, verb: str, before: Mapping[str, Any] = {}, after: Mapping[str, Any] = {}) -> None:
    """Write an audit entry if the user is not the owner."""
    if study.owner_id != user.pk:
        audit(user, verb, kind=KIND, key=study.pk, name=study.name, before=before, after=after)
