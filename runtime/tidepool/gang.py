"""The gang of a script without a session: its ranks wait for each other and get the variables that torchrun sets.

Scripts of the engines `fixed` and `single` have no session that speaks for them. So the rank's process joins at
the coordinator before it runs the script, waits for the one generation that there will be, and sets the environment
that `torchrun` would have set. A thread of it keeps the connection: a coordinator that starts again asks once more.

The ranks meet in a TCPStore of rank 0, as under `torchrun` with TORCHELASTIC_USE_AGENT_STORE=False. Rank 0 chooses its
port by binding it without listening: nobody else is given the port, and the script's store can still listen there.
"""

import select
import socket
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from tidepool.coordinator_client import RankConnection
from tidepool.env import RankContext
from tidepool.network_interfaces import with_port_hint
from tidepool.procfs import end_at_once, set_title
from tidepool.protocol import CoordinatorMessage, GenerationPlan, Join, LaunchSpec, MemberMessage, SpentTime, encode
from tidepool.shim_slots import SlotGpus

__all__ = ["SharedGpuError", "join_gang", "leave_gang", "local_rank_words", "reserve_port", "torchrun_environment"]


class SharedGpuError(ValueError):
    """Plain processes pick their device by LOCAL_RANK, and NCCL takes no device twice."""


#: Seconds between two messages about the time.
_TIME_SECONDS = 2.0

#: Connection of this process once it has joined the gang.
_connection: "GangConnection | None" = None


def join_gang(context: RankContext, *, gpus: SlotGpus | None) -> dict[str, str]:
    """Wait for the gang; returns variables for the script's environment. `gpus`: None without GPUs.

    A gang that never gets complete ends with its job. Raises SharedGpuError.
    """
    global _connection
    _connection = GangConnection(context)
    plan = _connection.wait_for_plan()
    rank = [member.member_id for member in plan.members].index(context.member_id)
    count = len({member.member_id for member in plan.members})  # a process may hold several places
    set_title(context.title(f" {rank} of {count}"))
    _connection.send(MemberMessage("switched", plan.generation))
    _connection.watch_time()
    return torchrun_environment(plan, context, gpus) if context.launch.engine == "fixed" else {}


def leave_gang() -> None:
    """Close the connection: a session in the only process of a job opens its own."""
    global _connection
    if _connection is not None:
        _connection.close()
        _connection = None


def torchrun_environment(plan: GenerationPlan, context: RankContext, gpus: SlotGpus | None) -> dict[str, str]:
    """Variables that `torchrun` sets, for this rank of `plan`; a host counts as one of its nodes.

    Devices: all that the job has on this host, in the order of LOCAL_RANK, since scripts pick theirs by that number;
    none where the submission hides them.
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
    }
    if gpus is not None and "CUDA_VISIBLE_DEVICES" not in context.launch.environment:
        values["CUDA_VISIBLE_DEVICES"] = ",".join(_devices([member.slot for member in here], gpus))
    return values


def local_rank_words(launch: LaunchSpec, environment: Mapping[str, str]) -> list[str]:
    """Return the words with which `torch.distributed.launch` tells a script its LOCAL_RANK; [] for a single process,
    which such a script expects to be started without them."""
    if not launch.local_rank_argument or environment.get("WORLD_SIZE", "1") == "1":
        return []
    return [f"--{launch.local_rank_argument}={environment['LOCAL_RANK']}"]


def _devices(slots: list[int], gpus: SlotGpus) -> tuple[str, ...]:
    devices = gpus.of(slots)
    if len(devices) < len(slots):
        raise SharedGpuError(
            f"this host offers {gpus.slots_per_gpu} slots per GPU, and two processes of this training are on one: a "
            "plain script needs a GPU for each. Ask for fewer GPUs, or train elastically"
        )
    if len(devices) > 1 and any(device.startswith("MIG-") for device in devices):
        raise SharedGpuError(
            "this host's GPUs are divided by MIG, and a process can use one instance only: a plain script of several "
            "processes needs whole GPUs. Ask for 1 GPU, or train elastically"
        )
    return devices


def reserve_port() -> socket.socket:
    """Return a socket that keeps a port for this process until its script listens there.

    Two sockets may bind one port if both say SO_REUSEADDR and neither listens yet; every TCPStore says so.
    Raises OSError.
    """
    dual = socket.has_dualstack_ipv6()
    held = socket.socket(socket.AF_INET6 if dual else socket.AF_INET, socket.SOCK_STREAM)
    if dual:
        held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind(("", 0))
    except OSError as error:
        held.close()
        raise OSError(error.errno, with_port_hint(str(error))) from error
    return held


class GangConnection(RankConnection):
    """The connection of a rank whose script has none."""

    REPEATED = frozenset({"ready", "switched"})

    def watch_time(self) -> None:
        """Tell the coordinator every two seconds what takes the time of the script's loop.

        Only where torch is loaded already: another one, of the training's own environment, may lack what is needed.
        """
        if "torch" not in sys.modules:
            return
        from tidepool.torch.rank.plain_clock import watch_plain_loop

        clock = watch_plain_loop(lambda: self._closed)
        self._start(partial(self._tell_time, clock.reading), "time")

    def _tell_time(self, reading: Callable[[], SpentTime | None]) -> None:
        while not self._closed:
            time.sleep(_TIME_SECONDS)
            spent = reading()
            if spent is None:
                continue
            line = encode(
                MemberMessage("alive", self._plan.generation if self._plan else 0, step=spent.steps, spent=spent)
            )
            with self._send_lock:
                # Never wait here, with the lock: a stopped coordinator reads nothing.
                if self._connection is not None and select.select([], [self._connection], [], 0)[1]:
                    self._send(line)

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self._meeting = reserve_port()
        self._plan: GenerationPlan | None = None
        self.send(MemberMessage("ready", meeting=(context.address, self._meeting.getsockname()[1])))
        self._start(self._listen, "gang")

    def wait_for_plan(self) -> GenerationPlan:
        with self.changed:
            self.changed.wait_for(lambda: self._plan is not None)
            assert self._plan is not None
            if self._plan.members[0].member_id != self._context.member_id:
                self._meeting.close()
            return self._plan

    def _apply(self, message: CoordinatorMessage) -> None:
        if message.kind == "commit" and message.plan is not None:
            self._plan = message.plan
        elif message.kind in ("fenced", "stop"):
            end_at_once("fenced by the coordinator")

    def _join(self) -> Join:
        return msgspec.structs.replace(super()._join(), gang=True)
