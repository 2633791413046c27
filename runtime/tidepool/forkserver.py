"""The forkserver: a warm parent of an environment's processes. It forks shims and coordinators on request.

`python -P -m tidepool.forkserver --socket PATH [--lifeline-fd N] [--bare] [--hold]`, by the Python of the environment.
Importing torch and building the first optimizer takes seconds; a fork of this process takes milliseconds. With
`--bare`, for an environment without a torch that the runtime knows, it loads nothing and forks shims alone. To keep
forks sound it stays single-threaded, never touches CUDA, and runs no parallel operation. Its environment holds no
secret, for its children's ancestors are seen in /proc. With `--hold`, as in a container, which ends with its first
process, that one waits for all others, and the forkserver is its child.

One JSON line per request, one per answer: `{"op": "ping"}`, `{"op": "shim", "socket", "spec", "wall"}` and
`{"op": "coordinator", "socket", "desired", "launch", "address", "host", "mark", "wall"}` are answered with
`{"pid", "started_at"}` or `{"error"}`; that of a ping also says what the kernel can do to keep trainings apart. The
child's socket listens before the answer is sent. A child is behind its wall (`tidepool.confine`) before it does
anything else; null: it has none. With `--apart UID`, trainings may be other users, each a user of the wall's: a shim is
then the first process of a process space of its own.
"""

import argparse
import json
import logging
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, Protocol

from tidepool import json_sockets, procfs
from tidepool.confine.probe import Apart, probe
from tidepool.confine.processes import fork
from tidepool.confine.surround import prepare, surround
from tidepool.confine.wall import Wall
from tidepool.env import share_fabric_home, use_home, use_name
from tidepool.fence import SupersededError
from tidepool.own_python import home_of, make_own_python, own_folder
from tidepool.protocol import DesiredMembership, LaunchSpec, ProtocolError, ShimSpec, from_json
from tidepool.shim import Shim
from tidepool.wmla_environment import COMPAT, build_fabric, link_results

__all__ = ["Forkserver", "main"]

logger = logging.getLogger(__name__)

_ANSWER_SECONDS = 5.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--lifeline-fd", type=int)
    parser.add_argument("--bare", action="store_true", help="load no torch")
    parser.add_argument("--apart", type=int, help="user that trainings could be: try it")
    parser.add_argument("--place", action="append", default=[], help="folder that the user is to write in; repeat")
    parser.add_argument("--sealed", action="store_true", help="with --apart: try a private /dev as well")
    parser.add_argument("--hold", action="store_true", help="stay until all descendants have ended")
    options = parser.parse_args()
    if options.hold:
        _hold(options.socket)
    procfs.set_title(f"tidepool forkserver: {options.socket}")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    if not options.bare:
        from tidepool.torch.warm_parent import warm_up

        warm_up()
    share_fabric_home(build_fabric(options.socket.parent / "fabric"))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the kernel; their records are on disk
    listener = json_sockets.listen(options.socket)
    remove_socket = json_sockets.socket_remover(options.socket)
    apart = None if options.apart is None else Apart(options.apart, tuple(options.place), options.sealed)
    Forkserver(listener, _apart_from_input(options.lifeline_fd), is_bare=options.bare, apart=apart).run()
    remove_socket()


def _apart_from_input(lifeline_fd: int | None) -> int | None:
    """Return a descriptor of the lifeline that is not the standard input, from which children might read."""
    if lifeline_fd != 0:
        return lifeline_fd
    moved, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return moved


