"""The decision about a fleet: start hosts, stop some, or leave it as it is, with a sentence that says why. Pure."""

from dataclasses import dataclass, field
from typing import Literal

from capacity.fleets import Fleet
from core.text import plural
from scheduling.capacity import Leaving, Wanted

__all__ = ["Action", "Decision", "Situation", "decide", "limit_of_fleet", "wanted_words"]

Action = Literal["none", "start", "resume", "stop"]
#: Part of `Fleet.worth` below which a host no longer pays: a host that just pays is not stopped again.
_STILL_WORTH = 0.8
#: Retries of a command that fails wait twice as long each time, up to this.
LONGEST_RETRY_SECONDS = 3600.0


@dataclass(frozen=True)
class Situation:
    """A fleet as it is at `at` (Unix seconds)."""

    at: float
    #: Names of its hosts that offer GPUs.
    hosts: tuple[str, ...] = ()
    #: Hosts that it was told to start and that have not reported yet.
    coming: int = 0
    #: Hosts that drain because they are to be stopped.
    draining: tuple[str, ...] = ()
    #: Whether its command runs.
    is_calling: bool = False
    #: Price of all its hosts since the beginning of the month.
    spent_month: float = 0.0
    #: Time of its last change.
    changed_at: float | None = None
    #: Time since which it has had a host too many.
    surplus_since: float | None = None
    #: Time before which a failed command is not tried again, and why it failed.
    retry_at: float | None = None
    failure: str = ""
    #: Hosts that would be of use beyond those that are there or coming.
    wanted: Wanted = field(default_factory=Wanted)
    #: Effect of each host's leaving, the one that is missed least first.
    leaving: tuple[Leaving, ...] = ()

    @property
    def present(self) -> int:
        return len(self.hosts) + self.coming


@dataclass(frozen=True)
class Decision:
    action: Action
    #: A sentence for people.
    why: str
    #: Number of hosts to start.
    count: int = 0
    #: Hosts to stop, or to keep though they drain.
    hosts: tuple[str, ...] = ()
    surplus_since: float | None = None


def limit_of_fleet(fleet: Fleet, spent_month: float) -> tuple[int, str]:
    """Return the number of hosts that the fleet may have now, and the rule that limits it."""
    most, why = fleet.most, f"it has {plural(fleet.most, '{count} host', '{count} hosts')} at most"
    if fleet.price and fleet.budget_hour is not None and (hourly := int(fleet.budget_hour / fleet.price)) < most:
        most, why = hourly, f"its budget for an hour pays for {plural(hourly, '{count} host', '{count} hosts')}"
    if fleet.price and fleet.budget_month is not None and spent_month >= fleet.budget_month:
        most, why = 0, f"its budget for the month is used up ({spent_month:.2f} of {fleet.budget_month:.2f})"
    return (most, why) if most >= fleet.least else (fleet.least, why)


def decide(fleet: Fleet, seen: Situation) -> Decision:
    most, limit = limit_of_fleet(fleet, seen.spent_month)
    if seen.is_calling:
        return Decision("none", "Its command is running.", surplus_since=seen.surplus_since)
    aim = min(max(seen.present + seen.wanted.hosts, fleet.least), most)
    if aim > seen.present:
        return _grow(fleet, seen, aim - seen.present)
    if seen.present > most:
        return _shrink(fleet, seen, seen.present - most, f"It has {_hosts(seen.present)}, and {limit}.")
    if seen.wanted.hosts or seen.wanted.limited:
        more = _capital(wanted_words(seen.wanted) if seen.wanted.hosts else "more hosts would be of use")
        return Decision("none", f"{more}, but {limit}.")
    if seen.coming:
        return Decision("none", f"{_capital(_hosts(seen.coming))} to come.")
    return _without_surplus(fleet, seen)


def _grow(fleet: Fleet, seen: Situation, count: int) -> Decision:
    why = wanted_words(seen.wanted) if seen.wanted.hosts else f"it has {_hosts(fleet.least)} at least"
    if seen.draining:
        kept = seen.draining[:count]
        return Decision("resume", f"{', '.join(kept)} stays: {why}.", hosts=kept)
    if seen.retry_at is not None and seen.at < seen.retry_at:
        wait = round(seen.retry_at - seen.at)
        return Decision("none", f"{_capital(why)}. Its command is tried again in {wait} s. {seen.failure}".strip())
    if (left := _held(fleet, seen)) > 0:
        return Decision("none", f"{_capital(why)}. The next change can be made in {left} s.")
    return Decision("start", f"{_capital(_hosts(count))} more: {why}.", count=count)


def _without_surplus(fleet: Fleet, seen: Situation) -> Decision:
    spare = len(seen.hosts) - fleet.least
    first = next((one for one in seen.leaving if _is_spare(one, fleet)), None)
    if spare <= 0 or first is None:
        rest = "none of its hosts can be missed" if seen.hosts and spare > 0 else "no more are wanted"
        return Decision("none", f"{_capital(_hosts(len(seen.hosts)))}: {rest}.")
    since = seen.at if seen.surplus_since is None else seen.surplus_since
    why = f"{first.host} can be missed: {_cost(first)}."
    if (left := fleet.surplus_seconds - (seen.at - since)) > 0:
        return Decision("none", f"{why} It is stopped in {round(left)} s, unless it is wanted.", surplus_since=since)
    return _shrink(fleet, seen, spare, why, since)


def _shrink(fleet: Fleet, seen: Situation, most: int, why: str, since: float | None = None) -> Decision:
    """Stop all hosts that nobody uses, at most `most`; if there are none, the one that is missed least."""
    if (left := _held(fleet, seen)) > 0:
        return Decision("none", f"{why} The next change can be made in {left} s.", surplus_since=since)
    able = [one for one in seen.leaving if not one.stays and not one.stops]
    unused = [one.host for one in able if not one.moved and not one.loss][:most]
    chosen = tuple(unused or [one.host for one in able[:1]])
    if not chosen:
        return Decision("none", f"{why} Each has a training that cannot leave it.", surplus_since=since)
    return Decision("stop", f"{', '.join(chosen)} leaves. {why}", hosts=chosen, surplus_since=since)


def _is_spare(one: Leaving, fleet: Fleet) -> bool:
    return not one.stops and not one.stays and one.loss <= _STILL_WORTH * fleet.worth * one.slots


def _held(fleet: Fleet, seen: Situation) -> int:
    """Return the seconds until the next change can be made."""
    if seen.changed_at is None:
        return 0
    return max(0, round(seen.changed_at + fleet.hold_seconds - seen.at))


def _cost(one: Leaving) -> str:
    if not one.moved:
        return "no training uses it"
    moved = plural(one.moved, "the {count} GPU that is used moves live", "the {count} GPUs that are used move live")
    return f"{moved}, at a loss of {one.loss:.1f} GPUs of speed"


def wanted_words(wanted: Wanted) -> str:
    """Return a clause that says why hosts are wanted."""
    parts = []
    if wanted.waiting:
        trainings = plural(len(wanted.waiting), "{count} waiting training", "{count} waiting trainings")
        gpus = plural(wanted.waiting_slots, "{count} GPU", "{count} GPUs")
        parts.append(f"{trainings} would take {gpus} now")
    if wanted.paying_hosts:
        hosts = plural(wanted.paying_hosts, "{count} further host", "{count} further hosts")
        parts.append(f"{hosts} would add {wanted.gain:.1f} GPUs of speed")
    return " and ".join(parts)


def _hosts(count: int) -> str:
    return plural(count, "{count} host", "{count} hosts")


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
