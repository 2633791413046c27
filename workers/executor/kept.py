"""One job on this host: makes its keeper and coordinator equal to the wish, a little at each turn."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tidepool import link, procfs
from tidepool.journal import read_journal
from tidepool.keeper import journal_path
from tidepool.protocol import CoordinatorWish, JobWish, KeeperSpec, RankStatus

from workers.executor.aftermath import clear_away
from workers.executor.config import ExecutorConfig
from workers.executor.links import CoordinatorLink, KeeperLink, connect_coordinator, connect_keeper
from workers.executor.nursery import Nursery, NurseryError

__all__ = ["KeptJob"]

logger = logging.getLogger(__name__)

_LAST_BACKOFF_SECONDS = 10.0
#: What has lived this long is started again with the first backoff.
_SETTLED_SECONDS = 30.0
#: A coordinator that was told to stop and has no rank here any more gets this long.
_COORDINATOR_GRACE_SECONDS = 5.0


@dataclass
class _Backoff:
    seconds: float = 0.0
    until: float = 0.0

    def over(self) -> bool:
        return time.monotonic() >= self.until

    def more(self) -> None:
        if time.monotonic() > self.until + _SETTLED_SECONDS:
            self.seconds = 0.0
        self.seconds = min(_LAST_BACKOFF_SECONDS, self.seconds * 2 or 0.2)
        self.until = time.monotonic() + self.seconds


class KeptJob:
    def __init__(self, config: ExecutorConfig, nursery: Nursery, wish: JobWish) -> None:
        self.wish = wish
        #: The ranks as last known: of a keeper that is silent or being cleared away they are still assumed.
        self.ranks: list[RankStatus] = []
        #: Whether `ranks` is founded on this executor's own observation.
        self.observed = False
        self._config = config
        self._nursery = nursery
        self._mark = f"{config.mark}.{wish.job}.{wish.incarnation}"
        self._keeper_socket = self._socket("keeper")
        self._coordinator_socket = self._socket("coordinator")
        self._keeper: KeeperLink | None = None
        self._coordinator: CoordinatorLink | None = None
        self._cleared = False
        self._keeper_backoff = _Backoff()
        self._coordinator_backoff = _Backoff()
        self._coordinator_kill_at: float | None = None

    def turn(self, *, may_start: bool) -> None:
        """Bring fact nearer to wish. `may_start`: the nursery answers and no other incarnation is left here."""
        self._keep_link()
        if self._keeper is None and self._cleared and self._wants_keeper() and may_start:
            self._start_keeper()
        if self._keeper is not None:
            self._keeper.tell(self.wish)
        self._see_to_coordinator(may_start=may_start)

    @property
    def links(self) -> list[KeeperLink | CoordinatorLink]:
        return [each for each in (self._keeper, self._coordinator) if each is not None and each.open]

    @property
    def carried_out(self) -> bool:
        """No process here acts on an older wish."""
        if self._keeper is not None:
            return self._keeper.carries_out(self.wish)
        return self._cleared

    @property
    def over(self) -> bool:
        """It was to be stopped, and nothing is left."""
        return self.wish.stop and self._cleared and self._keeper is None and self._coordinator is None

    def detach(self) -> None:
        for each in self.links:
            each.close()

    def forget(self) -> None:
        self._keeper_socket.unlink(missing_ok=True)
        self._coordinator_socket.unlink(missing_ok=True)

    # --- the keeper ---

    def _keep_link(self) -> None:
        if self._keeper is not None:
            self._hear_keeper(self._keeper)
        if self._keeper is None and not self._cleared:
            self._keeper = connect_keeper(self._keeper_socket)
            if self._keeper is None:
                self._clear_away()
            else:
                self._hear_keeper(self._keeper)

    def _hear_keeper(self, keeper: KeeperLink) -> None:
        keeper.hear()
        if keeper.status is not None:
            self.ranks = keeper.status.ranks
            self.observed = True
        if not keeper.open:
            self._keeper = None
            self._cleared = False

    def _clear_away(self) -> None:
        if clear_away(self._mark, journal_path(self._spec())):
            self._cleared = True
            self.ranks = []
            self.observed = True

    def _wants_keeper(self) -> bool:
        return bool(self.wish.wanted) and not self.wish.stop and self._keeper_backoff.over()

    def _start_keeper(self) -> None:
        self._keeper_backoff.more()
        try:
            pid = self._nursery.fork_keeper(self._spec(), self._keeper_socket)
        except NurseryError as error:
            logger.warning("job=%s incarnation=%s: no keeper: %s", *self._key, error)
            return
        logger.info("job=%s incarnation=%s: keeper pid=%s", *self._key, pid)
        self._cleared = False
        self._keeper = connect_keeper(self._keeper_socket)

    def _spec(self) -> KeeperSpec:
        config, wish = self._config, self.wish
        virtual = config.virtual_slots is not None
        place = (config.host, config.address, config.mark, virtual)
        return KeeperSpec(wish.job, wish.incarnation, *place, wish.launch, config.slots_per_gpu)

    # --- the coordinator ---

    def _see_to_coordinator(self, *, may_start: bool) -> None:
        if self._coordinator is not None:
            self._coordinator.hear()
        if self._coordinator is None or not self._coordinator.open:
            self._coordinator = connect_coordinator(self._coordinator_socket)
        wanted = self.wish.lead and bool(self.wish.members) and not self.wish.stop
        if self._coordinator is None and wanted and may_start and self._coordinator_backoff.over():
            self._start_coordinator()
        if self._coordinator is None:
            return
        self._coordinator.tell(replace(self._coordinator_wish(), stop=not wanted))
        if not wanted:
            self._kill_overdue_coordinator()

    def _start_coordinator(self) -> None:
        self._coordinator_backoff.more()
        if self._training_over():
            return
        try:
            pid = self._nursery.fork_coordinator(
                self._coordinator_wish(),
                self.wish.launch,
                address=self._config.address,
                mark=self._config.mark,
                socket=self._coordinator_socket,
            )
        except NurseryError as error:
            logger.warning("job=%s incarnation=%s: no coordinator: %s", *self._key, error)
            return
        logger.info("job=%s incarnation=%s: coordinator pid=%s", *self._key, pid)
        self._coordinator = connect_coordinator(self._coordinator_socket)

    def _coordinator_wish(self) -> CoordinatorWish:
        wish = self.wish
        return CoordinatorWish(wish.job, wish.incarnation, wish.target_revision, wish.members, halt=wish.halt)

    def _training_over(self) -> bool:
        """A coordinator ends by itself when there is nothing left to plan."""
        entries = read_journal(Path(self.wish.launch.folder) / "plans.jsonl")
        return any(entry["kind"] in ("finished", "lost", "halted") for entry in entries)

    def _kill_overdue_coordinator(self) -> None:
        now = time.monotonic()
        if self.ranks or self._coordinator_kill_at is None:
            self._coordinator_kill_at = now + _COORDINATOR_GRACE_SECONDS
        elif now > self._coordinator_kill_at:
            for process in procfs.marked(f"{self._mark}.coordinator"):
                procfs.kill(process)

    # --- names ---

    @property
    def _key(self) -> tuple[int, int]:
        return self.wish.job, self.wish.incarnation

    def _socket(self, role: str) -> Path:
        name = f"{self.wish.job}.{self.wish.incarnation}.{role}.sock"
        return link.socket_path(self._config.run_folder / name)
