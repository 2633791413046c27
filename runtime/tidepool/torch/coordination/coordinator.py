"""A job's coordinator: the process around `membership.py`, on the job's lead host.

It holds the store in which the members of a generation meet, a TCP listener for the job's ranks and shims, who prove
that they are the job's, and a unix socket for the lead executor. Each decision is in the journal (`plans.jsonl`) before
anybody is told. When it is killed, ranks train on; the next coordinator of the attempt reads the journal and waits for
the ranks to come back.
"""

import errno
import json
import logging
import os
import selectors
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from torch._C._distributed_c10d import TCPStore

from tidepool import fence
from tidepool.env import share_faults
from tidepool.faults import fault
from tidepool.handshake import Gate, introduce
from tidepool.journal import Journal, read_numbered, replace_file
from tidepool.json_sockets import Lines, connect_tcp, set_tcp_options
from tidepool.network_interfaces import listen_at
from tidepool.procfs import started_at
from tidepool.profile_checks import Profiles
from tidepool.protocol import (
    KEPT_CHECKPOINTS,
    STALL_SECONDS,
    AskFirst,
    CheckpointPublished,
    CoordinatorMessage,
    DesiredMembership,
    Entry,
    Finished,
    FirstAnswer,
    GenerationActive,
    GenerationPlan,
    GenerationPlanned,
    Halted,
    Join,
    LaunchSpec,
    LeadTaken,
    Lost,
    MemberMessage,
    ProtocolError,
    RankEnd,
    RankFailed,
    RankStuck,
    Retire,
    ShimCommand,
    ShimJoin,
    decode,
    encode,
    host_of,
)
from tidepool.torch.coordination import publication
from tidepool.torch.coordination.fixed_membership import GANG_GENERATION, FixedMembership
from tidepool.torch.coordination.heartbeats import Patience
from tidepool.torch.coordination.membership import Membership
from tidepool.torch.coordination.minority import Minority
from tidepool.torch.coordination.roster import Action, Publish, Send
from tidepool.torch.coordination.store_server import StoreServer
from tidepool.torch.coordination.time_sums import TimeSums

__all__ = ["Coordinator"]

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.1
#: Seconds that ranks may take to exit after the end before the coordinator exits without waiting for them.
LINGER_SECONDS = 30.0
#: Seconds that a predecessor may take to end before its successor starts anyway.
RETIRE_SECONDS = 5.0
#: Seconds between two looks at the fence while nothing is written.
_FENCE_SECONDS = 1.0
#: Seconds that the predecessor's host may take to answer.
_REACH_SECONDS = 2.0
#: Callers that the kernel keeps for the coordinator while it is busy.
_BACKLOG = 1024


@dataclass
class _Peer:
    """A connection: of a rank or a shim once it has joined, else of an executor or not yet known."""

    connection: socket.socket
    from_executor: bool
    member_id: str | None = None
    #: A shim's host.
    shim_of: str | None = None
    lines: Lines = field(default_factory=Lines)


