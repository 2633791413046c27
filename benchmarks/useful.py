"""Useful time of a training while parts of the whole stack are killed: its steps over those of an undisturbed one.

    python -m benchmarks.useful [--seed N] [--long] [--json FILE]

`manage.py up` with three hosts runs one elastic training on six virtual GPUs. Its steps sleep, so that the processors
have room for what is started again. First nothing happens; then something is killed by `kill -9` every ten seconds, and
then every two: a rank, shim, coordinator, forkserver, executor, the scheduler, the control worker, the web process or
the broker, whichever the die says.
"""

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from benchmarks.results import Result, arguments, result, show
from tests.journey.running_stack import RunningStack, free_port
from tests.journey.training import Training, register_recorder
from tests.waiting import wait_until

HOSTS, SLOTS_PER_HOST = 3, 2
STEP_SECONDS = 0.1
#: Parts that are killed, by words of their command line; the title of a job's process begins with its role.
PARTS = {
    "rank": "tidepool rank",
    "shim": "tidepool shim",
    "coordinator": "tidepool coordinator",
    "forkserver": "tidepool forkserver",
    "executor": "tidepool executor",
    "scheduler": "tidepool scheduler",
    "control": "tidepool control",
    "web": "tidepool web",
    "broker": "broker.sock",
}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seconds = 600.0 if options.long else 60.0
    dice = random.Random(options.seed)
    with training_on_all() as (stack, training):
        calm = steps_made(training, seconds)
        results = [result("undisturbed", "1/s", [calm / seconds])]
        for pause in (10.0, 2.0):
            wait_for_all(training)
            results += disturbed(stack, training, seconds, pause, dice, calm)
    show(results, options.json)


@contextmanager
def training_on_all() -> Iterator[tuple[RunningStack, Training]]:
    with tempfile.TemporaryDirectory(prefix="tide-", ignore_cleanup_errors=True) as home:
        stack = RunningStack(
            Path(home),
            free_port(),
            ("--hosts", str(HOSTS), "--slots-per-host", str(SLOTS_PER_HOST), "--broker", "auto"),
        )
        stack.start()
        try:
            with stack.api() as api:
                register_recorder(stack, api)
                options = {"step-seconds": STEP_SECONDS, "checkpoint-every": 1}
                training = Training(
                    api, stack.home, "useful", max_slots=HOSTS * SLOTS_PER_HOST, epochs=100_000, **options
                )
                wait_for_all(training)
                yield stack, training
        finally:
            stack.stop()


def wait_for_all(training: Training) -> None:
    wait_until(lambda: len(training.members) == HOSTS * SLOTS_PER_HOST, "all ranks train")


def steps_made(training: Training, seconds: float) -> int:
    before = training.steps
    time.sleep(seconds)
    return training.steps - before


def disturbed(
    stack: RunningStack, training: Training, seconds: float, pause: float, dice: random.Random, calm: int
) -> list[Result]:
    before, over = training.steps, time.monotonic() + seconds
    killed: Counter[str] = Counter()
    size = []
    while time.monotonic() < over:
        time.sleep(pause)
        size.append(len(training.members))
        killed[kill_one(stack, dice)] += 1
    made = training.steps - before
    print(
        f"every {pause:g} s: {dict(killed)}; attempts {training.lines('metrics.jsonl')[-1]['attempt']}", file=sys.stderr
    )
    return [
        result(f"every {pause:g} s: useful time", "", [made / calm]),
        result(f"every {pause:g} s: events", "", [killed.total()]),
        result(f"every {pause:g} s: ranks", "", size),
    ]


def kill_one(stack: RunningStack, dice: random.Random) -> str:
    """Kill a process of `up`, each with the same chance; returns what it was."""
    found = []
    for process in stack.family()[1:]:
        with suppress(psutil.Error):
            words = " ".join(process.cmdline())
            found += [(name, process) for name, part in PARTS.items() if part in words]
    name, victim = dice.choice(found)
    with suppress(psutil.NoSuchProcess):
        victim.kill()
    return name


if __name__ == "__main__":
    main()
