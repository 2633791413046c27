"""One job's runtime without a control plane: real forkserver, shims, coordinator and ranks, and a hand on the target.

The hosts of a lab are names only, unless it is told others: all of them are this machine, as the virtual hosts of the
embedded stack are.
"""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import psutil
from tidepool import json_sockets, procfs
from tidepool.journal import read_journal
from tidepool.protocol import (
    DesiredJob,
    DesiredMembership,
    GivenSecret,
    LaunchSpec,
    Member,
    ShimSpec,
    encode,
    to_json,
)

from tests.isolation import forkserver_words, level_of_runtime_tests, wall_around
from tests.waiting import PATIENCE_SECONDS, wait_until

SCRIPTS = Path(__file__).parent / "scripts"
RUNTIME = Path(__file__).parents[2] / "runtime"
#: Environment of a script that plain python runs, off any cluster; with one thread, as ranks have.
OFF_CLUSTER = {"PYTHONPATH": str(RUNTIME), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
#: Marks of labs, one each: a shim ends every process with its mark.
_MARKS = (f"lab-{os.getpid()}-{number}" for number in itertools.count())


@contextmanager
def running_forkserver(folder: Path, cgroup: Path | None = None, level: str | None = None) -> Iterator[Path]:
    """Path of the socket of a forkserver that ends with the block, and with it everything that it forked.

    `cgroup`: the one that all of them live in. `level`: the highest level of isolation of its trainings.
    """
    level = level_of_runtime_tests() if level is None else level
    path = json_sockets.socket_path(folder / "forkserver.sock")
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "tidepool.forkserver", "--socket", path, "--lifeline-fd", str(read_end)),
            *forkserver_words(level),
        ],
        pass_fds=[read_end],
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(RUNTIME), procfs.MARK_VARIABLE: procfs.reserved_mark()},
    )
    os.close(read_end)
    try:
        if cgroup:
            (cgroup / "cgroup.procs").write_text(str(process.pid))
        wait_until(path.exists, "the forkserver, which has torch to load")
        yield path
    finally:
        os.close(write_end)
        try:
            process.wait(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


class GrowingFile:
    """Whole lines of JSON in a file that is appended to, each parsed once. Entries may have a `kind`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self._lines: dict[str | None, list[dict[str, Any]]] = defaultdict(list)

    def lines(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Return lines of that kind; without one, all."""
        if self._path.exists():
            self._read_on()
        return [*self._lines[kind]]

    def _read_on(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in map(json.loads, whole.splitlines()):
            self._lines[None].append(line)
            if "kind" in line:
                self._lines[line["kind"]].append(line)


class Lab:
    """A job in `folder`. `sizes` maps host names to their number of slots. virtual: slots have no GPU of their own.

    `hosts`: of a host that is a machine of its own, the forkserver's socket and the address. secret: "" as of an
    attempt that began under an earlier release.
    """

    def __init__(
        self,
        forkserver: Path,
        folder: Path,
        script: str,
        *,
        arguments: list[str] | None = None,
        sizes: dict[str, int] | None = None,
        hosts: Mapping[str, tuple[Path, str]] | None = None,
        environment: dict[str, str] | None = None,
        virtual: bool = True,
        attempt: int = 1,
        secret: str = "the lab's secret",
        user_secrets: Sequence[GivenSecret] = (),
        level: str | None = None,
        **launch: Any,
    ) -> None:
        """level: of isolation; None: that at which the tests of the runtime run."""
        self.level = level_of_runtime_tests() if level is None else level
        self.folder = folder / f"attempt-{attempt}"
        self.sizes = sizes or {"a": 4}
        self.hosts = dict.fromkeys(self.sizes, (forkserver, "127.0.0.1")) | dict(hosts or {})
        self.virtual = virtual
        self.secret = secret
        self.user_secrets = tuple(user_secrets)
        self.mark = next(_MARKS)
        self.folder.mkdir(parents=True)
        values: dict[str, Any] = {
            "min_slots": 1,
            "max_slots": sum(self.sizes.values()),
            "effective_batch_size": None,
            "seed": 7,
            "exactness": "sum",
            "compat": [],
            "data_dir": str(folder),
            "code_folder": str(SCRIPTS),
        }
        values.update(launch)
        self.launch = LaunchSpec(
            folder=str(self.folder),
            entry_point=script,
            arguments=arguments or [],
            environment=environment or {},
            **values,
        )
        self.revision = 0
        self.members: list[Member] = []
        #: The training shall stop after a step, with a checkpoint of it.
        self.halting = False
        #: Every place that was ever wanted: what is not wanted any more is vacating, not to be ended.
        self.places: set[tuple[str, int]] = set()
        #: Number of the newest lead, and the time of this machine's at which the control plane was last in its reach.
        self.lead_number = 1
        self.heard_at: float | None = None
        self.coordinator: dict[str, Any] = {}
        self._coordinator_name = "coordinator"
        self._shims: dict[str, socket.socket] = {}
        self.shims: dict[str, dict[str, Any]] = {}
        self._metrics = GrowingFile(self.folder / "metrics.jsonl")
        self._plans = GrowingFile(self.folder / "plans.jsonl")
        self._journals = [GrowingFile(self.folder / "journal" / f"shim.{host}.jsonl") for host in self.sizes]
        for host in self.sizes:
            self.start_shim(host)

    # --- the hand ---

    def target(self, *places: tuple[str, int]) -> None:
        """Want ranks in exactly these (host, slot) places."""
        self.revision += 1
        self.members = [Member(host, slot) for host, slot in places]
        if not self.coordinator:
            self.start_coordinator()
        else:
            with json_sockets.connect(self._coordinator()) as connection:
                connection.sendall(encode(self._desired()))
        self.send_to_shims([*places])

    def send_to_shims(self, places: list[tuple[str, int]]) -> None:
        """Have a rank started in each of the places where there is none."""
        self.places |= set(places)
        leaving = self.places - set(places)
        for host in self.sizes:
            wanted = [slot for name, slot in places if name == host]
            vacating = [slot for name, slot in leaving if name == host]
            self._read_up(self._shims[host])
            self._shims[host].sendall(encode(self._desired_job(wanted, vacating)))

    def size(self, count: int, wait: Callable[[Callable[[], bool]], object] | None = None) -> None:
        """Want the first `count` places, host by host. The first place begins the training, whoever is ready first.

        wait: waits for a condition, in place of a wait that fails after a while.
        """
        places = [(host, slot) for host, slots in self.sizes.items() for slot in range(slots)]
        if not self.coordinator and self.launch.min_slots == 1 < count:
            self.target(places[0])
            if wait is None:
                self.wait_for_size(1)
            else:
                wait(lambda: self.active()["world_size"] == 1)
        self.target(*places[:count])

    def halt(self) -> None:
        """Have the training stop by itself; ranks that end are not started again."""
        self.halting = True
        self.revision += 1
        with json_sockets.connect(self._coordinator()) as connection:
            connection.sendall(encode(self._desired()))
        self.send_to_shims([])

    def start_shim(self, host: str) -> None:
        request: dict[str, Any] = {"op": "shim", "socket": str(self._shim(host)), "spec": to_json(self._spec(host))}
        request["wall"] = self._wall()
        self.shims[host] = self._ask(host, request)
        if host in self._shims:
            self._shims[host].close()
        self._shims[host] = json_sockets.connect(self._shim(host))

    def wait_for_shim(self, host: str) -> None:
        """Wait for the first status of a shim, whose wall stands then."""
        self._shims[host].settimeout(PATIENCE_SECONDS)
        assert self._shims[host].recv(65536)

    def start_coordinator(self, name: str = "coordinator", host: str | None = None) -> None:
        """Another name: as on another host, where the socket of the first one is not seen; it leads from now on."""
        host = host or next(iter(self.sizes))
        self.lead_number += name != self._coordinator_name
        self._coordinator_name = name
        request = {
            "op": "coordinator",
            "socket": str(self._coordinator()),
            "desired": to_json(self._desired()),
            "launch": to_json(self.launch),
            "address": self.hosts[host][1],
            "host": host,
            "mark": self.mark,
            "wall": self._wall(),
        }
        self.coordinator = self._ask(host, request)

    def stop(self) -> None:
        for host in self.sizes:
            stop = msgspec.structs.replace(self._desired_job([], []), stop=True, grace_seconds=0.0)
            with suppress(OSError), self._shims[host] as connection:
                connection.sendall(encode(stop))
                connection.settimeout(PATIENCE_SECONDS)
                while connection.recv(65536):  # until it has ended every rank
                    pass
        with suppress(OSError), json_sockets.connect(self._coordinator()) as connection:
            connection.sendall(encode(msgspec.structs.replace(self._desired(), stop=True)))

    def end(self, grace_seconds: float) -> None:
        """Stop every rank, as a preemption does, and wait until all of them have ended."""
        stop = msgspec.structs.replace(self._desired_job([], []), stop=True, grace_seconds=grace_seconds)
        for connection in self._shims.values():
            self._read_up(connection)
            connection.sendall(encode(stop))
        wait_until(lambda: len(self.exits()) == len(self.started()), self.story)

    def kill(self, member_id: str, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.started()[member_id]["pid"], number)

    def process(self, host: str, pid: int) -> psutil.Process:
        """Return a process that a script on this host has told of, by the number that it has there for itself."""
        for process in procfs.descendants(self.shims[host]["pid"]):
            status = Path(f"/proc/{process.pid}/status").read_text()
            if status.partition("NSpid:")[2].partition("\n")[0].split()[-1] == str(pid):
                return process
        raise psutil.NoSuchProcess(pid)

    # --- files of the ranks and the coordinator -----

    def journal(self, kind: str) -> list[dict[str, Any]]:
        return [entry["data"] for entry in self._plans.lines(kind)]

    def steps(self) -> list[dict[str, Any]]:
        return self._metrics.lines()

    def active(self) -> dict[str, Any]:
        active = self.journal("generation_active")
        return active[-1] if active else {"world_size": 0, "generation": 0, "members": []}

    def started(self) -> dict[str, dict[str, Any]]:
        return {entry["member_id"]: entry for entry in self._shim_entries("rank_started")}

    def exits(self) -> dict[str, dict[str, Any]]:
        return {entry["member_id"]: entry for entry in self._shim_entries("rank_exited")}

    def lingering(self) -> list[str]:
        return [entry["member_id"] for entry in self._shim_entries("rank_lingers")]

    def grouped(self) -> list[str]:
        return sorted(entry["member_id"] for entry in self._shim_entries("rank_grouped"))

    def member_ids(self) -> list[str]:
        return [member["member_id"] for member in self.active()["members"]]

    def founders(self) -> set[str]:
        """Return the members that began the attempt."""
        return {member["member_id"] for entry in self.journal("generation_active")[:1] for member in entry["members"]}

    def wait_for_size(self, count: int) -> dict[str, Any]:
        wait_until(lambda: self.active()["world_size"] == count, lambda: f"size {count}: {self.story()}")
        return self.active()

    def wait_for_steps(self, count: int) -> None:
        """Wait for `count` more steps."""
        goal = len(self.steps()) + count
        wait_until(
            lambda: len(self.steps()) >= goal or self.journal("finished"), lambda: f"step {goal}: {self.story()}"
        )

    def hurry(self) -> None:
        """From now on no step is drawn out (`--step-seconds` of the scripts)."""
        (self.folder.parent / "hurry").touch()

    def wait_for_the_end(self) -> None:
        """Wait for as long as the training makes steps: a busy machine may need long for all of them."""
        self.hurry()
        while not self.journal("finished"):
            self._wait_for_a_step()
        wait_until(lambda: len(self.exits()) == len(self.started()), lambda: f"the ranks' exits: {self.story()}")

    def _wait_for_a_step(self) -> None:
        made = len(self.steps())
        wait_until(
            lambda: self.journal("finished") or len(self.steps()) > made,
            lambda: f"the end, or another step: {self.story()}",
        )

    def story(self) -> str:
        """Return what a failing test wants to see."""
        errors = [path.read_text()[-2000:] for path in sorted(self.folder.glob("log/*/stderr"))]
        errors += [path.read_text()[-2000:] for path in sorted(self.folder.glob("log/*.err"))]
        entries = read_journal(self.folder / "plans.jsonl")[-12:]
        progress = f"at step {self.steps()[-1]['step'] if self.steps() else 0}"
        return "\n".join([progress, *map(str, entries), str(list(self.exits().values())[-3:]), *filter(None, errors)])

    # --- plumbing ---

    def _read_up(self, connection: socket.socket) -> None:
        """A shim drops who never reads what it tells."""
        connection.setblocking(False)
        with suppress(BlockingIOError):
            while connection.recv(65536):
                pass
        connection.settimeout(PATIENCE_SECONDS)

    def _spec(self, host: str) -> ShimSpec:
        place = (host, self.hosts[host][1], self.mark)
        own = {"secret": self.secret, "user_secrets": self.user_secrets}
        return ShimSpec(1, 1, *place, virtual=self.virtual, launch=self.launch, **own)

    def _wall(self) -> dict[str, Any] | None:
        test = self.folder.parents[1]  # with the folders of its other labs
        places = str(test), self.launch.code_folder, self.launch.data_dir, str(SCRIPTS)
        wall = wall_around(self.folder.parent, places, self.level)
        return None if wall is None else asdict(wall)

    def _desired(self) -> DesiredMembership:
        return DesiredMembership(
            *(1, 1, self.revision, self.members),
            halt=self.halting,
            lead_number=self.lead_number,
            heard_at=self.heard_at,
            secret=self.secret,
        )

    def _desired_job(self, wanted: list[int], vacating: list[int]) -> DesiredJob:
        return DesiredJob(1, 1, self.revision, wanted, vacating, lead=False, members=self.members, launch=self.launch)

    def _shim(self, host: str) -> Path:
        return json_sockets.socket_path(self.folder / f"shim.{host}.sock")

    def _coordinator(self) -> Path:
        return json_sockets.socket_path(self.folder / f"{self._coordinator_name}.sock")

    def _shim_entries(self, kind: str) -> list[dict[str, Any]]:
        return [entry["data"] for journal in self._journals for entry in journal.lines(kind)]

    def _ask(self, host: str, request: dict[str, Any]) -> dict[str, Any]:
        # An executor would ask again; here an answer is waited for, however busy the machine is.
        line = json.dumps(request).encode() + b"\n"
        answer = json.loads(json_sockets.request(self.hosts[host][0], line, timeout_seconds=60.0))
        assert "error" not in answer, answer
        return answer