class Coordinator:
    """address: where ranks connect, on `host`. control: a listening unix socket, for the lead executor."""

    def __init__(
        self,
        desired: DesiredMembership,
        launch: LaunchSpec,
        address: str,
        host: str,
        control: socket.socket,
        lifeline_fd: int | None,
    ) -> None:
        share_faults(launch)
        self._desired, self._launch, self._folder = desired, launch, Path(launch.folder)
        self._address, self._host = address, host
        self._secret = desired.secret
        self._listener = listen_at(address, _BACKLOG)
        self._store_port: int = self._listener.getsockname()[1]
        self._open_store: TCPStore | None = None
        if not self._secret:  # ranks of an attempt that began under an earlier release know TCPStores only
            self._open_store, self._store_port = _open_store(address)
        self._control = control
        self._lifeline_fd = lifeline_fd
        self._peers: dict[str, _Peer] = {}
        #: Connections to shims, by host.
        self._shims: dict[str, _Peer] = {}
        self._running = True
        self._ended_at: float | None = None
        self._selector = selectors.DefaultSelector()
        self._stores = StoreServer(self._selector)
        self._membership: Membership | FixedMembership = (
            self._elastic()
            if launch.engine == "elastic"
            else FixedMembership(launch.min_slots, is_one_process=launch.engine == "single")
        )
        self._profiles = Profiles()
        self._times = TimeSums()
        #: Number of each published checkpoint's entry in the journal, and of the last entry that is stored.
        self._checkpoint_entries: dict[int, str] = {}
        self._acknowledged = 0
        self._lead = fence.take(self._folder, desired.lead_number)
        self._fence_due = time.monotonic() + _FENCE_SECONDS
        gone_host = self._retire_predecessor()
        self._journal = Journal(self._folder / "plans.jsonl", desired.lead_number)
        if desired.lead_number:
            self._append(LeadTaken(host, at=time.time()))
        self._restore()
        if isinstance(self._membership, Membership):
            self._membership.succession.give_up(gone_host)
        self._apply_desired(desired)

    def run(self) -> None:
        """Run until the attempt is over. Raises SupersededError once another one leads."""
        self._selector.register(self._control, selectors.EVENT_READ, self._accept_executor)
        gate = Gate(self._listener, self._secret, ("coordinator", "store"), self._selector, self._admit)
        if self._lifeline_fd is not None:
            self._selector.register(self._lifeline_fd, selectors.EVENT_READ, self._end)
        self._publish_address()
        while self._running:
            for key, _ in self._selector.select(TICK_SECONDS):
                key.data()
            gate.turn()
            self._look_at_fence()
            self._act(self._membership.ticked(time.time()))
            self._end_when_over()

    def _look_at_fence(self) -> None:
        if time.monotonic() >= self._fence_due:
            self._lead.check()
            self._fence_due = time.monotonic() + _FENCE_SECONDS

    def _end(self) -> None:
        self._running = False

    def _accept_executor(self) -> None:
        connection, _ = self._control.accept()
        self._follow(_Peer(connection, from_executor=True))

    def _admit(self, connection: socket.socket, purpose: str) -> None:
        """Take a caller that has proven itself."""
        set_tcp_options(connection)
        if purpose == "store":
            self._stores.admit(connection)
        else:
            self._follow(_Peer(connection, from_executor=False))

    def _follow(self, peer: _Peer) -> None:
        peer.connection.settimeout(5.0)
        self._selector.register(peer.connection, selectors.EVENT_READ, partial(self._read, peer))

    def _read(self, peer: _Peer) -> None:
        lines = peer.lines.receive(peer.connection)
        if lines is None:
            self._close(peer)
            return
        for line in lines:
            try:
                self._receive(peer, line)
            except ProtocolError as error:
                logger.warning("job=%s dropped a line that is not of the protocol: %s", self._desired.job, error)
                self._close(peer)
                return

    def _receive(self, peer: _Peer, line: bytes) -> None:
        now = time.time()
        if peer.from_executor:
            self._apply_desired(decode(DesiredMembership, line))
        elif peer.shim_of is not None:
            self._act(self._membership.shim_joined(decode(ShimJoin, line), now))
        elif peer.member_id is None:
            join = _first_line(line)
            if (join.job, join.attempt) != (self._desired.job, self._desired.attempt):
                raise ProtocolError(f"a caller of job {join.job}, attempt {join.attempt}")
            if isinstance(join, Retire):
                self._running = False
                return
            if isinstance(join, AskFirst):
                membership = self._membership
                is_first = isinstance(membership, Membership) and membership.names_first(join.asks_first)
                self._send(peer, encode(FirstAnswer(is_first)))
                return
            if isinstance(join, ShimJoin):
                peer.shim_of = join.host
                self._shims[join.host] = peer
                self._act(self._membership.shim_joined(join, now))
                return
            peer.member_id = join.member_id
            self._peers[join.member_id] = peer
            if join.lead_number is not None:
                self._tell(peer, CoordinatorMessage("lead"))
            self._begin_session(join, now)
            self._act(self._membership.joined(join, now))
        else:
            message = decode(MemberMessage, line)
            if message.kind == "profile":
                self._act([*self._profiles.received(message, now)])
            else:
                self._act(self._membership.received(peer.member_id, message, now))
            if message.spent is not None:
                self._act([*self._times.received(peer.member_id, message.spent, message.step, self._trains(), now)])

    def _trains(self) -> list[str]:
        """Return the members of the active generation."""
        plan = self._membership.active
        return [] if plan is None else [member.member_id for member in plan.members]

    def _elastic(self) -> Membership:
        launch = self._launch
        patience = Patience(launch.stuck_seconds, launch.stall_seconds or STALL_SECONDS, launch.launch_seconds)
        minority = Minority(launch.lease_seconds)
        return Membership(self._address, self._store_port, launch.min_slots, patience, minority=minority)

    def _begin_session(self, join: Join, now: float) -> None:
        """Turn a single-process training that created a session into an elastic training of one rank."""
        gang = self._membership
        if join.gang or isinstance(gang, Membership):
            return
        self._membership = self._elastic()
        self._membership.generation = GANG_GENERATION
        self._act(self._membership.retarget(gang.target, gang.target_revision, now))

    def _apply_desired(self, desired: DesiredMembership) -> None:
        if (desired.job, desired.attempt) != (self._desired.job, self._desired.attempt):
            raise ProtocolError(f"a desired state for job {desired.job}, attempt {desired.attempt}")
        if desired.stop:
            self._running = False
            return
        if desired.lead_number > self._lead.number:  # the lead has moved away and come back
            self._lead = fence.take(self._folder, desired.lead_number)
            self._journal.lead_number = desired.lead_number
            self._append(LeadTaken(self._host, at=time.time()))
        self._acknowledged = max(self._acknowledged, desired.acknowledged)
        if desired.heard_at is not None and isinstance(self._membership, Membership):
            self._membership.minority.heard_at = time.time() - (time.monotonic() - desired.heard_at)
        self._act(self._membership.retarget(desired.members, desired.target_revision, time.time(), halt=desired.halt))

    def _close(self, peer: _Peer) -> None:
        self._selector.unregister(peer.connection)
        peer.connection.close()
        if peer.shim_of is not None and self._shims.get(peer.shim_of) is peer:
            del self._shims[peer.shim_of]
        if peer.member_id is not None and self._peers.get(peer.member_id) is peer:
            del self._peers[peer.member_id]
            self._act(self._membership.disconnected(peer.member_id, time.time()))

    def _act(self, actions: list[Action]) -> None:
        """Carry actions out: journal entries first, then messages."""
        for action in actions:
            if isinstance(action, Entry):
                self._append(action)
        for action in actions:
            if isinstance(action, Send) and action.member_id in self._peers:
                self._tell(self._peers[action.member_id], action.message)
            elif isinstance(action, ShimCommand) and host_of(action.member_id) in self._shims:
                # A shim that is not connected reports its ranks when it joins again, and gets a fence then.
                self._send(self._shims[host_of(action.member_id)], encode(action))
            elif isinstance(action, Publish):
                self._publish(action)

    def _append(self, entry: Entry) -> None:
        self._lead.check()
        number = self._journal.append(entry)
        if isinstance(entry, CheckpointPublished):
            self._checkpoint_entries[number] = Path(entry.path).name

    def _tell(self, peer: _Peer, message: CoordinatorMessage) -> None:
        self._send(peer, encode(msgspec.structs.replace(message, lead_number=self._lead.number)))

    def _send(self, peer: _Peer, line: bytes) -> None:
        try:
            peer.connection.sendall(line)
        except OSError:  # the next iteration reads the end of the connection
            logger.info("job=%s rank=%s shim=%s does not listen", self._desired.job, peer.member_id, peer.shim_of)

    def _publish(self, checkpoint: Publish) -> None:
        """Publish on disk, then in the journal, then by messages: each of the three may be repeated."""
        assert isinstance(self._membership, Membership)
        message, folder = checkpoint.message, self._folder / "checkpoint"
        fault("publish")
        self._lead.check()
        try:
            path = publication.publish(folder, message.step, checkpoint.member_id)
        except FileNotFoundError:  # the writer has replaced it by a newer one, which it will report
            logger.info("job=%s step=%s: the checkpoint is no longer there", self._desired.job, message.step)
            self._act(self._membership.publications.refused(checkpoint.member_id, message))
            return
        except OSError as error:
            logger.warning("job=%s step=%s: no checkpoint is published: %s", self._desired.job, message.step, error)
            why = error.strerror or str(error)
            self._act(self._membership.publications.not_published(checkpoint.member_id, message, why, time.time()))
            return
        fault("published")
        self._act(self._membership.published(message, str(path.relative_to(self._folder)), time.time()))
        kept = message.written.kept if message.written else None
        self._clean_up(kept or KEPT_CHECKPOINTS)

    def _clean_up(self, kept: int | None = None) -> None:
        """Remove old checkpoints; one that cannot be removed now is removed with the next one."""
        folder = self._folder / "checkpoint"
        try:
            self._lead.check()
            if kept is not None:
                stored = [name for number, name in self._checkpoint_entries.items() if number <= self._acknowledged]
                publication.prune(folder, kept, stored)
            publication.sweep(folder, self._membership.ranks)
        except OSError as error:
            logger.warning("job=%s: old checkpoints stay: %s", self._desired.job, error)

    def _end_when_over(self) -> None:
        membership = self._membership
        ends = {"finished": membership.finished, "lost": membership.lost, "halted": membership.halted}
        end = next((name for name, reached in ends.items() if reached), None)
        if end is None:
            return
        self._ended_at = self._ended_at or time.monotonic()
        if not self._peers or time.monotonic() - self._ended_at > LINGER_SECONDS:
            self._running = False
            self._clean_up()
            self._publish_address(ended=end)

    def _publish_address(self, ended: str | None = None) -> None:
        """Write the address file, which belongs to the newest lead.

        `ended`: the result of the attempt, for ranks that start too late to connect.
        """
        self._lead.check()
        host, port = self._listener.getsockname()[:2]
        pid = os.getpid()
        place = {"address": host, "port": port, "pid": pid, "started_at": started_at(pid), "ended": ended}
        place |= {"host": self._host, "handshake": bool(self._secret)}
        replace_file(self._folder / "coordinator.json", json.dumps(place))

    def _retire_predecessor(self) -> str | None:
        """End a coordinator of this attempt that still runs, or the two would plan apart in one journal.

        Returns its host if that cannot be reached.
        """
        place: dict[str, Any] = {}
        try:
            place = json.loads((self._folder / "coordinator.json").read_text())
            connection = connect_tcp((place["address"], place["port"]), _REACH_SECONDS)
        except (OSError, ValueError) as error:
            logger.info("job=%s has no other coordinator: %s", self._desired.job, error)
            return place.get("host") if _is_unreachable(error) else None
        with connection, suppress(OSError):  # the predecessor has ended meanwhile, or does not end in time
            connection.settimeout(RETIRE_SECONDS)
            introduce(connection, self._secret, "coordinator")
            connection.sendall(encode(Retire(self._desired.job, self._desired.attempt, retire=True)))
            while connection.recv(4096):
                continue
        return None

    def _restore(self) -> None:
        """Restore the state from the journal of an earlier coordinator, if there is one."""
        numbered = read_numbered(self._folder / "plans.jsonl")
        entries = [entry for _, entry in numbered]
        checkpoints = [(number, entry) for number, entry in numbered if isinstance(entry, CheckpointPublished)]
        self._checkpoint_entries = {number: Path(entry.path).name for number, entry in checkpoints}
        self._profiles.recall(entries)
        self._times.recall(entries)
        planned = {entry.generation: self._plan(entry) for entry in entries if isinstance(entry, GenerationPlanned)}
        if not planned:
            return
        active = max((entry.generation for entry in entries if isinstance(entry, GenerationActive)), default=0)
        kinds = {type(entry) for entry in entries}
        revision = max(plan.target_revision for plan in planned.values())
        if isinstance(self._membership, FixedMembership) and max(planned) > GANG_GENERATION:
            self._membership = self._elastic()
        if isinstance(self._membership, Membership):
            _recall(self._membership, entries)
        if self._launch.engine != "elastic" and max(planned) > GANG_GENERATION:
            del planned[GANG_GENERATION]  # no rank had any state in it
        self._membership.restore(planned, active, revision, time.time())
        self._membership.finished, self._membership.lost = Finished in kinds, Lost in kinds

    def _plan(self, planned: GenerationPlanned) -> GenerationPlan:
        place = (self._address, self._store_port)
        return GenerationPlan(planned.generation, planned.members, *place, planned.target_revision, "resize")


