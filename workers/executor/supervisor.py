"""Control loop of the executor: one thread that reconciles the processes of this host with its newest desired state.

The supervisor may be killed at any line: shims, coordinators and ranks go on without it, and the next supervisor finds
them by the records and sockets in the run folder.
"""

import fcntl
import logging
import os
import selectors
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
from tidepool import procfs
from tidepool.backoff import Interval
from tidepool.protocol import DesiredJob, EnvironmentState, RankStatus, Sync

from workers.executor.config import ExecutorConfig
from workers.executor.environments.cache import Environments
from workers.executor.environments.preparation import Preparation
from workers.executor.forkserver import Forkservers
from workers.executor.job_reconciler import JobReconciler
from workers.executor.journals import Journals
from workers.executor.limits import JobLimits
from workers.executor.namespace import OUT_OF_SIGHT, is_left_out_of_sight
from workers.executor.saved_state import JobKey, Records, load_records, save_records
from workers.executor.seals import Seals
from workers.executor.walls import isolation_of, tried_users

__all__ = ["Observation", "Supervisor"]

logger = logging.getLogger(__name__)

#: Age in seconds of a report beyond which the answer to it is outdated: newer decisions may exist.
_SYNC_LIMIT_SECONDS = 30.0
#: Number of desired states whose times are kept for an estimate of the clock's offset.
_BEHIND_READINGS = 20
#: Seconds between two looks for processes in another PID namespace.
_NAMESPACE_SECONDS = 1.0
_BUSY_SECONDS = 0.1
_QUIET_SECONDS = 0.5


@dataclass(frozen=True)
class Observation:
    """Facts about this host that the supervisor itself has observed."""

    applied_revision: int = 0
    ranks: list[RankStatus] = field(default_factory=list)
    #: Seconds by which this host's clock is behind at least: a desired state arrives after it was sent.
    least_behind: float | None = field(default=None, compare=False)
    environments: tuple[EnvironmentState, ...] = ()
    #: Fields of the host's facts about what keeps trainings apart; empty before they are known.
    isolation: Mapping[str, Any] = field(default_factory=dict)
    #: Number of hosts that report to the control plane, as it has told last; 0: it has not.
    hosts: int = field(default=0, compare=False)


