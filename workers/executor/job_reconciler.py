"""Reconciler of one job on this host: starts, commands and ends its shim and its coordinator, for the supervisor."""

from __future__ import annotations

import logging
import time
from functools import partial
from pathlib import Path

import msgspec
from tidepool import link, procfs
from tidepool.backoff import Backoff
from tidepool.journal import read_journal
from tidepool.protocol import DesiredJob, DesiredMembership, Finished, Halted, Lost, RankStatus, ShimSpec
from tidepool.shim import journal_path

from workers.executor.aftermath import clear_away
from workers.executor.config import ExecutorConfig
from workers.executor.forkserver import Forkserver, ForkserverError
from workers.executor.links import CoordinatorLink, ShimLink

__all__ = ["JobReconciler"]

logger = logging.getLogger(__name__)

_Backoff = partial(Backoff, first_seconds=0.2, longest_seconds=10.0, settled_seconds=30.0)
#: A coordinator that was told to stop and has no rank here any more gets this long.
_COORDINATOR_GRACE_SECONDS = 5.0


class JobReconciler:
    def __init__(self, config: ExecutorConfig, forkserver: Forkserver, desired: DesiredJob) -> None:
        self.desired = desired
        #: Ranks as last known. Those of a shim that is silent or being cleared away are assumed to live.
        self.ranks: list[RankStatus] = []
        #: Whether this executor itself has observed `ranks`.
        self.observed = False
        self._config = config
        self._forkserver = forkserver
        self._mark = f"{config.mark}.{desired.job}.{desired.attempt}"
        self._shim_socket = self._socket("shim")
        self._coordinator_socket = self._socket("coordinator")
        self._shim: ShimLink | None = None
        self._coordinator: CoordinatorLink | None = None
        self._cleared = False
        self._shim_backoff = _Backoff()
        self._coordinator_backoff = _Backoff()
        self._coordinator_kill_at: float | None = None

    def reconcile(self, *, may_start: bool) -> None:
        """Take the next steps towards the desired state; never waits.

        `may_start`: the forkserver answers and no other attempt of the job is left here.
        """
        self._keep_shim_link()
        if self._shim is None and self._cleared and self._wants_shim() and may_start:
            self._start_shim()
        if self._shim is not None:
            self._shim.send(self.desired)
        self._reconcile_coordinator(may_start=may_start)

    @property
    def links(self) -> list[ShimLink | CoordinatorLink]:
        return [each for each in (self._shim, self._coordinator) if each is not None and each.open]

    @property
    def carried_out(self) -> bool:
        """No process here acts on an older desired state."""
        if self._shim is not None:
            return self._shim.carries_out(self.desired)
        return self._cleared

    @property
    def over(self) -> bool:
        """The job was to be stopped, and nothing of it is left here."""
        return self.desired.stop and self._cleared and self._shim is None and self._coordinator is None

    def detach(self) -> None:
        for each in self.links:
            each.close()

    def forget(self) -> None:
        self._shim_socket.unlink(missing_ok=True)
        self._coordinator_socket.unlink(missing_ok=True)

    # --- the shim ---

    def _keep_shim_link(self) -> None:
        if self._shim is not None:
            self._read_status(self._shim)
        if self._shim is None and not self._cleared:
            self._shim = ShimLink.connect(self._shim_socket)
            if self._shim is None:
                self._clear_away()
            else:
                self._read_status(self._shim)

    def _read_status(self, shim: ShimLink) -> None:
        shim.receive()
        if shim.status is not None:
            self.ranks = shim.status.ranks
            self.observed = True
        if not shim.open:
            self._shim = None
            self._cleared = False

    def _clear_away(self) -> None:
        if clear_away(self._mark, journal_path(self._spec())):
            self._cleared = True
            self.ranks = []
            self.observed = True

    def _wants_shim(self) -> bool:
        return bool(self.desired.wanted) and not self.desired.stop and time.monotonic() >= self._shim_backoff.until

    def _start_shim(self) -> None:
        self._shim_backoff.add(time.monotonic())
        try:
            pid = self._forkserver.fork_shim(self._spec(), self._shim_socket)
        except ForkserverError as error:
            logger.warning("job=%s attempt=%s: no shim: %s", *self._key, error)
            return
        logger.info("job=%s attempt=%s: shim pid=%s", *self._key, pid)
        self._cleared = False
        self._shim = ShimLink.connect(self._shim_socket)

    def _spec(self) -> ShimSpec:
        config, desired = self._config, self.desired
        virtual = config.virtual_slots is not None
        place = (config.host, config.address, config.mark, virtual)
        return ShimSpec(desired.job, desired.attempt, *place, desired.launch, config.slots_per_gpu)

    # --- the coordinator ---

    def _reconcile_coordinator(self, *, may_start: bool) -> None:
        if self._coordinator is not None:
            self._coordinator.receive()
        if self._coordinator is None or not self._coordinator.open:
            self._coordinator = CoordinatorLink.connect(self._coordinator_socket)
        wanted = self.desired.lead and bool(self.desired.members) and not self.desired.stop
        if self._coordinator is None and wanted and may_start and time.monotonic() >= self._coordinator_backoff.until:
            self._start_coordinator()
        if self._coordinator is None:
            return
        self._coordinator.send(msgspec.structs.replace(self._desired_membership(), stop=not wanted))
        if not wanted:
            self._kill_overdue_coordinator()

    def _start_coordinator(self) -> None:
        self._coordinator_backoff.add(time.monotonic())
        if self._training_over():
            return
        try:
            pid = self._forkserver.fork_coordinator(
                self._desired_membership(),
                self.desired.launch,
                address=self._config.address,
                mark=self._config.mark,
                socket=self._coordinator_socket,
            )
        except ForkserverError as error:
            logger.warning("job=%s attempt=%s: no coordinator: %s", *self._key, error)
            return
        logger.info("job=%s attempt=%s: coordinator pid=%s", *self._key, pid)
        self._coordinator = CoordinatorLink.connect(self._coordinator_socket)

    def _desired_membership(self) -> DesiredMembership:
        desired = self.desired
        return DesiredMembership(
            desired.job, desired.attempt, desired.target_revision, desired.members, halt=desired.halt
        )

    def _training_over(self) -> bool:
        """Whether the coordinator has ended by itself, because nothing is left to plan."""
        entries = read_journal(Path(self.desired.launch.folder) / "plans.jsonl")
        return any(isinstance(entry, (Finished, Lost, Halted)) for entry in entries)

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
        return self.desired.job, self.desired.attempt

    def _socket(self, role: str) -> Path:
        name = f"{self.desired.job}.{self.desired.attempt}.{role}.sock"
        return link.socket_path(self._config.run_folder / name)