def _hold(path: Path) -> None:
    """Return in a child, the forkserver. This process adopts what the forkserver leaves, and ends when all have."""
    procfs.become_subreaper()
    forkserver = os.fork()
    if forkserver == 0:
        return
    procfs.set_title(f"tidepool container: {path}")

    def end(*_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(forkserver, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    with suppress(ChildProcessError):
        while True:
            os.wait()
    os._exit(0)


class _StandBehind(Protocol):
    """Puts this process behind the wall of a launch. is_apart: it is the first process of a space of its own."""

    def __call__(self, launch: LaunchSpec, *, is_apart: bool = False) -> None: ...


def _nothing(launch: LaunchSpec, *, is_apart: bool = False) -> None:
    """Leave this process without a wall."""


class Forkserver:
    def __init__(
        self, listener: socket.socket, lifeline_fd: int | None, *, is_bare: bool = False, apart: Apart | None = None
    ) -> None:
        self._listener = listener
        self._is_bare = is_bare
        self._abilities = probe(apart)
        #: Whether it was asked if trainings can be other users.
        self._tried_users = apart is not None
        self._lifeline_fd = lifeline_fd
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        if lifeline_fd is not None:
            self._selector.register(lifeline_fd, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve requests until the lifeline closes."""
        while True:
            ready = {key.fd for key, _ in self._selector.select()}
            if self._lifeline_fd in ready:
                return
            if self._listener.fileno() in ready:
                self._serve()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        with client:
            client.settimeout(_ANSWER_SECONDS)
            try:
                answer = self._answer(_read_line(client), client)
                client.sendall(json.dumps(answer).encode() + b"\n")
            except OSError as error:
                logger.warning("a client went away: %s", error)

    def _answer(self, line: bytes, client: socket.socket) -> dict[str, Any]:
        try:
            request = json.loads(line)
            operation = request["op"]
            if operation == "ping":
                answer = {"handshake": True, "abilities": self._abilities.to_json(), "tried_users": self._tried_users}
                return {**_identity(os.getpid()), **answer}
            if operation == "shim":
                return self._fork_shim(request, client)
            if operation == "coordinator" and not self._is_bare:
                return self._fork_coordinator(request, client)
        except (ValueError, KeyError, TypeError, OSError, ProtocolError) as error:
            return {"error": f"{type(error).__name__}: {error}"}
        return {"error": f"unknown operation {operation!r}"}

    def _fork_shim(self, request: dict[str, Any], client: socket.socket) -> dict[str, Any]:
        spec = from_json(ShimSpec, request["spec"])
        mark = f"{spec.mark}.{spec.job}.{spec.attempt}.shim"
        errors = _folder_of(spec.launch) / "log" / f"shim.{spec.host}.err"
        lifeline_fd = self._lifeline_fd
        stand_behind = self._wall_in(request)
        is_apart = request["wall"] is not None and request["wall"].get("user") is not None

        def run(listener: socket.socket) -> None:
            procfs.set_title(f"tidepool shim: training {spec.job}")
            if COMPAT in spec.launch.compat:
                link_results(spec.launch)
            own_folder(spec.launch).mkdir(exist_ok=True)
            stand_behind(spec.launch, is_apart=is_apart)
            # The training may have put links into its folders: behind the wall, they lead to nothing but its own.
            _write_errors_to(errors)
            make_own_python(spec)
            Shim(spec, listener, lifeline_fd).run()

        return self._fork(Path(request["socket"]), client, mark, run, is_apart=is_apart)

    def _wall_in(self, request: dict[str, Any]) -> "_StandBehind":
        """Return a function that puts a child for a launch behind the wall that the request describes."""
        if request["wall"] is None:
            return _nothing
        wall, abilities = Wall.from_json(request["wall"]), self._abilities
        prepare(wall, abilities)

        if wall.user is not None and not abilities.users:
            raise ValueError(f"trainings cannot be other users here: {abilities.why_no_users}")
        if wall.has_own_devices and not abilities.devices:
            raise ValueError(f"trainings cannot have devices of their own here: {abilities.why_no_devices}")

        def stand_behind(launch: LaunchSpec, *, is_apart: bool = False) -> None:
            surround(wall, abilities, is_apart=is_apart)
            use_home(home_of(launch))
            if wall.user is not None:  # the number may have no name on this machine
                use_name(launch.owner or f"user-{wall.user}")

        return stand_behind

    def _fork_coordinator(self, request: dict[str, Any], client: socket.socket) -> dict[str, Any]:
        desired = from_json(DesiredMembership, request["desired"])
        launch = from_json(LaunchSpec, request["launch"])
        place = str(request["address"]), str(request["host"])
        mark = f"{request['mark']}.{desired.job}.{desired.attempt}.coordinator"
        errors = _folder_of(launch) / "log" / "coordinator.err"
        lifeline_fd = self._lifeline_fd
        stand_behind = self._wall_in(request)

        def run(control: socket.socket) -> None:
            from tidepool.torch.coordination.coordinator import Coordinator

            procfs.set_title(f"tidepool coordinator: training {desired.job}")
            stand_behind(launch)
            _write_errors_to(errors)
            try:
                Coordinator(desired, launch, *place, control, lifeline_fd).run()
            except SupersededError as error:
                logger.warning("job=%s attempt=%s host=%s fenced: %s", desired.job, desired.attempt, place[1], error)

        return self._fork(Path(request["socket"]), client, mark, run)

    def _fork(
        self,
        path: Path,
        client: socket.socket,
        mark: str,
        run: Callable[[socket.socket], None],
        *,
        is_apart: bool = False,
    ) -> dict[str, Any]:
        listener = json_sockets.listen(path)
        remove_socket = json_sockets.socket_remover(path)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = fork(is_apart=is_apart)
        if pid == 0:
            self._close(client)
            _run_child(mark, lambda: run(listener), remove_socket)
        listener.close()
        return _identity(pid)

    def _close(self, client: socket.socket) -> None:
        """Close, in the child, the sockets of the forkserver."""
        self._selector.close()
        self._listener.close()
        client.close()


def _run_child(mark: str, run: Callable[[], None], clean_up: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        procfs.set_mark(mark)
        run()
        clean_up()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _folder_of(launch: LaunchSpec) -> Path:
    """Return the folder of the attempt. Raises OSError if it is not there, which a child could tell nobody."""
    folder = Path(launch.folder)
    folder.stat()
    return folder


def _write_errors_to(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    procfs.redirect([1, 2], path)


def _read_line(client: socket.socket) -> bytes:
    lines = json_sockets.Lines()
    while received := client.recv(65536):
        if found := lines.feed(received):
            return found[0]
    raise ConnectionResetError("closed in the middle of a request")


def _identity(pid: int) -> dict[str, Any]:
    return {"pid": pid, "started_at": procfs.started_at(pid)}


if __name__ == "__main__":
    main()
