"""A host is told by a signal that its machine will be gone: trainings leave it live, or save before it goes."""

import json
import os
import signal
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.journey.conftest import fresh_home
from tests.journey.running_stack import RunningStack, free_port
from tests.journey.training import Training, register_model, register_recorder
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.long]

#: Long enough for a busy machine.
NOTICE_SECONDS = 90


@pytest.fixture
def stack() -> Iterator[RunningStack]:
    with fresh_home() as home:
        settings = {"TIDEPOOL_NOTICE_SECONDS": str(NOTICE_SECONDS)}
        running = RunningStack(home, free_port(), ("--hosts", "2", "--slots-per-host", "2"), settings)
        running.start()
        yield running
        running.stop()
        running.assert_nothing_is_left()


def executor_of(stack: RunningStack, host: str) -> int:
    [executor] = [one.pid for one in stack.family() if f"tidepool executor {host}" in " ".join(one.cmdline())]
    return executor


def test_a_training_leaves_a_host_that_goes_without_losing_a_step(stack: RunningStack) -> None:
    with stack.api() as api:
        register_recorder(stack, api)
        training = Training(api, stack.home, "stays", max_slots=4, epochs=100_000)
        training.wait_for_size(4)
        wait_until(lambda: training.steps > 5, "its first steps")

        def host() -> dict[str, Any]:
            return dict(api.get("hosts/gpu-host-2/").raise_for_status().json())

        executor = executor_of(stack, "gpu-host-2")
        os.kill(executor, signal.SIGUSR2)
        wait_until(lambda: host()["state"] == "DRAINING", lambda: f"the drain; it is {host()}")
        assert (host()["leaving_why"], host()["leaving_at"] is not None) == ("signal", True)
        training.wait_for_size(2)
        assert {member.split(".")[0] for member in training.members} == {"gpu-host-1"}
        # Whatever happens to the host now is nobody's loss.
        os.kill(executor, signal.SIGKILL)
        before = training.steps
        wait_until(lambda: training.steps > before, "a step after the host is gone")
        assert training.now["attempt"] == 1
        steps = [record["step"] for record in training.lines("metrics.jsonl")]
        assert steps == list(range(1, len(steps) + 1))


def test_a_fixed_script_saves_within_the_notice_and_goes_on_elsewhere(stack: RunningStack) -> None:
    with stack.api() as api:
        register_model(stack.home, api, "saver", engine="fixed")
        # Longer than the grace of a stop without a notice, which is 10 s.
        slow = {"save-seconds": 20.0}
        training = Training(api, stack.home, "saves", model="saver", min_slots=2, max_slots=2, **slow)

        def counted() -> list[int]:
            return [int(line) for file in training.folder.rglob("counted") for line in file.read_text().split()]

        def host_of_ranks() -> str:
            ranks = api.get(f"jobs/{training.id}/ranks/").raise_for_status().json()["results"]
            [name] = {rank["host"] for rank in ranks if rank["attempt"] == training.now["attempt"]}
            return str(name)

        wait_until(lambda: len(counted()) > 20, lambda: f"its first counts; it is {training.now}")
        first = host_of_ranks()
        os.kill(executor_of(stack, first), signal.SIGUSR2)
        wait_until(lambda: training.now["reason"]["code"] == "HOST_LEAVES", lambda: f"its stop; it is {training.now}")
        leaving_at = datetime.fromisoformat(api.get(f"hosts/{first}/").json()["leaving_at"])
        wait_until(
            lambda: (training.now["attempt"], training.now["state"]) == (2, "RUNNING"),
            lambda: f"its next attempt; it is {training.now}",
        )
        [file] = training.folder.rglob("saved.json")
        saved = json.loads(file.read_text())
        assert saved["at"] < leaving_at.timestamp()
        assert host_of_ranks() != first
        os.kill(executor_of(stack, first), signal.SIGKILL)
        wait_until(lambda: counted()[-1] > saved["count"] + 20, "counts after the host is gone")
        # Nothing that was counted before is lost or counted again.
        assert counted() == list(range(1, len(counted()) + 1))
