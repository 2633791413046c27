"""Effects of a change of an instance group on the trainings, computed by the scheduler's own functions."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, Final

from django.contrib.auth.models import User
from django.utils import timezone

from core.text import plural
from insights.change_effects import Effect, effects_of, effects_sentence
from jobs.actions.groups import check_change
from jobs.control.snapshots import group_view, snapshot
from jobs.gpu_weights import no_such_gpus, weights_of
from jobs.models import InstanceGroup
from jobs.queries.group_terms import LINKS, changed_terms, terms_of
from jobs.words import gpus
from scheduling.preview import Comparison, Speed, compare, speeds, with_group
from workers.models import ResourceGroup
from workers.queries import capacity, gpu_models

__all__ = ["GroupPreview", "preview_group_change"]

#: Highest number of effects that are listed; further ones are only counted.
_MOST_SHOWN: Final = 50


@dataclass(frozen=True)
class GroupPreview:
    #: Descriptions of the terms that change.
    changes: list[str]
    text: str
    moves: Annotated[int, "Number of GPUs that get another holder, or none."]
    #: Effects on trainings, those that lose most first.
    effects: list[Effect]
    more: Annotated[int, "Number of effects that are not listed."]
    #: Warnings about the change.
    notes: list[str]


def preview_group_change(group: InstanceGroup, given: Mapping[str, Any], user: User) -> GroupPreview:
    """Predict the effects of changing these terms now. Raises like `change_instance_group`; writes nothing."""
    columns = check_change(group, given, user)
    changed = copy(group)
    for column, value in columns.items():
        if column not in LINKS:
            setattr(changed, column, value)
    now = snapshot(timezone.now(), measures=True, levels={changed.least_isolation})
    after = with_group(now, view := group_view(changed))
    compared = Comparison(()) if view in now.groups else compare(now, after)
    known = speeds(now, after, compared.changes)
    effects = effects_of(compared.changes, {job.id: job.group for job in now.jobs}, user, known)
    # Bring the values into the shape of `terms_of`.
    given_terms = dict(columns)
    for column, value in columns.items():
        if column in LINKS:
            given_terms[column] = sorted(member.get_username() for member in value)
        elif isinstance(value, ResourceGroup):
            given_terms[column] = value.name
    return GroupPreview(
        changes=changed_terms(terms_of(group), given_terms),
        text=" ".join([effects_sentence(effects, compared.moves), *_work_sentence(effects, known.values())]),
        moves=compared.moves,
        effects=effects[:_MOST_SHOWN],
        more=max(0, len(effects) - _MOST_SHOWN),
        notes=_notes(group, changed),
    )


def _work_sentence(effects: Sequence[Effect], known: Collection[Speed]) -> Iterator[str]:
    """Yield a sentence about the total speed of the affected trainings, in GPUs that each train alone."""
    if not known:
        return
    before, after = (sum(each) for each in zip(*((s.before / s.alone, s.after / s.alone) for s in known), strict=True))
    whose = "They" if len(known) == len(effects) else "Those that were measured"
    yield f"{whose} do the work of {after:.1f} GPUs that train alone instead of {before:.1f}."


def _notes(group: InstanceGroup, changed: InstanceGroup) -> list[str]:
    notes = []
    offered = capacity(changed.resource_group)
    others = InstanceGroup.objects.filter(resource_group=changed.resource_group).exclude(pk=group.pk)
    quotas = sum(quota or 0 for quota in others.values_list("quota", flat=True)) + (changed.quota or 0)
    if changed.quota and quotas > offered:
        notes.append(
            f"The quotas on {changed.resource_group.name} are {gpus(quotas)} together, and it has {offered}: when all "
            "groups are busy, each gets less than its quota."
        )
    absent = sorted(weights_of(changed.gpu_weights).keys() - gpu_models(changed.resource_group))
    if absent and changed.policy == InstanceGroup.Policy.FAIRSHARE:
        notes.append(no_such_gpus(absent, changed.resource_group.name))
    outside = group.jobs.filter(finished_at__isnull=True).exclude(
        priority__gte=changed.lowest_priority, priority__lte=changed.highest_priority
    )
    if count := outside.count():
        keep = plural(count, "{count} training keeps a priority that is", "{count} trainings keep priorities that are")
        notes.append(f"{keep} outside of the new bounds: those hold for new trainings and changes.")
    return notes