class Supervisor:
    def __init__(
        self,
        config: ExecutorConfig,
        journals: Journals,
        changed: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._journals = journals
        self._changed = changed
        self._clock = clock
        self._forkservers = Forkservers(
            config.run_folder,
            config.home,
            config.lifeline_fd,
            idle_most=config.idle_forkservers,
            words=tried_users(config),
        )
        self._limits = JobLimits(
            config.slot_limits,
            config.mark,
            filters_devices=config.isolation == "sealed",
            by_systemd=config.by_systemd,
        )
        self._seals = Seals(config, self._limits)
        self._environments = Environments(
            config.environments_folder,
            config.installer_environment,
            answered=self._wake,
            limit_bytes=config.environments_bytes,
            agreed=config.home / "environments",
        )
        self._preparation = Preparation(self._environments)
        self._records = Records()
        self._jobs: dict[JobKey, JobReconciler] = {}
        self._applied_revision = 0
        self._orphans_ended = False
        self._guard = threading.Lock()
        self._inbox: Sync | None = None
        #: Seconds by which the newest desired states were sent later than they arrived, by this host's clock.
        self._behind: deque[float] = deque(maxlen=_BEHIND_READINGS)
        self._hosts = 0
        self._observation: Observation | None = None
        #: Monotonic time at which the control plane's broker last took a report of this host.
        self._heard_at: float | None = None
        self._leaving = threading.Event()
        self._woken, self._waking = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        self._config.run_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._woken.setblocking(False)
        self._thread.start()

    def submit(self, sync: Sync) -> None:
        """Accept a desired state for the next cycle; thread-safe. Late, older and other hosts' states are dropped.

        Revision 0 is an acknowledgement of journal entries, and no desired state.
        """
        if sync.host != self._config.host:
            logger.warning("host=%s: a desired state for another host was dropped", sync.host)
            return
        if sync.echo is not None and self._clock() - sync.echo > _SYNC_LIMIT_SECONDS:
            logger.info("revision=%s: dropped, the answer is to an outdated report", sync.revision)
            return
        self._behind.append(sync.sent_at - self._clock())
        self._hosts = sync.hosts or self._hosts
        # At once: a newer desired state that arrives before the next cycle need not repeat these numbers.
        self._journals.acknowledge(sync.acknowledged)
        with self._guard:
            if sync.revision and (self._inbox is None or sync.revision >= self._inbox.revision):
                self._inbox = sync
        self._wake()

    def note_heard(self) -> None:
        """Record that a report has reached the control plane's broker; thread-safe."""
        self._heard_at = time.monotonic()

    def observation(self) -> Observation | None:
        """Return the newest observation; None until the state of every process of an earlier executor is known."""
        return self._observation

    def folders(self) -> list[str]:
        """Return the folders of the attempts on this host; thread-safe."""
        return [desired.launch.folder for desired in list(self._records.desired_jobs.values())]

    def detach(self) -> None:
        """Stop supervising and leave every rank running. Forkservers keep running while jobs are left."""
        self._leaving.set()
        self._wake()
        if self._thread.ident is not None:
            self._thread.join(30.0)

    def _wake(self) -> None:
        with suppress(BlockingIOError, BrokenPipeError):
            self._waking.send(b".")

    # --- the thread ---

    def _run(self) -> None:
        try:
            with (self._config.run_folder / "executor.lock").open("w") as lock:
                if self._take_lock(lock) and self._wait_for_namespace():
                    self._recall()
                    self._supervise()
        except Exception:
            logger.exception("host=%s: the supervisor failed, the executor ends", self._config.host)
            os.kill(os.getpid(), signal.SIGTERM)

    def _supervise(self) -> None:
        while not self._leaving.is_set():
            try:
                self._reconcile()
            except Exception:
                logger.exception("host=%s: a cycle failed, retrying", self._config.host)
            self._wait()
        self._leave()

    def _take_lock(self, lock: IO[str]) -> bool:
        """Wait until an earlier executor of this host ends, and lock the host; return False if this one is leaving."""
        while not self._leaving.is_set():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._wait()
            else:
                return True
        return False

    def _wait_for_namespace(self) -> bool:
        """Wait while processes of this host run where this executor sees none; return False if this one is leaving."""
        looks, warned = Interval(_NAMESPACE_SECONDS), False
        while not self._leaving.is_set():
            if looks.is_due(time.monotonic()):
                if not is_left_out_of_sight(self._config.run_folder):
                    return True
                if not warned:
                    logger.error(OUT_OF_SIGHT, self._config.host, self._config.run_folder)
                    warned = True
            self._wait()
        return False

    def _recall(self) -> None:
        self._forkservers.recall()
        self._records = load_records(self._records_file)
        for desired in self._records.desired_jobs.values():
            self._follow(desired)

    def _leave(self) -> None:
        for job in self._jobs.values():
            job.detach()
        if not self._jobs:
            self._forkservers.end()

    def _reconcile(self) -> None:
        self._accept_newest()
        ready = self._forkservers.own.ready()
        for key, job in list(self._jobs.items()):
            job.heard_at = self._heard_at
            job.acknowledged = self._journals.acknowledged(f"{key[0]}.{key[1]}.coordinator")
            try:
                job.reconcile(may_start=ready and not self._has_other_attempt(key))
                if job.over:
                    self._drop(key)
            except Exception:  # what its script has done to its files must not keep the others waiting
                logger.exception("job=%s attempt=%s: a cycle failed, retrying", *key)
        self._forkservers.end_unused({Path(job.environment.folder).name for job in self._jobs.values()})
        if all(job.carried_out for job in self._jobs.values()):
            self._applied_revision = self._records.revision
        self._observe()

    def _has_other_attempt(self, key: JobKey) -> bool:
        return any(other != key and other[0] == key[0] for other in self._jobs)

    def _wait(self) -> None:
        """Wait for a message or the next cycle. A closed lifeline ends this process at once."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            for each in (each for job in self._jobs.values() for each in job.links):
                selector.register(each.connection, selectors.EVENT_READ)
            if self._config.lifeline_fd is not None:
                selector.register(self._config.lifeline_fd, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(self._cycle_seconds())}
        if self._config.lifeline_fd in ready:
            os._exit(1)
        with suppress(BlockingIOError):
            self._woken.recv(4096)

    def _cycle_seconds(self) -> float:
        quiet = self._observation is not None and all(job.carried_out for job in self._jobs.values())
        return _QUIET_SECONDS if quiet else _BUSY_SECONDS

    # --- desired states ---

    def _accept_newest(self) -> None:
        with self._guard:
            sync, self._inbox = self._inbox, None
        if sync is None:
            return
        if sync.revision < self._records.revision:
            logger.debug("revision=%s: older than %s", sync.revision, self._records.revision)
            return
        self._preparation.accept(sync.environments)
        records = Records(sync.revision, self._merged(sync))
        if records != self._records:
            self._records = records
            save_records(self._records_file, records)
        for desired in self._records.desired_jobs.values():
            self._follow(desired)
        self._end_orphans()

    def _merged(self, sync: Sync) -> dict[JobKey, DesiredJob]:
        """Return the desired jobs, and those absent from the desired state as stopping until they have ended."""
        absent = {key: msgspec.structs.replace(job.desired, stop=True) for key, job in self._jobs.items()}
        return absent | {(desired.job, desired.attempt): desired for desired in sync.jobs}

    def _follow(self, desired: DesiredJob) -> None:
        key = (desired.job, desired.attempt)
        job = self._jobs.get(key)
        self._journals.follow(desired)
        if job is None:
            parts = self._forkservers, self._environments, desired, self._limits, self._seals
            self._jobs[key] = JobReconciler(self._config, *parts)
        elif desired.target_revision >= job.desired.target_revision:
            job.desired = desired

    def _drop(self, key: JobKey) -> None:
        self._jobs.pop(key).forget()
        self._journals.release(key)
        del self._records.desired_jobs[key]
        save_records(self._records_file, self._records)

    def _end_orphans(self) -> None:
        """End, once, the processes of jobs that neither the records nor the control plane know."""
        if self._orphans_ended:
            return
        self._orphans_ended = True
        all_ours = procfs.marked(self._config.mark)  # before `known`: a process forked in between is no orphan
        marks = [f"{self._config.mark}.{job}.{attempt}" for job, attempt in self._jobs]
        known = {process.pid for mark in marks for process in procfs.marked(mark)}
        for process in all_ours:
            if process.pid not in known:
                logger.warning("pid=%s: killed, it belongs to no job of this host", process.pid)
                procfs.kill(process)

    # --- facts ---

    def _observe(self) -> None:
        environments = self._preparation.states(self._forkservers.memory())
        if not all(job.observed for job in self._jobs.values()):
            return
        ranks = [rank for _, job in sorted(self._jobs.items()) for rank in job.ranks]
        before = self._observation
        behind = max(self._behind, default=None)
        isolation = isolation_of(self._config, self._forkservers.own.abilities, self._limits.why_none)
        self._observation = Observation(self._applied_revision, ranks, behind, environments, isolation, self._hosts)
        if self._observation != before:
            self._changed()

    @property
    def _records_file(self) -> Path:
        return self._config.run_folder / "desired.json"
