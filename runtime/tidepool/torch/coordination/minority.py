"""Decision to hold still where most hosts of a training are out of reach, and the control plane with them. No I/O.

Then it is this host that is cut off, and the others go on under another lead. A host counts as out of reach if its
ranks are gone and its shim has not said since that they have ended. With two hosts neither half is the smaller one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tidepool.protocol import GenerationPlan, HeldStill
from tidepool.torch.coordination.roster import Action, Rank, gone_hosts

__all__ = ["Minority"]

#: Silence of the control plane, in seconds, after which it counts as out of reach: a peer is given up after 6.
HEARD_SECONDS = 5.0
#: Seconds that the other hosts may take to return once enough of them are back.
RETURN_SECONDS = 10.0
#: Leases after which a training that holds still ends.
_LEASES = 3


@dataclass
class Minority:
    #: Seconds of silence after which the control plane has another host lead.
    lease_seconds: float = 30.0
    #: Time when the control plane was last in reach; None: nobody tells.
    heard_at: float | None = None
    #: Time since which the training holds still; None: it does not.
    since: float | None = None
    _unheard: set[str] = field(default_factory=set)
    #: Time when enough hosts were back.
    _regained_at: float | None = None

    def lost_sight(self, host: str) -> None:
        """Record that a rank of the host is out of reach, or has ended."""
        self._unheard.add(host)

    def heard_of(self, host: str) -> None:
        self._unheard.discard(host)

    def decide(self, ranks: Mapping[str, Rank], active: GenerationPlan | None, now: float) -> list[Action] | None:
        """Return the record of holding still, once, or nothing while it lasts; None: go on with those who are there."""
        held_before, without_ranks = self.since is not None, gone_hosts(ranks, active)
        hosts = {member.host for member in active.members} if active else set()
        if not self.holds(without_ranks, len(hosts), now):
            return None
        here = min(hosts - without_ranks, default="")
        return [] if held_before or not here else [HeldStill(here, self.gone(without_ranks), at=now)]

    def gone(self, without_ranks: Collection[str]) -> list[str]:
        """Return those of the hosts that nothing is known of; the others have said that their ranks have ended."""
        return sorted(self._unheard & set(without_ranks))

    def holds(self, without_ranks: Collection[str], hosts: int, now: float) -> bool:
        """Return whether no step may be made. hosts: number of those that trained; without_ranks: those now without."""
        gone = self.gone(without_ranks)
        if self._is_in_touch(now) or not gone or (self.since is None and 2 * len(gone) <= hosts):
            self.since = self._regained_at = None
            return False
        self.since = self.since if self.since is not None else now
        if 2 * len(gone) > hosts:
            self._regained_at = None
            return True
        self._regained_at = self._regained_at if self._regained_at is not None else now
        if now - self._regained_at < RETURN_SECONDS:
            return True
        self.since = self._regained_at = None
        return False

    def is_over(self, now: float) -> bool:
        """Return whether the training has held still for too long."""
        return self.since is not None and now - self.since > _LEASES * self.lease_seconds

    def _is_in_touch(self, now: float) -> bool:
        return self.heard_at is None or now - self.heard_at <= HEARD_SECONDS
