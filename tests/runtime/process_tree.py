"""A host's process tree without an executor: what the tests of shims and ranks start and wait for."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
import psutil
from tidepool import json_sockets, procfs
from tidepool.confine.wall import Wall
from tidepool.journal import read_journal
from tidepool.protocol import DesiredJob, LaunchSpec, RankStatus, ShimSpec, ShimStatus, decode, encode, entry_to_json
from tidepool.shim import journal_path, rank_mark

from tests.isolation import forkserver_words, level_of_runtime_tests, wall_around
from tests.waiting import PATIENCE_SECONDS, wait_until
from workers.executor.forkserver import Forkserver

T = TypeVar("T")


@contextmanager
def running_forkserver(level: str = "") -> Iterator[tuple[Forkserver, BinaryIO]]:
    """A forkserver and the writing end of its lifeline. level: the highest of isolation; "": that of the tests."""
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(prefix="tide") as folder, os.fdopen(writing, "wb") as lifeline:
        forkserver = Forkserver(Path(folder), reading, words=forkserver_words(level or level_of_runtime_tests()))
        try:
            wait_until(forkserver.ready, "the forkserver")
            yield forkserver, lifeline
        finally:
            forkserver.end()
            os.close(reading)


def launch_spec(folder: Path, script: str, **changes: Any) -> LaunchSpec:
    """A job of one script, whose text is given."""
    code, results = folder / "code", folder / "attempt-1"
    code.mkdir(exist_ok=True)
    results.mkdir(exist_ok=True)
    (code / "train.py").write_text(script)
    spec = LaunchSpec(
        folder=str(results),
        code_folder=str(code),
        entry_point="train.py",
        arguments=[],
        data_dir=str(folder),
        environment={},
        compat=[],
        min_slots=1,
        max_slots=4,
        effective_batch_size=None,
        seed=1,
        exactness="sum",
    )
    return msgspec.structs.replace(spec, **changes)


class JobReconciler:
    """One job on one host, as the executor would drive its shim."""

    def __init__(
        self,
        forkserver: Forkserver,
        folder: Path,
        script: str,
        *,
        slots_per_gpu: int | None = None,
        wall: Wall | None = None,
        gpus: tuple[str, ...] = (),
        slot_cores: float = 1.0,
        sets_threads: bool = True,
        near_cpus: tuple[str, ...] = (),
        **changes: Any,
    ) -> None:
        """slots_per_gpu: None for virtual slots. gpus: UUIDs."""
        launch, virtual = launch_spec(folder, script, **changes), slots_per_gpu is None
        place = ("host-a", "127.0.0.1", f"test{os.getpid()}-{folder.name}", virtual)
        cores: dict[str, Any] = {"slot_cores": slot_cores, "sets_threads": sets_threads, "near_cpus": near_cpus}
        self.spec = ShimSpec(7, 1, *place, launch, slots_per_gpu or 1, gpus=gpus, **cores)
        self.socket = json_sockets.socket_path(folder / "shim.sock")
        self.forkserver = forkserver
        wall = wall or wall_around(folder, (launch.code_folder, launch.data_dir), level_of_runtime_tests())
        self.pid = forkserver.fork_shim(self.spec, self.socket, wall)
        self._link = json_sockets.connect(self.socket)
        self._lines = json_sockets.Lines()
        self.status = self._next_status()

    def reconnect(self) -> None:
        self._link.close()
        self._link = json_sockets.connect(self.socket)
        self._lines = json_sockets.Lines()
        self.status = self._next_status()

    def desired(self, wanted: list[int], revision: int = 1, **changes: Any) -> None:
        desired = DesiredJob(7, 1, revision, wanted, [], False, [], self.spec.launch)
        self._link.sendall(encode(msgspec.structs.replace(desired, **changes)))

    def stop(self, grace_seconds: float = 10.0) -> None:
        self.desired([], 1_000_000, stop=True, grace_seconds=grace_seconds)

    def until_ranks(self, condition: Callable[[list[RankStatus]], bool]) -> list[RankStatus]:
        """The ranks of the first status that meets the condition."""
        self._link.settimeout(PATIENCE_SECONDS)
        while not condition(self.status.ranks):
            self.status = self._next_status()
        return self.status.ranks

    def until_gone(self) -> None:
        wait_until(lambda: not psutil.pid_exists(self.pid))

    def records(self, kind: str) -> list[dict[str, Any]]:
        return [data for name, data in map(entry_to_json, read_journal(journal_path(self.spec))) if name == kind]

    def until_records(self, kind: str, count: int) -> list[dict[str, Any]]:
        wait_until(lambda: len(self.records(kind)) >= count)
        return self.records(kind)

    def log(self, member_id: str, name: str) -> str:
        return (Path(self.spec.launch.folder) / "log" / f"{member_id}.host-a" / name).read_text()

    def written(self, name: str) -> Any:
        """Return what the script wrote as JSON into its result folder, once it has."""
        path = Path(self.spec.launch.folder) / name
        [value] = wait_until(lambda: _whole_json(path))
        return value

    def processes(self) -> list[psutil.Process]:
        """Ranks and what they have started, as the kernel has them."""
        return procfs.marked(rank_mark(self.spec))

    def close(self) -> None:
        self._link.close()
        with suppress(psutil.NoSuchProcess):
            procfs.kill(psutil.Process(self.pid))

    def _next_status(self) -> ShimStatus:
        while not (lines := self._lines.feed(self._receive())):
            pass
        return decode(ShimStatus, lines[-1])

    def _receive(self) -> bytes:
        received = self._link.recv(65536)
        if not received:
            raise EOFError("the shim has closed its socket")
        return received


def _whole_json(path: Path) -> list[Any]:
    """The file's value, as the only one of a list; an empty list while the file is not there or half written."""
    try:
        return [json.loads(path.read_text())]
    except (FileNotFoundError, json.JSONDecodeError):
        return []
