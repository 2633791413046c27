"""A fleet of virtual hosts on this machine: hosts come for a training, and leave it live."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.journey.conftest import fresh_home
from tests.journey.running_stack import RunningStack, free_port
from tests.journey.training import Training, register_recorder
from tests.waiting import wait_until

#: As docs/operator/autoscaling.md has it, with fewer seconds.
FLEETS = """
[[fleets]]
name = "virtual"
resource_groups = ["ComputeHostsGPU"]
kind = "virtual GPU (CPU)"
slots = 2
most = 1
worth = 1.1
hold_seconds = 2
surplus_seconds = 2
command = [".venv/bin/python", "examples/autoscaling/virtual_hosts.py"]
"""

pytestmark = [pytest.mark.journey, pytest.mark.long]


@pytest.fixture
def stack() -> Iterator[RunningStack]:
    with fresh_home() as home:
        (home / "fleets.toml").write_text(FLEETS)
        arguments = ("--hosts", "1", "--slots-per-host", "2")
        running = RunningStack(home, free_port(), arguments, {"TIDEPOOL_FLEETS_FILE": str(home / "fleets.toml")})
        running.start()
        yield running
        running.stop()
        running.assert_nothing_is_left()


def test_a_host_comes_for_a_training_and_leaves_another_one_live(stack: RunningStack) -> None:
    with stack.api() as api:
        register_recorder(stack, api)

        def capacity() -> dict[str, Any]:
            return dict(api.get("capacity/wanted/").raise_for_status().json())

        def changes() -> list[tuple[str, str]]:
            rows = api.get("capacity/changes/").raise_for_status().json()["results"]
            return [(row["action"], row["state"]) for row in reversed(rows)]

        grows = Training(api, stack.home, "grows", max_slots=4, epochs=100_000)
        grows.wait_for_size(2)
        wait_until(lambda: grows.steps > 5, "its first steps")
        # Two GPUs for both: the first training keeps one, so this one waits for a host.
        waits = Training(api, stack.home, "waits", min_slots=2, max_slots=2, epochs=100_000)
        waits.wait_for_size(2)
        assert changes() == [("start", "DONE")]
        [fleet] = capacity()["fleets"]
        assert fleet["hosts"] == 1
        # The host is of use to the other training, but brings less than it costs.
        api.post(f"jobs/{waits.id}/cancel/").raise_for_status()
        wait_until(lambda: changes() == [("start", "DONE"), ("stop", "DONE")], lambda: f"its end: {capacity()}")
        grows.wait_for_size(2)
        assert [host["name"] for host in api.get("hosts/").json()["results"]] == ["gpu-host-1"]
        # No step was lost, and none was made twice.
        before = grows.steps
        wait_until(lambda: grows.steps > before, "a step after the host has left")
        assert grows.now["attempt"] == 1
        steps = [record["step"] for record in grows.lines("metrics.jsonl")]
        assert steps == list(range(1, len(steps) + 1))