def _recall(membership: Membership, entries: list[Entry]) -> None:
    """Restore given-up ranks, failures and checkpoints from a predecessor's journal."""
    membership.publications.recall(entries)
    for entry in entries:
        match entry:
            case Halted():
                membership.halted = True
            case RankStuck():
                membership.fenced[entry.member_id] = entry.why
            case RankFailed():
                how = (entry.code, entry.signal, entry.by_script, entry.error)
                end = RankEnd(entry.member_id, entry.slot, *how)
                membership.failures.recall(end, entry.generation, entry.step, newcomer=entry.newcomer)


def _is_unreachable(error: Exception) -> bool:
    """Return whether a host did not answer, neither yes nor no."""
    silent = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)
    return isinstance(error, TimeoutError) or (isinstance(error, OSError) and error.errno in silent)


def _first_line(line: bytes) -> Join | ShimJoin | Retire | AskFirst:
    """Decode the first line of a rank, a shim or a successor."""
    kinds: tuple[type[Retire], type[ShimJoin], type[AskFirst]] = (Retire, ShimJoin, AskFirst)
    for kind in kinds:
        with suppress(ProtocolError):
            return decode(kind, line)
    return decode(Join, line)


def _open_store(address: str) -> tuple[TCPStore, int]:
    """Return a store that listens on `address` only (TCPStore by itself listens on every interface)."""
    listener = listen_at(address)
    port = listener.getsockname()[1]
    store = TCPStore(
        address, port, None, True, timedelta(seconds=30), wait_for_workers=False, master_listen_fd=listener.detach()
    )
    return store, port
