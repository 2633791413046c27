"""The gang of a script without a session: its ranks wait for each other and get the variables that torchrun sets.

Scripts of the engines `fixed` and `single` have no session that speaks for them. So the rank's process joins at
the coordinator before it runs the script, waits for the one generation that there will be, and sets the environment
that `torchrun` would have set. A thread of it keeps the connection: a coordinator that starts again asks once more.

The ranks meet in a TCPStore of rank 0, as under `torchrun` with TORCHELASTIC_USE_AGENT_STORE=False. Rank 0 chooses its
port by binding it without listening: nobody else is given the port, and the script's store can still listen there.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from tidepool.env import RankContext
from tidepool.link import between_hosts
from tidepool.procfs import set_title
from tidepool.protocol import CoordinatorMessage, GenerationPlan, Join, MemberMessage, decode, encode
from tidepool.slots import gpu_of

__all__ = ["GangLink", "Meeting", "SharedGpuError", "leave_gang", "take_place", "torchrun_environment"]

_RECONNECT_SECONDS = 0.05


class SharedGpuError(ValueError):
    """Plain processes pick their device by LOCAL_RANK, and NCCL takes no device twice."""


#: Of this process, once it has taken its place.
_link: GangLink | None = None


def take_place(context: RankContext, *, slots_per_gpu: int | None) -> dict[str, str]:
    """Wait for the gang; what the script's environment has over that of others. `slots_per_gpu`: None without GPUs.

    A gang that never gets complete ends with its job. Raises SharedGpuError.
    """
    global _link
    _link = GangLink(context)
    plan = _link.wait_for_plan()
    rank = [member.member_id for member in plan.members].index(context.member_id)
    set_title(context.title(f" {rank} of {len(plan.members)}"))
    _link.send(MemberMessage("switched", plan.generation, detail={"world_size": len(plan.members)}))
    return torchrun_environment(plan, context, slots_per_gpu) if context.launch.engine == "fixed" else {}


def leave_gang() -> None:
    """Close the connection: a session in the only process of a job opens its own."""
    global _link
    if _link is not None:
        _link.close()
        _link = None


def torchrun_environment(plan: GenerationPlan, context: RankContext, slots_per_gpu: int | None) -> dict[str, str]:
    """What `torchrun` sets, for this rank of `plan`; a host counts as one of its nodes.

    Devices: all that the job has on this host, in the order of LOCAL_RANK, since scripts pick theirs by that number.
    Raises SharedGpuError if two of them are one.
    """
    hosts = list(dict.fromkeys(member.host for member in plan.members))
    here = [member for member in plan.members if member.host == context.host]
    rank = [member.member_id for member in plan.members].index(context.member_id)
    local_rank = [member.member_id for member in here].index(context.member_id)
    size = str(len(plan.members))
    values = {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "GROUP_RANK": str(hosts.index(context.host)),
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": str(len(here)),
        "GROUP_WORLD_SIZE": str(len(hosts)),
        "ROLE_WORLD_SIZE": size,
        "MASTER_ADDR": plan.store_address,
        "MASTER_PORT": str(plan.store_port),
        "TORCHELASTIC_RUN_ID": f"tidepool-{context.job}",
        "TORCHELASTIC_RESTART_COUNT": str(context.attempt - 1),
        "TORCHELASTIC_MAX_RESTARTS": str(max(3, context.attempt - 1)),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        **_gloo_interface(plan.store_address, context.launch.environment),
    }
    if slots_per_gpu:
        values["CUDA_VISIBLE_DEVICES"] = ",".join(_devices([member.slot for member in here], slots_per_gpu))
    return values


def _devices(slots: list[int], slots_per_gpu: int) -> list[str]:
    devices = [str(gpu_of(slot, slots_per_gpu)) for slot in slots]
    if len(set(devices)) < len(devices):
        raise SharedGpuError(
            f"this host offers {slots_per_gpu} slots per GPU, and two processes of this job are on one: a plain script "
            "needs a GPU for each. Ask for fewer GPUs, or train elastically"
        )
    return devices


def _gloo_interface(address: str, environment: Mapping[str, str]) -> dict[str, str]:
    """gloo looks its address up by the machine's name; hosts that are all this machine meet on the loopback."""
    if address.startswith("127.") and "GLOO_SOCKET_IFNAME" not in environment:
        return {"GLOO_SOCKET_IFNAME": "lo"}
    return {}


