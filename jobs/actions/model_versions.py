"""Model versions made from checkpoints: the training's code and parameters with the checkpoint's weights."""

from django.contrib.auth.models import User
from django.db import transaction

from core.errors import Conflict
from jobs.actions.checkpoints import change_kept
from jobs.control.transition import lock_job
from jobs.models import Checkpoint, Job, TrainedVersion
from models_registry.actions import ModelRegistration, register
from models_registry.models import RegisteredModel

__all__ = ["make_version", "usual_name"]


def usual_name(job: Job, user: User) -> str:
    """Return the default model name for the version. Not the training's own model, whose newest version is its code."""
    name = f"{job.model.model.name}-trained"
    is_foreign = RegisteredModel.objects.filter(name=name).exclude(owner=user).exists()
    return f"{name}-{user.get_username()}" if is_foreign else name


@transaction.atomic
def make_version(checkpoint: Checkpoint, user: User, name: str = "") -> TrainedVersion:
    """Register the next version of one of the user's models, and keep the checkpoint while the version exists.

    name: of the model, which may be new; "": the default. Raises UserError, Conflict.
    """
    job = lock_job(checkpoint.job_id)
    name = name or usual_name(job, user)
    made = TrainedVersion.objects.filter(checkpoint=checkpoint, version__model__name=name).first()
    if made is not None:
        raise Conflict(f"The checkpoint is already {made.version}.")
    trained, known = job.model, RegisteredModel.objects.filter(name=name).first()
    registration = ModelRegistration(
        name=name,
        source=trained,
        framework=trained.framework,
        engine=trained.engine,
        default_dataset=job.dataset_name or trained.default_dataset,
        settings=trained.settings,
        parameters={**trained.parameters, **job.parameters},
        compat=trained.compat,
        description=known.description if known else f"Trained by training {job.pk}.",
    )
    version = register(user, registration)
    # Last: the links to the checkpoint's files would survive a rollback of the transaction.
    change_kept(checkpoint, True, user.get_username())
    return TrainedVersion.objects.create(version=version, checkpoint=checkpoint)
