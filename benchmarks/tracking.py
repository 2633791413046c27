"""Cost of MLflow's proxy: added to a call, of an asynchronous call in a script, of files, and memory meanwhile.

    python -m benchmarks.tracking [--long] [--json FILE]

Needs MLflow's server (scripts/setup-mlflow) and installs its client once. The stack runs as `manage.py up` starts it.
Each competitor is asked in the same run, in turn: MLflow's server on its own socket for calls through the proxy,
synchronous calls for asynchronous ones, and a copy on the disk for files. The mirror has no code in a step: nothing to
measure there.
"""

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
from django.utils.crypto import salted_hmac

from benchmarks.results import Result, arguments, result, show
from tests.journey.running_stack import RunningStack, free_port
from tests.tracking.clients import CLIENTS, SERVER_PYTHON, Client
from tests.waiting import wait_until

_CALL = "/mlflow/api/2.0/mlflow/experiments/get?experiment_id="
_FILES = "/mlflow/api/2.0/mlflow-artifacts/artifacts"
_PIECE = bytes(1024**2)
_LOG = """
import os, time
os.environ["MLFLOW_TRACKING_TOKEN"] = token
import mlflow
mlflow.set_experiment("/Users/admin/benchmark")
told = {}
with mlflow.start_run() as run:
    for name, synchronous, calls in (("sync", True, 30), ("async", False, 1000)):
        told[name] = []
        for step in range(calls):
            begun = time.perf_counter()
            mlflow.log_metric(name, step, step=step, synchronous=synchronous)
            told[name].append(1000 * (time.perf_counter() - begun))
    mlflow.flush_async_logging()
    told["experiment"], told["run"] = run.info.experiment_id, run.info.run_id
"""


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    runs, megabytes = (200, 300) if options.long else (50, 100)
    if not SERVER_PYTHON.exists():
        raise SystemExit("MLflow's server is not installed: scripts/setup-mlflow")
    with tempfile.TemporaryDirectory(prefix="tidepool-") as folder:
        stack = RunningStack(Path(folder) / "home", free_port())
        stack.start()
        try:
            show(_figures(stack, runs, megabytes), options.json)
        finally:
            stack.stop()


def _figures(stack: RunningStack, runs: int, megabytes: int) -> list[Result]:
    with stack.api() as api:
        token = api.post("me/token/").json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    web, server = _process(stack, "webapp.embedded.serve"), _process(stack, "bridge.py")
    with (
        httpx.Client(base_url=stack.url, headers=headers, timeout=600, trust_env=False) as proxied,
        _direct(stack) as direct,
    ):
        wait_until(lambda: proxied.get(f"{_CALL}0").status_code in (200, 404), "MLflow answers")
        logged = Client(CLIENTS[0], stack.url).run(_LOG, token=token)
        call = f"{_CALL}{logged['experiment']}"
        through, beside = _in_turn(runs, lambda: proxied.get(call), lambda: direct.get(call))
        address = f"{_FILES}/{logged['experiment']}/{logged['run']}/artifacts/large.bin"
        written, read, copied, memory = _files(proxied, address, megabytes, web, stack.home)
    return [
        result("call through the proxy", "ms", through, "MLflow on its socket", beside),
        result("call, added by the proxy", "ms", [a - b for a, b in zip(through, beside, strict=True)]),
        result("asynchronous log_metric", "ms", logged["async"], "synchronous", logged["sync"]),
        result("files written", "MB/s", written, "copied on the disk", copied),
        result("files read", "MB/s", read, "copied on the disk", copied),
        result("web process, added by files", "MB", memory),
        result("MLflow's server", "MB", [server.memory_full_info().pss / 1e6]),
    ]


def _process(stack: RunningStack, word: str) -> psutil.Process:
    def found() -> psutil.Process | None:
        return next((each for each in stack.family() if any(word in part for part in each.cmdline())), None)

    process = wait_until(found, f"{word} runs")
    assert process is not None
    return process


@contextmanager
def _direct(stack: RunningStack) -> Iterator[httpx.Client]:
    """To MLflow's server, as the proxy speaks to it."""
    secret = (stack.home / "secret-key").read_text().strip()
    proof = salted_hmac("tracking.proof", "", secret=secret, algorithm="sha256").hexdigest()
    headers = {"X-Tidepool-Proof": proof, "X-Tidepool-User": "admin", "X-Tidepool-Admin": "1"}
    transport = httpx.HTTPTransport(uds=str(stack.home / "run/mlflow/server.sock"))
    with httpx.Client(base_url="http://localhost", headers=headers, timeout=60, transport=transport) as client:
        yield client


def _in_turn(
    runs: int, one: Callable[[], httpx.Response], other: Callable[[], httpx.Response]
) -> tuple[list[float], list[float]]:
    """Milliseconds of each; the first of both are left out."""
    times: tuple[list[float], list[float]] = [], []
    for _ in range(runs + 1):
        for call, spent in zip((one, other), times, strict=True):
            begun = time.perf_counter()
            call().raise_for_status()
            spent.append(1000 * (time.perf_counter() - begun))
    return times[0][1:], times[1][1:]


def _files(
    client: httpx.Client, address: str, megabytes: int, web: psutil.Process, home: Path
) -> tuple[list[float], list[float], list[float], list[float]]:
    """MB/s written, read and copied; and by how many MB the web process has grown at most."""
    written, read, copied = [], [], []
    original = home / "original"
    original.write_bytes(_PIECE * megabytes)
    with _peak(web) as grown:
        for _ in range(3):
            written.append(
                _speed(megabytes, lambda: client.put(address, content=_pieces(megabytes)).raise_for_status())
            )
            read.append(_speed(megabytes, lambda: _read(client, address)))
            copied.append(_speed(megabytes, lambda: shutil.copyfile(original, home / "copy")))
    return written, read, copied, grown


def _speed(megabytes: int, call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return megabytes * len(_PIECE) / 1e6 / (time.perf_counter() - begun)


def _pieces(megabytes: int) -> Iterator[bytes]:
    for _ in range(megabytes):
        yield _PIECE


def _read(client: httpx.Client, address: str) -> None:
    with client.stream("GET", address) as answer:
        answer.raise_for_status()
        for _ in answer.iter_raw():
            pass


@contextmanager
def _peak(process: psutil.Process) -> Iterator[list[float]]:
    """Filled, once left, with the MB by which the process was larger at most than it is at the beginning."""
    before, most, over, grown = process.memory_info().rss, [0], threading.Event(), []

    def watch() -> None:
        while not over.wait(0.02):
            most[0] = max(most[0], process.memory_info().rss - before)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield grown
    finally:
        over.set()
        watching.join()
        grown.append(most[0] / 1e6)


if __name__ == "__main__":
    os.environ.pop("TIDEPOOL_HOME", None)
    main()
