"""An hour of a cluster, compressed into minutes, is played again: as close to what was recorded as it has to be."""

import time
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.journey.running_stack import RunningStack
from tests.journey.training import Training, register_recorder
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.long]

#: Seconds after the first one, epochs, and most GPUs of each training.
TRACE = ((0, 60, 8), (12, 12, 2), (20, 25, 4), (28, 8, 8), (45, 30, 8), (52, 10, 1), (75, 20, 4), (80, 15, 8))
#: On one GPU a step takes a tenth of a second.
SAMPLE_SECONDS = 0.0015


def played(api: httpx.Client, start: datetime, end: datetime, **asked: Any) -> dict[str, Any]:
    """The replay, once it is over."""
    answer = api.post("replays/", json={"start": start.isoformat(), "end": end.isoformat(), **asked})
    assert answer.status_code == 202, answer.text
    address = f"replays/{answer.json()['id']}/"

    def now() -> dict[str, Any]:
        return dict(api.get(address).raise_for_status().json())

    wait_until(lambda: now()["state"] in ("DONE", "FAILED"), lambda: f"the replay; it is {now()}")
    return now()


def test_a_recorded_trace_is_replayed_within_the_bars(stack: RunningStack) -> None:
    with stack.api() as api:
        register_recorder(stack, api)
        # The first training of a stack loads what later ones find in memory.
        Training(api, stack.home, "warm-up", epochs=1).wait_for_the_end()
        start, began = datetime.now(UTC), time.monotonic()
        trainings = []
        for number, (seconds, epochs, most) in enumerate(TRACE):
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            options = {"epochs": epochs, "sample-seconds": SAMPLE_SECONDS}
            trainings.append(Training(api, stack.home, f"traced-{number}", max_slots=most, **options))
        for training in trainings:
            training.wait_for_the_end()
        end = datetime.now(UTC)
        same = played(api, start, end)
        print(same["text"], same["result"]["recorded"], same["result"]["same"], sep="\n")
        assert same["result"]["counted"] == len(TRACE)
        assert same["result"]["is_good"], same["result"]["errors"]
        rules = {"sig-elastic": {"policy": "goodput", "aim": "soon"}}
        other = played(api, start, end, groups=rules)
        print(other["text"], other["result"]["other"], other["limits"], sep="\n")
        assert other["result"]["other"][0]["jobs"] == len(TRACE)
        rows = api.get(f"replays/{other['id']}/jobs.csv").text.splitlines()
        assert len(rows) == 1 + len(TRACE)
