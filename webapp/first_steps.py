"""The steps from an empty home to its first training, in their order."""

from dataclasses import dataclass

from django.urls import reverse

from core.roles import Asking, is_cluster_admin
from jobs.models import InstanceGroup, Job
from workers.models import ResourceGroup, Slot

__all__ = ["FirstStep", "first_steps"]


@dataclass(frozen=True)
class FirstStep:
    title: str
    sentence: str
    #: Words and address of the step's button; "" for users who may not take the step.
    button: str
    address: str
    is_done: bool
    #: Whether all steps before this one are done, but not this one.
    is_next: bool


def first_steps(user: Asking) -> list[FirstStep]:
    """Return the steps; none once anybody has submitted a training."""
    if Job.objects.exists():
        return []
    groups = ResourceGroup.objects.filter(kind=ResourceGroup.Kind.GPU)
    started = InstanceGroup.objects.filter(state=InstanceGroup.State.STARTED)
    steps = [
        ("GPUs", "A host joins, and reports its GPUs.", "Add a host", "hosts:join", Slot.objects.exists()),
        (
            "Resource group",
            "It says which hosts train.",
            "Create a resource group",
            "resource_groups:new",
            groups.exists(),
        ),
        (
            "Instance group",
            "It divides the GPUs among trainings.",
            "Create an instance group",
            "groups:new",
            started.exists(),
        ),
        (
            "Training",
            "A script, its data if it reads any, and the number of GPUs.",
            "Train a model",
            "jobs:train",
            False,
        ),
    ]
    next_one = next(number for number, (*_, is_done) in enumerate(steps) if not is_done)
    sets_up = is_cluster_admin(user)
    return [
        FirstStep(
            title,
            sentence,
            button if sets_up or name == "jobs:train" else "",
            reverse(name),
            is_done,
            number == next_one,
        )
        for number, (title, sentence, button, name, is_done) in enumerate(steps)
    ]
