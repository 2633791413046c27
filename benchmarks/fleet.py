"""Seconds from a training that waits for GPUs until the command of a fleet begins, on the running stack.

    python -m benchmarks.fleet [--long] [--json FILE]

`manage.py up` runs the autoscaler over a fleet of virtual hosts on this machine. Time goes from the moment at which a
REST client sends a training that needs more GPUs than there are, until the command's process writes down that it runs.
Then the training is cancelled, and the host comes and is of no use: time from when it has come until the command that
stops it begins. `surplus_seconds` of the fleet, here 1 s, is part of that; the pause of 2 s between two looks of the
autoscaler is part of both.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.results import arguments, result, show
from tests.journey.running_stack import RunningStack, free_port
from tests.journey.training import register_recorder
from tests.waiting import wait_until

FLEETS = """
[[fleets]]
name = "virtual"
resource_groups = ["ComputeHostsGPU"]
kind = "virtual GPU (CPU)"
slots = 2
most = 1
hold_seconds = 1
surplus_seconds = 1
command = ["/bin/sh", "-c", "date +%s.%N >> {begun}; exec .venv/bin/python examples/autoscaling/virtual_hosts.py"]
"""


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    rounds = 20 if options.long else 7
    with stack() as (running, begun), running.api() as api:
        register_recorder(running, api)
        times = [one_round(api, begun, number) for number in range(rounds)]
    starts, stops = zip(*times, strict=True)
    show([result("wanted to the command", "s", starts), result("spare to the command", "s", stops)], options.json)


@contextmanager
def stack() -> Iterator[tuple[RunningStack, Path]]:
    """Yield the stack, and the file to which each call of the command adds the time at which it began."""
    with tempfile.TemporaryDirectory(prefix="tidepool-") as folder:
        home = Path(folder)
        begun, fleets = home / "begun", home / "fleets.toml"
        begun.touch()
        fleets.write_text(FLEETS.format(begun=begun))
        variables = {"TIDEPOOL_FLEETS_FILE": str(fleets)}
        running = RunningStack(home, free_port(), ("--hosts", "1", "--slots-per-host", "2"), variables)
        running.start()
        try:
            yield running, begun
        finally:
            running.stop()


def one_round(api: httpx.Client, begun: Path, number: int) -> tuple[float, float]:
    """Return the seconds to the command that starts a host, and to the one that stops it."""
    wanted = {"name": f"waits-{number}", "model": "recorder", "dataset": "digits", "instance_group": "sig-elastic"}
    sent = time.time()
    job = api.post("jobs/", json={**wanted, "min_slots": 4, "max_slots": 4}).raise_for_status().json()["id"]
    started = next_call(begun, 2 * number) - sent
    api.post(f"jobs/{job}/cancel/").raise_for_status()
    wait_until(lambda: states(api).count("start DONE") == number + 1, lambda: f"its host: {states(api)}")
    came = time.time()
    stopped = next_call(begun, 2 * number + 1) - came
    wait_until(lambda: states(api).count("stop DONE") == number + 1, lambda: f"its end: {states(api)}")
    return started, stopped


def next_call(begun: Path, known: int) -> float:
    wait_until(lambda: len(begun.read_text().split()) > known, "a call of the command")
    return float(begun.read_text().split()[known])


def states(api: httpx.Client) -> list[str]:
    rows = api.get("capacity/changes/").raise_for_status().json()["results"]
    return [f"{row['action']} {row['state']}" for row in rows]


if __name__ == "__main__":
    main()
