"""The shim: supervisor of a job's ranks on one host. It forks the ranks, reaps them, and ends their processes.

There is one shim per (job, attempt, host): single-threaded, in its own session, a child subreaper. It receives
`DesiredJob` lines on its unix socket and sends `ShimStatus` lines to every connected client. Executors and forkservers
may restart, so the shim never ends a rank because of silence. It ends ranks when a desired state requires it, and all
at once when the lifeline closes. Each event is written to its journal on disk before it is sent.

A rank of an elastic script that is not ready to train after `launch_seconds` is ended, as if by its script's error.

A rank that was killed from outside while its slot is still wanted is restarted a few times, with backoff. A rank that
its script ended is not restarted until the coordinator reports that the training has overcome the error, or the slot
has been released and wanted again. Ranks of non-elastic scripts are never restarted: they start together or not at all.
"""

import json
import logging
import os
import selectors
import signal
import socket
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from tidepool import procfs
from tidepool.confine.processes import host_pid
from tidepool.coordinator_client import ShimConnection
from tidepool.env import RankContext
from tidepool.journal import Journal, last_record, read_journal, replace_file
from tidepool.json_sockets import Subscribers
from tidepool.protocol import (
    DesiredJob,
    ProtocolError,
    RankEnd,
    RankExited,
    RankGrouped,
    RankLingers,
    RankStarted,
    RankStatus,
    ShimCommand,
    ShimJoin,
    ShimSpec,
    ShimStatus,
    decode,
    encode,
    to_json,
)
from tidepool.rank_exits import describe_end, error_of, may_be_starved, oom_kills
from tidepool.rank_process import GROUPED, LINGERS, READY, RankStart, run_rank
from tidepool.recordings.requests import RecordingRequests
from tidepool.scratch_watch import ScratchWatch
from tidepool.shim_slots import RankProcess, Slot, SlotGpus
from tidepool.stacks import StackTaker
from tidepool.user_secrets import ShimSecrets

__all__ = ["RESTART_LIMIT", "Shim", "journal_path", "rank_mark"]

logger = logging.getLogger(__name__)

#: Maximum number of consecutive restarts of a slot's rank that lived for less than _LIVED_SECONDS.
RESTART_LIMIT = 5
_LIVED_SECONDS = 10.0
#: Number of ends by scripts that are sent again to a reconnected coordinator.
_REPORTED_ENDS = 16
_FIRST_BACKOFF_SECONDS = 0.2
_SIGTERM_GRACE_SECONDS = 10.0
#: Seconds for a rank to write its stacks after SIGABRT.
_ABORT_SECONDS = 2.0
_LEFTOVER_SECONDS = 5.0
_IDLE_SECONDS = 5.0
_HANDLED_SIGNALS = (signal.SIGTERM, signal.SIGCHLD)


def journal_path(spec: ShimSpec) -> Path:
    return Path(spec.launch.folder) / "journal" / f"shim.{spec.host}.jsonl"


def rank_mark(spec: ShimSpec) -> str:
    """Return the mark prefix of this shim's ranks, without the rank's own id."""
    return f"{spec.mark}.{spec.job}.{spec.attempt}.rank"


