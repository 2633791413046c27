"""Reconciler of one job on this host: starts, commands and ends its shim and its coordinator, for the supervisor.

Nothing here waits for other processes. If a shim was killed, the reconciler ends its remaining ranks and completes its
journal.
"""

import logging
import signal
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
from tidepool import json_sockets, procfs
from tidepool.backoff import Backoff
from tidepool.confine.wall import Wall
from tidepool.fence import newest as newest_lead
from tidepool.journal import Journal, entries_in
from tidepool.protocol import (
    DesiredJob,
    DesiredMembership,
    Entry,
    EnvironmentBuilding,
    EnvironmentFailed,
    EnvironmentUsed,
    Finished,
    GivenSecret,
    Halted,
    LaunchSpec,
    Lost,
    RankExited,
    RankStatus,
    SecretsFailed,
    ShimSpec,
)
from tidepool.safe_open import ForeignFileError
from tidepool.shim import journal_path

from workers.executor.config import ExecutorConfig
from workers.executor.dead_shims import left_behind, ranks_without_end
from workers.executor.devices.near_cpus import near_cpus
from workers.executor.devices.slot_devices import recorded_uuids
from workers.executor.environments.cache import Environments, Failed, Ready
from workers.executor.environments.requirements import TESTED_TORCH, folder_in, has_tested_torch
from workers.executor.environments.software import software_in, why_driver_is_too_old
from workers.executor.folder_watch import FolderWatch, host_journal_path
from workers.executor.forkserver import Forkserver, ForkserverError, Forkservers
from workers.executor.limits import JobLimits
from workers.executor.links import Link
from workers.executor.sealed_secrets import UnreadableSecretsError, opened_secrets
from workers.executor.seals import Seals
from workers.executor.slot_shares import cores_to_use
from workers.executor.users import NoUserError
from workers.executor.walls import asked_of, is_kept_apart, remove_temporary, training_user, wall_for, why_no_training

__all__ = ["JobReconciler"]

logger = logging.getLogger(__name__)

_Backoff = partial(Backoff, first_seconds=0.2, longest_seconds=10.0, settled_seconds=5.0)
#: Seconds that a stopping coordinator without ranks on this host has before it is killed.
_COORDINATOR_GRACE_SECONDS = 5.0
#: Seconds in which a guardian says its first status: its wall and its interpreter take a few on a busy host.
_SILENCE_SECONDS = 60.0
_SHIM_LOST = {
    "kind": "ShimLost",
    "message": "the process that guarded this rank on its host was killed, and the rank with it",
    "traceback": "",
}


