"""Effects of a change on the trainings, as a list and as a sentence."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from django.contrib.auth.models import User
from django.utils import timezone

from core.text import plural
from jobs.control.snapshots import snapshot
from jobs.queries.jobs import visible_jobs
from jobs.words import ANOTHER_USERS_TRAINING
from scheduling.preview import Speed, TargetChange, compare, with_priority, without_jobs

__all__ = ["Effect", "effects_of", "effects_of_ending", "effects_of_priority", "effects_sentence"]

#: Kind of effect -> verb in the singular and the plural, in the order of the sentence.
_VERBS: Final = {
    "stops": ("stops for now", "stop for now"),
    "shrinks": ("shrinks", "shrink"),
    "waits": ("waits longer", "wait longer"),
    "gains": ("gains", "gain"),
    "starts": ("starts", "start"),
}


@dataclass(frozen=True)
class Effect:
    job: int
    #: Name of the training, or "another user's training" if the viewer may not see it.
    name: str
    visible: Annotated[bool, "false: the training is another user's, and its name is hidden."]
    group: str
    #: A key of _VERBS.
    what: str
    before_slots: int
    after_slots: int
    before_goodput: Annotated[
        float | None,
        "Steps of its own batch size per second, by its profile (`jobs/{id}/goodput/`); null: not measured.",
    ] = None
    after_goodput: float | None = None
    after_estimated: Annotated[
        bool, "Whether `after_goodput` is an estimate, because the job was not measured on that kind of GPU."
    ] = False

    @property
    def words(self) -> str:
        return _VERBS[self.what][0]

    @property
    def faster(self) -> str:
        """Return the change of its speed in percent; "" if that is unknown, or it does not train before and after."""
        if not self.before_goodput or not self.after_goodput:
            return ""
        return f"{100 * (self.after_goodput / self.before_goodput - 1):+.0f} %".replace("-", "−")

    @property
    def speeds(self) -> str:
        if self.before_goodput is None or self.after_goodput is None:
            return ""
        estimated = ", estimated" if self.after_estimated else ""
        return f"{self.before_goodput:.3g} → {self.after_goodput:.3g} steps/s{estimated}"


def effects_of_ending(jobs: Collection[int], user: User) -> str:
    """Describe the effects on other trainings if these jobs ended."""
    now = snapshot(timezone.now())
    compared = compare(now, without_jobs(now, frozenset(jobs)))
    return effects_sentence(effects_of(compared.changes, {job.id: job.group for job in now.jobs}, user), compared.moves)


def effects_of_priority(jobs: Collection[int], priority: int, user: User) -> str:
    """Describe the effects on all trainings if these jobs had the priority."""
    now = snapshot(timezone.now())
    compared = compare(now, with_priority(now, frozenset(jobs), priority))
    return effects_sentence(effects_of(compared.changes, {job.id: job.group for job in now.jobs}, user), compared.moves)


def effects_of(
    changes: Sequence[TargetChange], groups: Mapping[int, str], user: User, known: Mapping[int, Speed] | None = None
) -> list[Effect]:
    """Return the effects on trainings, those that lose most first. known: their speeds, by job."""
    speeds = known or {}
    names = dict(visible_jobs(user).filter(pk__in=[change.job for change in changes]).values_list("pk", "name"))
    effects = [
        Effect(
            job=change.job,
            name=names.get(change.job, ANOTHER_USERS_TRAINING),
            visible=change.job in names,
            group=groups[change.job],
            what=_kind_of(change),
            before_slots=change.before,
            after_slots=change.after,
            before_goodput=speeds[change.job].before if change.job in speeds else None,
            after_goodput=speeds[change.job].after if change.job in speeds else None,
            after_estimated=change.job in speeds and speeds[change.job].is_estimated,
        )
        for change in changes
    ]
    order = list(_VERBS)
    return sorted(effects, key=lambda effect: (order.index(effect.what), effect.after_slots - effect.before_slots))


def _kind_of(change: TargetChange) -> str:
    if change.stops:
        return "stops"
    if not change.after:
        return "waits"
    if not change.before:
        return "starts"
    return "gains" if change.after > change.before else "shrinks"


def effects_sentence(effects: Sequence[Effect], moves: int) -> str:
    if not effects:
        return "No training gets more or fewer GPUs now."
    counts = Counter(effect.what for effect in effects)
    parts = [
        plural(counts[what], f"{{count}} training {one}", f"{{count}} trainings {several}")
        for what, (one, several) in _VERBS.items()
        if counts[what]
    ]
    reassigned = plural(moves, "{count} GPU is reassigned", "{count} GPUs are reassigned")
    return f"{', '.join(parts)}. {reassigned}."
