"""Submit and clone jobs. All errors are reported at once, field by field, and a failed submission leaves nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from core import live
from core.errors import Conflict, field_error, if_full
from core.text import MAX_NAME_LENGTH
from datasets.models import DatasetVersion
from jobs.actions.exact_clone import Exactly, exactly
from jobs.actions.initial_state import Beginning, Weights, beginning_again, bring, find_beginning
from jobs.actions.placement_checks import check_processes, with_placement
from jobs.actions.requirements import with_locked, with_requirements
from jobs.actions.secrets import find_secrets, store_uses
from jobs.actions.source import Source, copy_source, store_source
from jobs.actions.submission_checks import (
    InvalidSubmission,
    Problems,
    check_arguments,
    check_code,
    check_exactness,
    check_others,
    check_parameters,
    check_priority,
    check_slots,
    check_tags,
    find_dataset,
    find_group,
    find_model,
    with_virtual_ranks,
)
from jobs.actions.wish_checks import check_wish
from jobs.control.dispatch import wake_scheduler
from jobs.control.transition import Why, publish_in_cluster, record
from jobs.files.job_folder import job_folder, stage
from jobs.files.validation_runs import validation_of, why_not_validated
from jobs.messages import message
from jobs.models import InstanceGroup, Job, JobRun, JobTag, RequiredEnvironment, Secret, Validation
from jobs.options import Options, engine_of, option_values, options_of_validation, requested_values
from jobs.queries.disk_room import refuse_beyond_room
from jobs.queries.serializers import JobStateOutput, as_json
from jobs.states import JobState, Reason
from jobs.topics import JOBS, jobs_topic_of
from models_registry.models import RegisteredModelVersion

__all__ = [
    "Checked",
    "Submission",
    "ValidationRequest",
    "check",
    "check_clone",
    "clone",
    "repeated",
    "run_again_exactly",
    "submit",
    "validate",
]

_ELASTIC = RegisteredModelVersion.Engine.ELASTIC


@dataclass(frozen=True, kw_only=True)
class Submission(Options):
    """A training as requested by a user. References are names or ids, or for model and dataset a version."""

    name: str
    model: int | str | RegisteredModelVersion
    #: Instance group by id or name; None: the only group that the owner may submit to.
    instance_group: int | str | None = None
    #: Version number of the named model; None: the newest.
    model_version: int | None = None
    #: Dataset by id or name; None: the script reads no dataset.
    dataset: int | str | DatasetVersion | None = None
    #: Parameters that override the model's; each reaches the script as `--name value`.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: Arguments passed to the script after the parameters, verbatim and in this order.
    arguments: Sequence[str] = ()
    #: Tags of the new job. Tags are not cloned.
    tags: Sequence[str] = ()
    #: Id of the checkpoint to resume from.
    checkpoint: int | None = None
    #: Initial weights; training starts at step 0 with a fresh optimizer.
    initial_weights: Weights | None = None
    #: Files added to the code: name relative to its folder -> content. A file of the model with the name is replaced.
    code_files: Mapping[str, str] = field(default_factory=dict)
    #: Whether to go on without the lines of the requirements that cannot be used.
    skip_unusable_requirements: bool = False
    #: Interface of the submission, a `wmla.job_names.Dialect`, and its `args`.
    dialect: str = ""
    submitted_args: str = ""
    #: Origin of the code, and the command that sent it; None: unknown, as for an upload by a browser.
    source: Source | None = None
    #: Number of the study whose trainings count as one training towards others; None: counts alone. Not cloned.
    bundle: int | None = None
    #: Python and packages of the cloned training, for a clone that has to run with them; None: they are chosen anew.
    exactly: Exactly | None = None


@dataclass(frozen=True)
class Checked:
    """A submission without errors: rows in place of references, and the effective options."""

    owner: User
    name: str
    model: RegisteredModelVersion
    dataset: DatasetVersion | None
    group: InstanceGroup
    beginning: Beginning | None
    given: Submission
    #: Folder from which the code is copied.
    code: Path
    #: A sentence for each line of the requirements that is skipped.
    skipped: Sequence[str] = ()
    #: The job whose submitted code is reused; None: the model's is copied.
    original: Job | None = None
    secrets: Sequence[Secret] = ()

    @property
    def elastic(self) -> bool:
        return self.model.engine == _ELASTIC

    @property
    def engine(self) -> str:
        return engine_of(self.model, self.given.gpus_per_process)


def submit(submission: Submission, owner: User, then: Callable[[Job], object] = lambda job: None) -> Job:
    """Queue a job. Raises InvalidSubmission with a sentence for each invalid field.

    then: called with the new job in its transaction.
    """
    return _create(check(submission, owner), then)


def clone(
    job: Job,
    owner: User,
    given: Submission | None = None,
    *,
    begins_again: bool = True,
    then: Callable[[Job], object] = lambda job: None,
) -> Job:
    """Queue the training again, with its code as submitted.

    given: the new submission; an unchanged dataset keeps its version. begins_again: use the initial state of `job`.
    then: called with the new job in its transaction.
    """
    wanted = check_clone(job, owner, given, begins_again=begins_again)
    return _create(wanted, then)


def run_again_exactly(job: Job, owner: User, then: Callable[[Job], object] = lambda job: None) -> Job:
    """Queue a clone with the packages of the newest attempt.

    Raises InvalidSubmission with a sentence for each part that cannot be had any more, and Conflict.
    """
    return clone(job, owner, replace(repeated(job), exactly=exactly(job)), then=then)


def check_clone(job: Job, owner: User, given: Submission | None = None, *, begins_again: bool = True) -> Checked:
    """Check a clone. Raises like `clone`."""
    if validation_of(job) is not None:
        raise Conflict("This run validates a training: validate that training again, on its page.")
    given = given or repeated(job)
    same_data = job.dataset if given.dataset == (job.dataset_name or None) else None
    return _check_again(job, given, owner, dataset=same_data, beginning=beginning_again(job) if begins_again else None)


def repeated(job: Job) -> Submission:
    """Return a submission that repeats the training, without its initial state: see `clone`."""
    return Submission(
        name=job.name,
        model=job.model,
        dataset=job.dataset_name or None,
        instance_group=job.instance_group.name,
        parameters=job.parameters,
        arguments=job.arguments,
        **requested_values(job),
    )


def _check_again(
    job: Job, given: Submission, owner: User, *, dataset: DatasetVersion | None, beginning: Beginning | None = None
) -> Checked:
    """Check a job that reuses the submitted code of another job.

    dataset: the version; None: the newest one of the given dataset. beginning: overrides the given initial state.
    """
    # A version skips the check of permissions: the owner has the code already, and may have lost access to the model.
    given = replace(given, model=job.model)
    checked = check(given if dataset is None else replace(given, dataset=dataset), owner)
    begins = checked.beginning if beginning is None else beginning
    # The args of WMLA's interface name the framework that its clients see.
    again = replace(checked.given, submitted_args=job.submitted_args)
    return replace(checked, code=job_folder(job).code, beginning=begins, given=again, original=job)


def check(given: Submission, owner: User) -> Checked:
    """Check a submission. Raises InvalidSubmission with a sentence for each invalid field, and DiskFull."""
    refuse_beyond_room(owner)
    problems = Problems()
    name = problems.checked_name(given.name)
    model = find_model(problems, given.model, given.model_version, owner)
    dataset = find_dataset(problems, given.dataset, model)
    group = find_group(problems, given.instance_group, owner)
    if model is not None and model.engine != _ELASTIC:
        given = replace(given, min_slots=given.max_slots)
    if given.priority is None and group is not None:
        given = replace(given, priority=group.default_priority)
    check_slots(problems, given.min_slots, given.max_slots, group, model, given)
    check_priority(problems, given.priority, group)
    given = replace(given, tags=check_tags(problems, given.tags))
    check_parameters(problems, given.parameters, model)
    check_arguments(problems, given.arguments, model)
    check_exactness(problems, given, model)
    check_processes(problems, given, model)
    given = with_placement(problems, given, group, model)
    check_others(problems, given)
    check_wish(problems, given, group, given.min_slots)
    beginning = find_beginning(
        problems, checkpoint=given.checkpoint, weights=given.initial_weights, user=owner, model=model
    )
    skipped: list[str] = []
    if model is not None:
        check_code(problems, model)
        if given.exactly is not None:
            given = with_locked(problems, given, given.exactly, model, group)
        else:
            skip = given.skip_unusable_requirements
            given, skipped = with_requirements(problems, given, model, group, skip_unusable=skip)
    names, secrets = find_secrets(problems, given, owner, group)
    problems.raise_if_any()
    assert model is not None
    assert group is not None
    given = with_virtual_ranks(replace(given, secrets=names))
    found = (owner, name, model, dataset, group, beginning, given)
    return Checked(*found, code=model.folder, skipped=skipped, secrets=secrets)


def _create(checked: Checked, then: Callable[[Job], object]) -> Job:
    try:
        # Outside the transaction: a copy may take longer than other transactions should wait.
        folder = stage(checked.owner.get_username(), checked.model.model.name, checked.code, checked.given.code_files)
    except OSError as error:
        problem = error.strerror or "see the server's log"
        sentence = f"The code of {checked.model.model.name} cannot be copied ({problem}): register the model again."
        raise if_full(error) or InvalidSubmission({"model": [sentence]}) from error
    job: Job | None = None
    try:
        if checked.beginning is not None:
            bring(checked.beginning, folder.path)
        with transaction.atomic():
            job = _insert(checked)
            then(job)
            folder.settle(job)
        return job
    except BaseException:  # after any error, nothing half created stays
        folder.discard(job)
        raise


def _insert(checked: Checked) -> Job:
    why = Why(Reason.SUBMITTED, message("submitted"), checked.owner.get_username())
    given, beginning = checked.given, checked.beginning
    job = Job.objects.create(
        name=checked.name,
        owner=checked.owner,
        model=checked.model,
        dataset=checked.dataset,
        instance_group=checked.group,
        state=JobState.PENDING,
        parameters=dict(given.parameters),
        arguments=list(given.arguments),
        dialect=given.dialect,
        submitted_args=given.submitted_args,
        bundle=given.bundle,
        **option_values(given),
        starts_from=beginning.kind if beginning else Job.StartsFrom.NOTHING,
        initial_checkpoint=beginning.checkpoint if beginning else None,
        initial_job=beginning.job if beginning else None,
        initial_file=beginning.file_name if beginning else "",
        **why.columns,
        submitted_at=timezone.now(),
    )
    required = RequiredEnvironment.of(job.requirements) if job.requirements else None
    job.run = JobRun.objects.create(job=job, required=required)
    if checked.secrets:
        store_uses(job, checked.secrets)
    if given.source is not None:
        store_source(job, given.source)
    if checked.original is not None:
        copy_source(checked.original, job)
    JobTag.objects.bulk_create(JobTag(job=job, name=name) for name in given.tags)
    record(job, why, old="")
    if (ran := given.exactly) is not None:
        facts = {"job": ran.job, "attempt": ran.attempt, "notes": list(ran.environment.notes)}
        record(job, Why(Reason.SUBMITTED, message("runs_exactly", **facts), why.actor))
    if checked.skipped:
        record(job, Why(Reason.SUBMITTED, message("requirements_skipped", lines=checked.skipped), why.actor))
    publish_in_cluster({job.pk: as_json(JobStateOutput, job)})
    for topic in (JOBS, jobs_topic_of(job.owner_id)):
        live.publish(topic, "append", {"jobs": [job.pk]})
    wake_scheduler()
    return job


@dataclass(frozen=True)
class ValidationRequest:
    """A validation as requested by a user; None stands for the training's value."""

    #: Id or name of a dataset, used in its newest version. None: the version that the job was trained on.
    dataset: int | str | None = None
    split: str = Validation.Split.VALIDATION
    instance_group: int | str | None = None
    priority: int | None = None
    #: Name of the run. None: derived from the training's.
    name: str | None = None


def validate(trained: Job, request: ValidationRequest, owner: User) -> Validation:
    """Queue a validation run. Raises Conflict with the reason if the training cannot be validated."""
    if request.split not in Validation.Split.values:
        raise field_error("split", f"The split must be {' or '.join(Validation.Split.values)}.")
    if why := why_not_validated(trained):
        raise Conflict(why)
    given = Submission(
        name=f"Validate {trained.name}"[:MAX_NAME_LENGTH] if request.name is None else request.name,
        model=trained.model.model.name,
        dataset=(trained.dataset_name or None) if request.dataset is None else request.dataset,
        instance_group=trained.instance_group.name if request.instance_group is None else request.instance_group,
        priority=trained.priority if request.priority is None else request.priority,
        parameters=trained.parameters,
        arguments=trained.arguments,
        **options_of_validation(trained),
        initial_weights=trained.pk,
    )
    data = trained.dataset if request.dataset is None else None
    checked = _check_again(trained, given, owner, dataset=data)
    job = _create(checked, lambda job: Validation.objects.create(job=job, trained=trained, split=request.split))
    return job.validation
