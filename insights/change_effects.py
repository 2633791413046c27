"""Effects of a change on trainings, one by one and in one sentence; and those of a change of many."""

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
from scheduling.preview import Fate, Speed, compare, with_priority, without_jobs

__all__ = ["Effect", "effects_of", "effects_sentence", "if_over", "if_priority"]

#: What becomes of a training -> one, and several of them, in the order in which they are told.
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
    #: "another user's training" where the viewer may not see it.
    name: str
    visible: Annotated[bool, "False: it is another user's, without its name."]
    group: str
    #: A key of _VERBS.
    what: str
    before_slots: int
    after_slots: int
    before_goodput: Annotated[
        float | None,
        "Steps at its own batch size per second, by its profile (`jobs/{id}/goodput/`); null: not measured.",
    ] = None
    after_goodput: float | None = None

    @property
    def words(self) -> str:
        return _VERBS[self.what][0]

    @property
    def faster(self) -> str:
        """Describe how much faster or slower it trains; "": nobody knows, or it does not train on both sides."""
        if not self.before_goodput or not self.after_goodput:
            return ""
        return f"{100 * (self.after_goodput / self.before_goodput - 1):+.0f} %".replace("-", "−")

    @property
    def speeds(self) -> str:
        if self.before_goodput is None or self.after_goodput is None:
            return ""
        return f"{self.before_goodput:.3g} → {self.after_goodput:.3g} steps/s"


def if_over(jobs: Collection[int], user: User) -> str:
    """Say what others would get if these jobs were over."""
    now = snapshot(timezone.now())
    seen = compare(now, without_jobs(now, frozenset(jobs)))
    return effects_sentence(effects_of(seen.fates, {job.id: job.group for job in now.jobs}, user), seen.moves)


def if_priority(jobs: Collection[int], priority: int, user: User) -> str:
    """Say what these jobs and others would get if these had the priority."""
    now = snapshot(timezone.now())
    seen = compare(now, with_priority(now, frozenset(jobs), priority))
    return effects_sentence(effects_of(seen.fates, {job.id: job.group for job in now.jobs}, user), seen.moves)


def effects_of(
    fates: Sequence[Fate], groups: Mapping[int, str], user: User, known: Mapping[int, Speed] | None = None
) -> list[Effect]:
    """Return the effects on trainings, those that lose most first. known: how fast they train."""
    speeds = known or {}
    names = dict(visible_jobs(user).filter(pk__in=[fate.job for fate in fates]).values_list("pk", "name"))
    effects = [
        Effect(
            job=fate.job,
            name=names.get(fate.job, ANOTHER_USERS_TRAINING),
            visible=fate.job in names,
            group=groups[fate.job],
            what=_what(fate),
            before_slots=fate.before,
            after_slots=fate.after,
            before_goodput=speeds[fate.job].before if fate.job in speeds else None,
            after_goodput=speeds[fate.job].after if fate.job in speeds else None,
        )
        for fate in fates
    ]
    order = list(_VERBS)
    return sorted(effects, key=lambda effect: (order.index(effect.what), effect.after_slots - effect.before_slots))


def _what(fate: Fate) -> str:
    if fate.stops:
        return "stops"
    if not fate.after:
        return "waits"
    if not fate.before:
        return "starts"
    return "gains" if fate.after > fate.before else "shrinks"


def effects_sentence(effects: Sequence[Effect], moves: int) -> str:
    if not effects:
        return "No training gets more or fewer GPUs now."
    counts = Counter(effect.what for effect in effects)
    parts = [
        plural(counts[what], f"{{count}} training {one}", f"{{count}} trainings {several}")
        for what, (one, several) in _VERBS.items()
        if counts[what]
    ]
    hands = plural(moves, "{count} GPU changes hands", "{count} GPUs change hands")
    return f"{', '.join(parts)}. {hands}."