@dataclass
class Meeting:
    """A port of this process that is kept for it until its script listens there."""

    address: str
    port: int
    held: socket.socket


def _reserve(address: str) -> Meeting:
    """Two sockets may bind one port if both say SO_REUSEADDR and neither listens yet; every TCPStore says so."""
    dual = socket.has_dualstack_ipv6()
    held = socket.socket(socket.AF_INET6 if dual else socket.AF_INET, socket.SOCK_STREAM)
    if dual:
        held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("", 0))
    return Meeting(address, held.getsockname()[1], held)


class GangLink:
    """This rank's connection to its coordinator, which comes back when the coordinator does."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._meeting = _reserve(context.address)
        self._changed = threading.Condition()
        self._plan: GenerationPlan | None = None
        #: Messages that the next coordinator must get too, in this order.
        self._messages = [MemberMessage("ready", detail={"address": context.address, "port": self._meeting.port})]
        self._connection: socket.socket | None = None
        self._closed = False
        self._send_lock = threading.Lock()
        threading.Thread(target=self._listen, name="gang", daemon=True).start()

    def wait_for_plan(self) -> GenerationPlan:
        with self._changed:
            self._changed.wait_for(lambda: self._plan is not None)
            assert self._plan is not None
            if self._plan.members[0].member_id != self._context.member_id:
                self._meeting.held.close()
            return self._plan

    def send(self, message: MemberMessage) -> None:
        with self._send_lock:
            self._messages.append(message)
            if self._connection is not None:
                self._send(encode(message))

    def close(self) -> None:
        with self._send_lock:
            self._closed = True
            if self._connection is not None:
                with suppress(OSError):  # its other end was quicker
                    self._connection.shutdown(socket.SHUT_RDWR)

    # --- the thread ---

    def _listen(self) -> None:
        """End the rank if this thread fails: a rank that cannot be fenced would write beside its successors."""
        try:
            while (connection := self._connect()) is not None:
                self._serve(connection)
        except BaseException:
            traceback.print_exc()
            _end_at_once("its connection to the coordinator failed")

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                for line in connection.makefile("rb"):
                    self._receive(decode(CoordinatorMessage, line))
            except OSError:  # reset: the same as closed
                pass
            with self._send_lock:
                self._connection = None

    def _connect(self) -> socket.socket | None:
        """None: this connection was closed for good."""
        file = self._context.folder / "coordinator.json"
        while not self._closed:
            try:
                place = json.loads(file.read_text())
                connection = socket.create_connection((place["address"], place["port"]), timeout=5)
            except (OSError, ValueError):  # not there yet, being replaced, or gone: it comes back or we are ended
                time.sleep(_RECONNECT_SECONDS)
                continue
            if connection.getsockname() == connection.getpeername():  # nobody listens: TCP has met itself there
                connection.close()
                continue
            connection.settimeout(None)
            between_hosts(connection)
            with self._send_lock:
                if self._closed:
                    break
                self._connection = connection
                self._send(b"".join([encode(self._join()), *map(encode, self._messages)]))
            return connection
        return None

    def _send(self, lines: bytes) -> None:
        """Under `_send_lock`."""
        assert self._connection is not None
        try:
            self._connection.sendall(lines)
        except OSError:  # the reader sees the same and reconnects
            self._connection = None

    def _receive(self, message: CoordinatorMessage) -> None:
        if message.kind == "commit" and message.plan is not None:
            with self._changed:
                self._plan = message.plan
                self._changed.notify_all()
        elif message.kind in ("fenced", "stop"):
            _end_at_once("fenced by the coordinator")

    def _join(self) -> Join:
        context = self._context
        return Join(
            job=context.job,
            attempt=context.attempt,
            member_id=context.member_id,
            host=context.host,
            slot=context.slot,
            pid=os.getpid(),
            generation=0,
            ready=False,
            target_revision=context.target_revision,
            gang=True,
        )


def _end_at_once(why: str) -> None:
    print(f"tidepool: rank ends itself: {why}", file=sys.stderr, flush=True)  # noqa: T201
    os.kill(os.getpid(), signal.SIGKILL)