class JobReconciler:
    def __init__(
        self,
        config: ExecutorConfig,
        forkservers: Forkservers,
        environments: Environments,
        desired: DesiredJob,
        limits: JobLimits,
        seals: Seals,
    ) -> None:
        self.desired = desired
        #: Ranks as last known. Those of a silent shim, or of one being cleaned up, count as alive.
        self.ranks: list[RankStatus] = []
        #: Whether this executor itself has observed `ranks`.
        self.observed = False
        #: Environment of the job's processes here, as far as it is known.
        self.environment = Ready()
        #: Monotonic time at which the control plane was last in reach; None: not yet.
        self.heard_at: float | None = None
        #: Number of the last entry of the coordinator's journal that the control plane has stored.
        self.acknowledged = 0
        self._config = config
        self._forkservers = forkservers
        self._environments = environments
        self._limits = limits
        self._seals = seals
        self._mark = f"{config.mark}.{desired.job}.{desired.attempt}"
        self._shim_socket = self._socket("shim")
        self._coordinator_socket = self._socket("coordinator")
        self._shim: Link | None = None
        self._coordinator: Link | None = None
        self._cleared = False
        #: Whether the log says that this host does not keep trainings apart as the job's group demands.
        self._warned = False
        #: Types of entries about the job's environment that the journal contains.
        self._journaled: set[type] = set()
        self._shim_backoff = _Backoff()
        self._coordinator_backoff = _Backoff()
        self._coordinator_kill_at: float | None = None
        folder = folder_in(desired.launch.requirements.splitlines())
        journals = journal_path(self._spec()), host_journal_path(Path(desired.launch.folder), config.host)
        self._watch = FolderWatch(Path(folder), environments.folders, *journals) if folder else None

    def reconcile(self, *, may_start: bool) -> None:
        """Take the next steps towards the desired state; never waits.

        `may_start`: the forkserver answers and no other attempt of the job is left here.
        """
        self._keep_shim_link()
        if self._shim is None and self._cleared and self._wants_shim() and may_start:
            self._start_shim()
        if self._shim is not None:
            self._limits.keep(self._key, len(self._slots), asked_of(self._spec(), self._config))
            if self._seals.keep(self._key, self._shim.status, self._slots) or self.desired.stop:
                self._shim.send(msgspec.structs.replace(self.desired, user_secrets="", user_secrets_problem=""))
        self._reconcile_coordinator(may_start=may_start)
        if self._watch is not None and self.ranks:
            self._watch.look()

    @property
    def links(self) -> list[Link]:
        return [each for each in (self._shim, self._coordinator) if each is not None and each.open]

    @property
    def carried_out(self) -> bool:
        """Whether no process here acts on an older desired state."""
        if self._shim is None:
            return self._cleared
        status, desired = self._shim.status, self.desired
        return (
            status is not None and status.target_revision >= desired.target_revision and status.stopping == desired.stop
        )

    @property
    def over(self) -> bool:
        """Whether the job was to be stopped and no process of it is left here."""
        return self.desired.stop and self._cleared and self._shim is None and self._coordinator is None

    def detach(self) -> None:
        for each in self.links:
            each.close()

    def forget(self) -> None:
        self._environments.release(self._key)
        self._shim_socket.unlink(missing_ok=True)
        self._coordinator_socket.unlink(missing_ok=True)
        remove_temporary(self._config, *self._key)
        self._limits.forget(self._key)
        self._seals.forget(self._key)

    # --- the shim ---

    def _keep_shim_link(self) -> None:
        if self._shim is not None:
            self._read_status(self._shim)
        if self._shim is None and not self._cleared:
            self._shim = Link.connect(self._shim_socket, self._key)
            if self._shim is None:
                self._clean_up()
            else:
                self._read_status(self._shim)

    def _read_status(self, shim: Link) -> None:
        shim.receive()
        if shim.status is not None:
            self.ranks = shim.status.ranks
            self.observed = True
        elif time.monotonic() - shim.silent_since > _SILENCE_SECONDS:
            self._end_silent(shim)
        if not shim.open:
            self._shim = None
            self._cleared = False

    def _end_silent(self, shim: Link) -> None:
        """End a guardian that an earlier executor has left and that says nothing: the host waits for it to report."""
        shim.silent_since = time.monotonic()
        for process in procfs.marked(f"{self._mark}.shim"):
            logger.warning("pid=%s mark=%s: killed, it does not answer", process.pid, self._mark)
            procfs.kill(process)
        self.observed = True  # without a status, no desired state counts as carried out, and no slot becomes free

    def _clean_up(self) -> None:
        """End the processes that a killed shim has left, and complete its journal; may take several calls.

        Ranks are found by their records, and their descendants by parent, session and mark.
        """
        journal = journal_path(self._spec())
        ranks = ranks_without_end(journal)
        left = left_behind(self._mark, ranks, user=training_user(self._config, self.desired))
        for process in left:
            logger.warning("pid=%s mark=%s: killed, its shim has died", process.pid, self._mark)
            procfs.kill(process)
        if left:
            return
        now = time.time()
        _append(
            journal,
            *(
                RankExited(each.member_id, each.slot, each.pid, signal=int(signal.SIGKILL), error=_SHIM_LOST, at=now)
                for each in ranks
            ),
        )
        self._cleared = True
        self.ranks = []
        self.observed = True

    def _wants_shim(self) -> bool:
        is_wanted = bool(self.desired.wanted) and not self.desired.stop and not self._limits.why_none
        return is_wanted and time.monotonic() >= self._shim_backoff.until

    @property
    def _slots(self) -> frozenset[int]:
        """Slots of this host that the job holds or will hold."""
        return frozenset({*self.desired.wanted, *self.desired.vacating})

    def _start_shim(self) -> None:
        forkserver = self._parent()
        secrets = self._user_secrets()
        if forkserver is None or secrets is None:
            return
        self._append_once(software_in(self.environment))
        self._shim_backoff.add(time.monotonic())
        spec = self._spec(self._virtual_environment)
        spec = msgspec.structs.replace(spec, user_secrets=secrets, near_cpus=near_cpus(spec.gpus))
        try:
            pid = forkserver.fork_shim(spec, self._shim_socket, self._wall())
        except ForkserverError as error:
            logger.warning("job=%s attempt=%s: starting a shim failed: %s", *self._key, error)
            return
        logger.info("job=%s attempt=%s: shim pid=%s", *self._key, pid)
        self._cleared = False
        asked, devices = asked_of(spec, self._config), self._seals.devices(self._slots)
        if not self._limits.hold(self._key, pid, len(self._slots), asked, devices):
            return
        self._shim = Link.connect(self._shim_socket, self._key)

    @property
    def _virtual_environment(self) -> str:
        """Folder that ranks import from besides; "": their parent has all folders."""
        return "" if self.environment.image else self.environment.given or self.environment.folder

    def _wall(self) -> Wall | None:
        return wall_for(self._config, self.desired, self.environment)

    def _user_secrets(self) -> tuple[GivenSecret, ...] | None:
        """Return the secrets that the job's ranks get; None: they cannot be had, which the journal records."""
        desired, why = self.desired, self.desired.user_secrets_problem
        if not why:
            try:
                return opened_secrets(self._config.key, self._config.host, *self._key, desired.user_secrets)
            except UnreadableSecretsError as error:
                why = f"{self._config.host}: {error}"
        self._append_once(SecretsFailed(why, at=time.time()))
        return None

    def _parent(self) -> Forkserver | None:
        """Return the parent of the job's processes here; None while it or its environment is not ready."""
        if not self._is_kept_apart() or not self._has_environment():
            return None
        launch = self.desired.launch
        folders = [Path(place) for place in (launch.code_folder, launch.folder, launch.data_dir) if place]
        forkserver = self._forkservers.of(self.environment, folders)
        # The supervisor knows that the cluster's is.
        is_ready = forkserver is self._forkservers.own or forkserver.ready()
        if not is_ready or forkserver.abilities is None:
            return None
        if why := why_no_training(self._config, forkserver.abilities):
            if forkserver is not self._forkservers.own:  # a container may lack what its host has
                self._append_once(EnvironmentFailed(why, at=time.time()))
            return None
        return forkserver if self._has_user() else None

    def _is_kept_apart(self) -> bool:
        """Return whether this host still keeps trainings apart as the job's group demands: else it starts nothing.

        The scheduler moves the job once the host has reported its level.
        """
        if is_kept_apart(self._config, self.desired.least_isolation):
            return True
        if not self._warned:
            level = self._config.isolation, self.desired.least_isolation
            logger.warning(
                "job=%s attempt=%s: not started, this host is %s and its group demands %s", *self._key, *level
            )
        self._warned = True
        return False

    def _has_user(self) -> bool:
        """Return whether the job's processes have a user here; the journal records why not."""
        try:
            self._wall()
        except NoUserError as error:
            self._append_once(EnvironmentFailed(f"{self._config.host}: {error}", at=time.time()))
            return False
        return True

    def _has_environment(self) -> bool:
        """Return whether the job's environment is ready.

        It is not while it is being built, and if that failed or it does not fit the job, which the journal records.
        """
        requirements, folder = self.desired.launch.requirements, Path(self.desired.launch.folder)
        log = folder / "log" / f"environment@{self._config.host}" / "stdout"
        answer = self._environments.ask(self._key, requirements, log)
        if answer is None:
            self._append_once(EnvironmentBuilding(requirements, at=time.time()))
            return False
        why = answer.why if isinstance(answer, Failed) else _why_unfit(self.desired.launch, answer)
        if why:
            self._append_once(EnvironmentFailed(why, at=time.time()))
            return False
        assert isinstance(answer, Ready)
        self.environment = answer
        return True

    def _append_once(self, entry: EnvironmentBuilding | EnvironmentFailed | EnvironmentUsed | SecretsFailed) -> None:
        if type(entry) in self._journaled:
            return
        journal = journal_path(self._spec())
        if not any(type(each) is type(entry) for each in entries_in(journal)):
            _append(journal, entry)
        self._journaled.add(type(entry))

    def _spec(self, environment: str = "") -> ShimSpec:
        config, desired = self._config, self.desired
        virtual = config.virtual_slots is not None
        place = (config.host, config.address, config.mark, virtual)
        gpus = () if virtual else recorded_uuids(config.run_folder)
        own = (config.slots_per_gpu, environment, gpus, desired.secret)
        return ShimSpec(
            *(desired.job, desired.attempt, *place, desired.launch, *own),
            slot_cores=cores_to_use(config),
            sets_threads=config.sets_threads,
            slot_scratch_bytes=config.slot_scratch_bytes,
        )

    # --- the coordinator ---

    def _reconcile_coordinator(self, *, may_start: bool) -> None:
        if self._coordinator is not None:
            self._coordinator.receive()
        if self._coordinator is None or not self._coordinator.open:
            self._coordinator = Link.connect(self._coordinator_socket, self._key)
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
        if self._training_over() or newest_lead(Path(self.desired.launch.folder)) > self.desired.lead_number:
            return  # this host hears later than the others that it does not lead any more
        # Ranks of an elastic script meet in a store of their own torch.
        forkserver = self._parent() if self.desired.launch.engine == "elastic" else self._forkservers.own
        if forkserver is None or not self._is_kept_apart() or not self._has_user():
            self._coordinator_backoff.reset()  # nothing has failed: its environment is not ready yet
            return
        try:
            pid = forkserver.fork_coordinator(
                self._desired_membership(),
                self.desired.launch,
                address=self._config.address,
                host=self._config.host,
                mark=self._config.mark,
                socket=self._coordinator_socket,
                wall=self._wall(),
            )
        except ForkserverError as error:
            logger.warning("job=%s attempt=%s: starting a coordinator failed: %s", *self._key, error)
            return
        logger.info("job=%s attempt=%s: coordinator pid=%s", *self._key, pid)
        self._coordinator = Link.connect(self._coordinator_socket, self._key)

    def _desired_membership(self) -> DesiredMembership:
        desired = self.desired
        return DesiredMembership(
            desired.job,
            desired.attempt,
            desired.target_revision,
            desired.members,
            halt=desired.halt,
            lead_number=desired.lead_number,
            heard_at=self.heard_at,
            acknowledged=self.acknowledged,
            secret=desired.secret,
        )

    def _training_over(self) -> bool:
        """Return whether the coordinator has ended because the training is over."""
        entries = entries_in(Path(self.desired.launch.folder) / "plans.jsonl")
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
        return json_sockets.socket_path(self._config.run_folder / name)


def _why_unfit(launch: LaunchSpec, environment: Ready) -> str:
    """Return why a script cannot run in the environment, or ""."""
    if environment.is_whole and (why := why_driver_is_too_old(environment)):
        return why
    if launch.engine != "elastic" or not environment.is_whole or has_tested_torch(environment.torch):
        return ""
    found = f"torch {environment.torch}" if environment.torch else "no torch"
    return (
        f"an elastic script needs torch{TESTED_TORCH}, and the environment that its requirements ask for has {found}: "
        "ask for one of these versions, or submit the training with a fixed number of GPUs"
    )


def _append(journal: Path, *entries: Entry) -> None:
    """Append to a journal, unless the training has put something else in its place: the entries are its own loss."""
    if not entries:
        return
    try:
        with closing(Journal(journal)) as writer:
            for entry in entries:
                writer.append(entry)
    except ForeignFileError as error:
        logger.warning("%s: entries are lost: %s", journal, error)
