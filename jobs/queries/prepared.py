"""Environments that trainings require, with the hosts that have them."""

from typing import Any

from django.db.models import Count, Max, Prefetch, Q, QuerySet

from core.errors import NotFound
from core.text import plural
from jobs.models import HostEnvironment, RequiredEnvironment
from jobs.states import TERMINAL

__all__ = ["find_prepared", "hosts_in_words", "prepared_environments", "title_of"]

_State = HostEnvironment.State
_WORDS = {
    _State.READY: "ready on {count}",
    _State.BUILDING: "being prepared on {count}",
    _State.ASKED: "asked of {count}",
    _State.FAILED: "failed on {count}",
}


def prepared_environments() -> QuerySet[RequiredEnvironment]:
    """Return all environments; `trainings` and `active` count theirs, and `used_at` is when one was submitted last."""
    active = Count("runs", filter=~Q(runs__job__state__in=TERMINAL))
    rows = RequiredEnvironment.objects.annotate(
        trainings=Count("runs"), active=active, used_at=Max("runs__job__submitted_at")
    )
    hosts = HostEnvironment.objects.filter(host__removed_at=None).select_related("host").order_by("host__name")
    return rows.prefetch_related("names", Prefetch("hosts", hosts))


def find_prepared(pk: int) -> RequiredEnvironment:
    """Return an environment with its hosts. Raises NotFound."""
    row = prepared_environments().filter(pk=pk).first()
    if row is None:
        raise NotFound("No training requires this any longer: look at the page Environments.")
    return row


def title_of(row: RequiredEnvironment) -> str:
    """Return its names; the first line of one that has none."""
    return ", ".join(named.name for named in row.names.all()) or row.lines.splitlines()[0]


def hosts_in_words(row: RequiredEnvironment) -> str:
    """Return a phrase about the hosts, such as "ready on 3 hosts, failed on 1"."""
    states: dict[Any, int] = dict.fromkeys(_WORDS, 0)
    for one in row.hosts.all():
        states[one.state] += 1
    parts = [_WORDS[state].format(count=count) for state, count in states.items() if count]
    if not parts:
        return "on no host yet"
    first = next(count for count in states.values() if count)
    return ", ".join([parts[0] + plural(first, " host", " hosts"), *parts[1:]])