class Shim:
    def __init__(self, spec: ShimSpec, listener: socket.socket, lifeline_fd: int | None) -> None:
        procfs.become_subreaper()
        self._spec = spec
        self._lifeline_fd = lifeline_fd
        self._pid = os.getpid()
        #: The same process, as the host counts.
        self._host_pid = host_pid(self._pid)
        self._started_at = procfs.started_at(self._pid)
        self._desired: DesiredJob | None = None
        self._stopping = False
        self._severed = False
        self._ranks: dict[int, RankProcess] = {}
        self._slots: dict[int, Slot] = {}
        self._sent: ShimStatus | None = None
        self._pinned_file = journal_path(spec).with_suffix(".pinned")
        self._starts = 0
        #: The newest ranks that were ended by their script.
        self._ended: deque[RankEnd] = deque(maxlen=_REPORTED_ENDS)
        self._stacks = StackTaker(Path(spec.launch.folder), spec.host)
        self._recordings = RecordingRequests()
        self._scratch = ScratchWatch(spec.slot_scratch_bytes, spec.host)
        self._oom_kills = oom_kills()
        #: Kills for lack of memory that no end has been explained by.
        self._unexplained_kills = 0
        self._recall()
        self._journal = Journal(journal_path(spec))
        self._launch_file = Path(spec.launch.folder) / f"launch.{spec.host}.json"
        # The file contains the job's environment variables, and RESULT_DIR may be readable by others.
        replace_file(self._launch_file, json.dumps(to_json(spec.launch)), mode=0o600)
        self._secrets = ShimSecrets(spec.user_secrets)
        self._wakeup, self._selector = self._listen()
        self._subscribers = Subscribers(listener, self._selector, lambda: encode(self._status()), self._receive_desired)
        self._lead = ShimConnection(
            Path(spec.launch.folder), self._selector, self._join_message, self._receive_command, spec.secret
        )

    def run(self) -> None:
        """Run until the job has been stopped on this host and none of its processes is left."""
        while not self._stopping or self._ranks:
            for key, _ in self._selector.select(self._seconds_to_next_deadline()):
                key.data()
            self._reap()
            if self._severed:
                self._end_everything()
                return
            self._end_released()
            for slot in self._startable():
                if self._slots[slot].start_at <= time.monotonic():
                    self._start(slot)
            self._abort_late()
            self._kill_overdue()
            self._stacks.turn()
            self._scratch.turn(self._ranks.values(), self._kill_rank)
            self._lead.turn()
            self._send_status()
        self._end_everything()
        self._pinned_file.unlink(missing_ok=True)
        self._send_status()

    def _recall(self) -> None:
        """Restore the state after a killed shim; after an orderly end, only the numbering."""
        starts = [entry for entry in read_journal(journal_path(self._spec)) if isinstance(entry, RankStarted)]
        self._starts = len(starts)
        if not self._elastic:
            self._slots = {start.slot: Slot(pinned=True) for start in starts}
        with suppress(FileNotFoundError):
            for slot in json.loads(self._pinned_file.read_text()):
                self._slots[slot] = Slot(pinned=True)

    @property
    def _elastic(self) -> bool:
        return self._spec.launch.engine == "elastic"

    @property
    def _is_one_process(self) -> bool:
        return self._spec.launch.engine == "single"

    def _write_pinned(self) -> None:
        replace_file(self._pinned_file, json.dumps([number for number, slot in self._slots.items() if slot.pinned]))

    def _listen(self) -> tuple[socket.socket, selectors.BaseSelector]:
        woken, waking = socket.socketpair()
        for end in (woken, waking):
            end.setblocking(False)
        self._waking = waking
        signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: self._stop(_SIGTERM_GRACE_SECONDS))
        selector = selectors.DefaultSelector()
        selector.register(woken, selectors.EVENT_READ, self._drain_wakeup)
        if self._lifeline_fd is not None:
            selector.register(self._lifeline_fd, selectors.EVENT_READ, self._sever)
        return woken, selector

    # --- waiting and hearing ---

    def _seconds_to_next_deadline(self) -> float:
        deadlines = [rank.deadline for rank in self._ranks.values() if rank.deadline is not None]
        deadlines += [self._slots[slot].start_at for slot in self._startable()]
        others = self._lead.next_attempt_at, self._stacks.next_look_at, self._scratch.next_look_at
        deadlines += [at for at in others if at is not None]
        return max(0.0, min([deadline - time.monotonic() for deadline in deadlines], default=_IDLE_SECONDS))

    def _drain_wakeup(self) -> None:
        with suppress(BlockingIOError):
            while self._wakeup.recv(4096):
                pass

    def _sever(self) -> None:
        self._severed = True

    def _receive_desired(self, line: bytes) -> None:
        self._sent = None  # a status is due even without a change
        try:
            desired = decode(DesiredJob, line)
        except ProtocolError as error:
            logger.warning("job=%s attempt=%s: refused: %s", self._spec.job, self._spec.attempt, error)
            return
        if (desired.job, desired.attempt) != (self._spec.job, self._spec.attempt):
            logger.debug("job=%s attempt=%s: not ours", desired.job, desired.attempt)
            return
        if self._desired is not None and desired.target_revision < self._desired.target_revision:
            logger.debug("job=%s revision=%s: older than ours", desired.job, desired.target_revision)
            return
        self._desired = desired
        self._stacks.request(desired.stacks, self._ranks.values())
        self._recordings.forward(desired.recording, self._ranks.values())
        if desired.stop:
            self._stop(desired.grace_seconds)
        self._release(set(self._slots) - set(desired.wanted))

    def _join_message(self) -> ShimJoin:
        spec = self._spec
        living = [rank.member_id for rank in self._ranks.values()]
        return ShimJoin(spec.job, spec.attempt, spec.host, living, list(self._ended))

    def _receive_command(self, command: ShimCommand) -> None:
        if command.kind == "retry":
            self._retry(command.member_id)
            return
        for rank in self._ranks.values():
            if rank.member_id == command.member_id and rank.fenced is None:
                logger.warning("job=%s member_id=%s is killed: %s", self._spec.job, rank.member_id, command.why)
                rank.fenced = command.error, command.why
                if command.kind == "abort":
                    self._abort(rank)
                else:
                    self._kill_rank(rank)

    def _retry(self, member_id: str) -> None:
        """Allow another rank in the slot: the training has overcome the error that ended this one."""
        for end in [end for end in self._ended if end.member_id == member_id]:
            self._ended.remove(end)
            if self._slots[end.slot].pinned and end.slot not in self._ranks:
                self._slots[end.slot].pinned = False
                self._retry_later(end.slot, f"the training goes on after {member_id} was ended by its script")
                self._write_pinned()

    def _release(self, slots: set[int]) -> None:
        for slot in slots & set(self._ranks):
            self._ranks[slot].released = True
        pinned = any(self._slots[slot].pinned for slot in slots)
        for slot in slots:
            self._slots[slot] = Slot()
        if pinned:
            self._write_pinned()

    def _pin(self, slot: int) -> None:
        self._slots[slot].pinned = True
        self._write_pinned()

    # --- starting ---

    def _startable(self) -> list[int]:
        """Return slots that should have a rank, have none, and may get one now or later."""
        if self._desired is None or self._stopping:
            return []
        places = sorted(self._desired.wanted)[:1] if self._is_one_process else self._desired.wanted
        empty = [slot for slot in places if slot not in self._ranks]
        for slot in empty:
            self._slots.setdefault(slot, Slot())
        return [slot for slot in empty if not self._slots[slot].pinned]

    def _start(self, slot: int) -> None:
        member_id = f"{self._spec.host}.{slot}.{self._starts + 1}"
        start = self._rank_start(member_id, slot)
        logs = self._secrets.logs(start.context.log_dir, self._selector)
        start = replace(start, log_writers=logs.writers)
        ours, theirs = socket.socketpair()
        # A signal that reached the child before it installed its handlers would be lost, so signals are blocked.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                run_rank(start, theirs)
        except OSError as error:
            ours.close()
            logs.close()
            self._retry_later(slot, str(error))
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED_SIGNALS)
            theirs.close()
            logs.close_writers()
        self._starts += 1
        ready_by = time.monotonic() + self._spec.launch.launch_seconds if self._elastic else None
        log_dir = start.context.log_dir
        started_at = procfs.started_at(pid)
        place = (member_id, slot, start.slots, pid, host_pid(pid), started_at, log_dir, ours)
        rank = RankProcess(*place, ready_by=ready_by, logs=logs)
        self._ranks[slot] = rank
        self._journal.append(RankStarted(member_id, slot, rank.host_pid, rank.started_at, at=time.time()))
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._receive_progress(rank))

    def _rank_start(self, member_id: str, slot: int) -> RankStart:
        spec = self._spec
        assert self._desired is not None
        context = RankContext(
            *(spec.job, spec.attempt, member_id, spec.host, slot, spec.address, spec.launch),
            *(self._desired.target_revision, spec.secret),
        )
        gpus = None if spec.virtual else SlotGpus(spec.slots_per_gpu, spec.gpus, spec.near_cpus)
        slots = tuple(sorted(self._desired.wanted)) if self._is_one_process else (slot,)
        place = (self._launch_file, f"{rank_mark(spec)}.{member_id}", slots, gpus, self._pid, spec.environment)
        cores = spec.cores_per_slot * len(slots)
        return RankStart(context, *place, self._secrets.variables, self._secrets.values, cores, spec.sets_threads)

    def _receive_progress(self, rank: RankProcess) -> None:
        """Read a progress byte: the script has started, is ready to train, has formed a group, or has ended with
        something left that runs. No byte: the pipe is closed."""
        byte = rank.connection.recv(1)
        if not byte:
            self._selector.unregister(rank.connection)
        elif byte == READY:
            rank.ready_by = None
        elif byte == GROUPED:
            self._journal.append(RankGrouped(rank.member_id, rank.slot, at=time.time()))
        elif byte == LINGERS:
            self._journal.append(RankLingers(rank.member_id, rank.slot, at=time.time()))
        elif rank.state == "LAUNCHING":
            rank.state = "RUNNING"

    def _retry_later(self, slot: int, why: str) -> None:
        state = self._slots[slot]
        if state.restarts >= RESTART_LIMIT:
            self._pin(slot)
            logger.warning("job=%s slot=%s: given up after %s restarts: %s", self._spec.job, slot, RESTART_LIMIT, why)
            return
        state.start_at = time.monotonic() + _FIRST_BACKOFF_SECONDS * 2**state.restarts
        state.restarts += 1
        logger.info("job=%s slot=%s restart=%s: %s", self._spec.job, slot, state.restarts, why)

    # --- ending ---

    def _stop(self, grace_seconds: float) -> None:
        """End every rank, permanently for this attempt."""
        self._stopping = True
        for rank in self._ranks.values():
            self._terminate(rank, grace_seconds)

    def _end_released(self) -> None:
        """End ranks in slots that no longer belong to the job; a vacating slot still does."""
        if self._desired is None:
            return
        kept = {*self._desired.wanted, *self._desired.vacating}
        for slot, rank in self._ranks.items():
            if slot not in kept:
                self._terminate(rank, self._desired.grace_seconds)

    def _terminate(self, rank: RankProcess, grace_seconds: float) -> None:
        if rank.state == "STOPPING":
            return
        rank.state = "STOPPING"
        rank.kill_at = time.monotonic() + grace_seconds
        members = procfs.session_members(rank.pid)
        for process in members if self._elastic else self._who_saves(rank, members):
            procfs.kill(process, signal.SIGTERM)

    def _who_saves(self, rank: RankProcess, members: list[psutil.Process]) -> list[psutil.Process]:
        """Return the processes of a plain script that are told to end: the script's, which may save then, and needs
        its data loader's processes for that.

        A process that has started its own ranks and does not handle the signal would end before they have saved: they
        are told instead, if they handle it.
        """
        if self._is_one_process and not procfs.catches(rank.pid, signal.SIGTERM):
            saving = [process for process in members if procfs.catches(process.pid, signal.SIGTERM)]
            if saving:
                return saving
        return [process for process in members if process.pid == rank.pid]

    def _abort_late(self) -> None:
        for rank in self._ranks.values():
            if rank.kill_at is None and rank.deadline is not None and rank.deadline <= time.monotonic():
                logger.warning(
                    "job=%s member_id=%s is killed: it is not ready to train", self._spec.job, rank.member_id
                )
                rank.late = True
                self._abort(rank)

    def _abort(self, rank: RankProcess) -> None:
        """Have a rank write its stacks down; it is killed soon after."""
        rank.kill_at = time.monotonic() + _ABORT_SECONDS
        os.kill(rank.pid, signal.SIGABRT)

    def _kill_overdue(self) -> None:
        for rank in self._ranks.values():
            if rank.kill_at is not None and rank.kill_at <= time.monotonic():
                rank.kill_at = time.monotonic() + 1.0
                self._kill_rank(rank)

    def _kill_rank(self, rank: RankProcess) -> None:
        for process in (*procfs.descendants(rank.pid), *self._own_processes(rank)):
            procfs.kill(process)

    def _own_processes(self, rank: RankProcess) -> list[psutil.Process]:
        """Return the rank's processes, including those that have left its session or parent."""
        return [*procfs.session_members(rank.pid), *procfs.marked(f"{rank_mark(self._spec)}.{rank.member_id}")]

    def _reap(self) -> None:
        while (child := procfs.reap_child()) is not None:
            pid, status = child
            rank = next((rank for rank in self._ranks.values() if rank.pid == pid), None)
            if rank is not None:
                self._bury(rank, os.waitstatus_to_exitcode(status))

    def _bury(self, rank: RankProcess, exit_code: int) -> None:
        self._kill_leftovers(rank)
        rank.logs.close()
        end = describe_end(
            rank.member_id,
            rank.slot,
            exit_code,
            rank.log_dir,
            fenced=rank.fenced,
            late_after=self._spec.launch.launch_seconds if rank.late else None,
            oom_killed=self._oom_killed(exit_code, rank.log_dir),
        )
        how = (end.code, end.signal, end.by_script, end.error, rank.state == "STOPPING")
        self._journal.append(RankExited(rank.member_id, rank.slot, rank.host_pid, *how, self._step(), at=time.time()))
        with suppress(KeyError):
            self._selector.unregister(rank.connection)
        rank.connection.close()
        del self._ranks[rank.slot]
        if end.by_script or end.code == 0:
            self._ended.append(end)
        self._lead.send_join()
        if rank.state == "STOPPING" or rank.released:
            return
        if end.by_script or end.code == 0 or not self._elastic:
            self._pin(rank.slot)
            return
        if time.time() - rank.started_at > _LIVED_SECONDS:
            self._slots[rank.slot].restarts = 0
        self._retry_later(rank.slot, f"{rank.member_id} was killed by signal {end.signal}")

    def _step(self) -> int | None:
        """Return the last step that the attempt has recorded."""
        step = last_record(Path(self._spec.launch.folder) / "metrics.jsonl").get("step")
        return step if type(step) is int and step >= 0 else None

    def _oom_killed(self, exit_code: int, log_dir: Path) -> bool | None:
        """Return whether one of the kernel's kills for lack of memory explains this end; None: unknown.

        Ends are seen in any order: one that needs no explanation leaves the kill for the rank that was killed.
        """
        before, self._oom_kills = self._oom_kills, oom_kills()
        if self._oom_kills is None:
            return None
        self._unexplained_kills += max(0, self._oom_kills - (before or 0))
        is_explained = exit_code == -signal.SIGKILL or may_be_starved(error_of(log_dir, exit_code))
        if not (is_explained and self._unexplained_kills):
            return False
        self._unexplained_kills -= 1
        return True

    def _kill_leftovers(self, rank: RankProcess) -> None:
        """Kill remaining processes of ended ranks: a slot is only empty without them."""
        deadline = time.monotonic() + _LEFTOVER_SECONDS
        while (left := self._own_processes(rank)) and time.monotonic() < deadline:
            for process in left:
                procfs.kill(process)
            time.sleep(0.005)
        for process in left:
            logger.warning(
                "job=%s member_id=%s pid=%s: still there after SIGKILL", self._spec.job, rank.member_id, process.pid
            )

    def _end_everything(self) -> None:
        """Send SIGKILL until no child is left: every orphan becomes a child of this subreaper."""
        while procfs.has_children():
            for process in procfs.descendants(self._pid):
                procfs.kill(process)
            self._reap()
            time.sleep(0.005)

    # --- telling ---

    def _status(self) -> ShimStatus:
        spec = self._spec
        ranks = [
            RankStatus(spec.job, spec.attempt, slot, rank.member_id, rank.host_pid, rank.started_at, rank.state)
            for _, rank in sorted(self._ranks.items())
            for slot in rank.slots
        ]
        revision = 0 if self._desired is None else self._desired.target_revision
        return ShimStatus(spec.job, spec.attempt, self._host_pid, self._started_at, revision, self._stopping, ranks)

    def _send_status(self) -> None:
        status = self._status()
        if status != self._sent:
            self._sent = status
            self._subscribers.send(encode(status))
