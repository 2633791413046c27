"""The same trainings on the running stack under policy fairshare and under goodput: completion times and resizes.

    python -m benchmarks.shares [--aim soon] [--long] [--json FILE]

`manage.py up` with two hosts of four virtual GPUs gets six trainings, one each fifteen seconds: three that scale (four
GPUs make them 3.4 times as fast) and, in turn with them, three that do not (no number of GPUs makes them faster than
one). Their steps sleep (`examples/paced`), so that eight GPUs need no eight processors. All begin unmeasured.
`--long`: three runs of each policy, in turn.
"""

import shutil
import tempfile
import time
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import httpx

from benchmarks.results import Result, arguments, result, show
from scheduling.snapshot import Aim
from tests.journey.running_stack import RunningStack, free_port
from tests.journey.training import Training
from tests.waiting import wait_until
from webapp.tutorial.history import COUNT, KINDS, PACED, PAUSE_SECONDS

POLICIES = ("fairshare", "goodput")


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--aim", choices=get_args(Aim), default="soon")
    options = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {policy: defaultdict(list) for policy in POLICIES}
    with tempfile.TemporaryDirectory(prefix="tide-", ignore_cleanup_errors=True) as home:
        stack = RunningStack(Path(home), free_port(), ("--hosts", "2", "--slots-per-host", "4", "--broker", "auto"))
        stack.start()
        try:
            with stack.api() as api:
                register(stack, api)
                for turn in range(3 if options.long else 1):
                    for policy in POLICIES if turn % 2 == 0 else POLICIES[::-1]:
                        play(stack, api, policy, options.aim, found[policy])
        finally:
            stack.stop()
    show(list(results(found)), options.json)


def register(stack: RunningStack, api: httpx.Client) -> None:
    folder = stack.home / "models" / "paced"
    shutil.copytree(PACED, folder)
    model = {"name": "paced", "framework": "PyTorch", "path": str(folder)}
    api.post("models/", json={**model, "entry_point": "train.py", "engine": "elastic"}).raise_for_status()


def play(stack: RunningStack, api: httpx.Client, policy: str, aim: str, found: dict[str, list[float]]) -> None:
    """Add what is found: means over the trainings, and a value of each kind of training for each of them."""
    terms = {"policy": policy, "aim": aim, "preemption": True}
    api.patch("instance-groups/sig-elastic/", json=terms).raise_for_status()
    kinds = [list(KINDS)[number % len(KINDS)] for number in range(COUNT)]
    trainings = []
    for number, kind in enumerate(kinds):
        if number:
            time.sleep(PAUSE_SECONDS)
        options: dict[str, Any] = {"model": "paced", "max_slots": 8, **KINDS[kind]}
        trainings.append(Training(api, stack.home, f"{policy}-{kind}-{number}", **options))
    for training in trainings:
        wait_for_the_end(training)
    seconds = [seconds_of(training.now) for training in trainings]
    found["mean"].append(fmean(seconds))
    found["resizes"].append(sum(map(resizes_of, trainings)))
    for kind, each in zip(kinds, seconds, strict=True):
        found[kind].append(each)


def wait_for_the_end(training: Training) -> None:
    wait_until(lambda: training.now["state"] == "SUCCEEDED", lambda: f"its end: {training.now}", 900)


def seconds_of(job: dict[str, Any]) -> float:
    """Return the seconds from submission to end."""
    submitted, finished = (datetime.fromisoformat(job[name]) for name in ("submitted_at", "finished_at"))
    return (finished - submitted).total_seconds()


def resizes_of(training: Training) -> int:
    """Changes from one number of GPUs to another while it trained."""
    return max(0, len([size for size in training.sizes if size]) - 1)


def results(found: dict[str, dict[str, list[float]]]) -> list[Result]:
    names = {"mean": "mean completion time", "scales": "of those that scale", "flat": "of those that do not"}
    fair, goodput = (found[policy] for policy in POLICIES)
    rows = []
    for name, words in names.items():
        rows += [
            result(f"{words}, fairshare", "s", fair[name]),
            result(f"{words}, goodput", "s", goodput[name], "fairshare", fair[name]),
        ]
    return [*rows, *(result(f"resizes, {policy}", "", found[policy]["resizes"]) for policy in POLICIES)]


if __name__ == "__main__":
    main()
