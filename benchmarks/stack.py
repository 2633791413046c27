"""Cost of the embedded stack: seconds to ready, seconds from submit to the first step, memory and processor while idle.

    python -m benchmarks.stack [--long] [--json FILE]

The stack runs as `manage.py up` starts it, in a home of its own. Time to the first step goes from the moment at which
a REST client has sent the job until rank 0 has completed a step, by the step's own record. The competitor is the start
of the same script by `python`, off the cluster: what it costs to begin training without any cluster at all. The idle
cost is that of all processes together: at once and over 20 s, or with --long after a minute and over two minutes.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
from tidepool import procfs

from benchmarks.results import Result, arguments, result, show
from tests.journey.running_stack import ROOT, RunningStack, free_port
from tests.waiting import wait_until

EXAMPLE = ROOT / "examples" / "digits-cnn"


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    runs = 20 if options.long else 5
    settle_seconds, idle_seconds = (60, 120) if options.long else (0, 20)
    with tempfile.TemporaryDirectory(prefix="tidepool-") as home:
        first, stack = _timed_start(Path(home))
        stack.stop()
        again, stack = _timed_start(Path(home))
        try:
            memory, processor = _idle_cost(stack, settle_seconds, idle_seconds)
            with stack.api() as api:
                steps = [_submit_to_first_step(api, stack.home, number) for number in range(runs + 1)][1:]
        finally:
            stack.stop()
        alone = [_alone_to_first_step(Path(home)) for _ in range(runs)]
    results: list[Result] = [
        result("first start to ready", "s", [first]),
        result("later start to ready", "s", [again]),
        result("submit to first step", "s", steps, "python elastic-main.py", alone),
        result("python elastic-main.py", "s", alone),
        result("idle stack, proportional memory", "MiB", [memory]),
        result("idle stack, processor time per minute", "s", [processor]),
    ]
    show(results, options.json)


def _timed_start(home: Path) -> tuple[float, RunningStack]:
    stack = RunningStack(home, free_port())
    begun = time.monotonic()
    stack.start()
    return time.monotonic() - begun, stack


def _idle_cost(stack: RunningStack, settle_seconds: float, idle_seconds: float) -> tuple[float, float]:
    """Return MiB of memory and seconds of processor time per minute. Pages that processes share count once."""
    wait_until(lambda: len(list(stack.home.glob("run/*/forkserver.sock"))) == 2, "two forkservers")
    time.sleep(settle_seconds)
    processes = {*stack.family(), *stack.strays()}
    memory = sum(map(_memory_bytes, processes)) / 2**20
    before, begun = procfs.cpu_seconds(processes), time.monotonic()
    time.sleep(idle_seconds)
    spent = procfs.cpu_seconds(processes) - before
    return memory, 60 * spent / (time.monotonic() - begun)


def _memory_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.NoSuchProcess:  # it has ended since it was listed
        return 0


def _submit_to_first_step(api: httpx.Client, home: Path, number: int) -> float:
    job = {
        "name": f"timed-{number}",
        "model": "digits-cnn",
        "dataset": "digits",
        "instance_group": "sig-elastic",
        "max_slots": 1,
        "parameters": {"epochs": 1},
    }
    sent = time.time()
    answer: dict[str, Any] = api.post("jobs/", json=job).raise_for_status().json()
    wait_until(lambda: api.get(f"jobs/{answer['id']}/").json()["state"] == "SUCCEEDED", "the end")
    [metrics] = home.glob(f"results/*/batchworkdir/{answer['id']}/attempt-1/metrics.jsonl")
    first = json.loads(metrics.read_text().splitlines()[0])
    return float(first["at"] - sent)


def _alone_to_first_step(home: Path) -> float:
    """The same script by plain python, to the end of one epoch: 23 steps, of which the start is by far the longest."""
    paths = [str(ROOT / "runtime"), str(ROOT / "runtime" / "compat" / "wmla")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "DATA_DIR": str(home / "data" / "digits")}
    begun = time.monotonic()
    command = [sys.executable, str(EXAMPLE / "elastic-main.py"), "--epochs", "1"]
    subprocess.run(command, env=environment, check=True)
    return time.monotonic() - begun


if __name__ == "__main__":
    main()
