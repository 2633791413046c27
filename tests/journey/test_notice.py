"""A host is told by a signal that its machine will be gone: its trainings leave it live."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.journey.conftest import fresh_home
from tests.journey.running_stack import RunningStack, free_port
from tests.journey.training import Training, register_recorder
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


def test_a_training_leaves_a_host_that_goes_without_losing_a_step(stack: RunningStack) -> None:
    with stack.api() as api:
        register_recorder(stack, api)
        training = Training(api, stack.home, "stays", max_slots=4, epochs=100_000)
        training.wait_for_size(4)
        wait_until(lambda: training.steps > 5, "its first steps")

        def host() -> dict[str, Any]:
            return dict(api.get("hosts/gpu-host-2/").raise_for_status().json())

        [executor] = [one.pid for one in stack.family() if "tidepool executor gpu-host-2" in " ".join(one.cmdline())]
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
