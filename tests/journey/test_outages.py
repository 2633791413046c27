"""Through the whole product: parts of Tidepool are killed while an elastic job trains, and the training does not care.

One stack, one job on four virtual GPUs of two hosts, one outage after the other. What must hold throughout: steps go
on, ranks that were not killed keep their process, no completed step is lost or redone and each sample counts once,
while one rank lives. Only when none is left a new attempt begins, from the checkpoint.
"""

import itertools
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest

from tests.journey.observer import Marked, Observer, lives, marked
from tests.journey.running_stack import RunningStack, free_port
from tests.journey.training import Training, register_recorder
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.long]

HOSTS = ("gpu-host-1", "gpu-host-2")
SIZE = 4
#: Short, so that a lost host is given up within the test; long against the start of an executor on a busy machine.
LEASE_SECONDS = 15


@pytest.fixture(scope="module")
def stack() -> Iterator[RunningStack]:
    home = Path(tempfile.mkdtemp(prefix="tidepool-"))
    running = RunningStack(
        home, free_port(), ("--hosts", "2", "--slots-per-host", "3"), {"TIDEPOOL_LEASE_SECONDS": str(LEASE_SECONDS)}
    )
    running.start()
    yield running
    running.stop()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def observer(stack: RunningStack) -> Iterator[Observer]:
    with Observer(stack, slots=3) as observer:
        yield observer


@pytest.fixture(scope="module")
def training(stack: RunningStack, observer: Observer) -> Iterator[Training]:
    with stack.api() as api:
        register_recorder(stack, api)
        options = {"step-seconds": 0.02, "checkpoint-every": 1}
        training = Training(api, stack.home, "outages", max_slots=SIZE, epochs=100_000, **options)
        training.wait_for_size(SIZE)
        yield training


@pytest.fixture
def before(stack: RunningStack, training: Training) -> dict[str, Marked]:
    """The ranks as they were before the outage, by member_id: all of them in training."""
    wait_for_full_size(stack, training)
    return ranks(stack, training)


def ranks(stack: RunningStack, training: Training) -> dict[str, Marked]:
    return {one.member_id: one for one in marked(stack) if one.role == "rank" and one.job == training.id}


def roles(stack: RunningStack, training: Training, role: str) -> list[Marked]:
    return [one for one in marked(stack) if one.role == role and one.job == training.id]


def wait_for_full_size(stack: RunningStack, training: Training) -> None:
    def complete() -> bool:
        members = training.members
        return len(members) == SIZE and set(members) == ranks(stack, training).keys()

    wait_until(complete, lambda: f"{SIZE} ranks that train; there are {training.members}")


def wait_for_steps(training: Training, count: int) -> None:
    goal = training.steps + count
    wait_until(lambda: training.steps >= goal, f"{count} more steps than {goal - count}")


def kill(one: Marked | psutil.Process) -> None:
    psutil.Process(one.pid).send_signal(signal.SIGKILL)


def assert_they_stayed(stack: RunningStack, training: Training, survivors: dict[str, Marked]) -> None:
    """Assert that the survivors are the same processes and are members of the active generation."""
    after = ranks(stack, training)
    assert survivors == {member_id: one for member_id, one in after.items() if member_id in survivors}
    assert survivors.keys() <= set(training.members)


# --- parts of the stack ---


def finder(stack: RunningStack, part: str) -> Callable[[], list[psutil.Process]]:
    """Finds the living processes of a part; a stopped one does not count as living."""
    words = {
        "scheduler": "tidepool scheduler",
        "web": "tidepool web",
        "control worker": "tidepool control",
        **{f"executor {host}": f"executor {host}" for host in HOSTS},
        **{f"forkserver {host}": f"/{host}/forkserver.sock" for host in HOSTS},
    }

    def is_it(process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED):
                return False
            if part == "broker":
                return process.name().endswith("-server")
            return any(words[part] in argument for argument in process.cmdline())
        return False

    return lambda: [process for process in stack.family() if is_it(process)]


CONTROL = ("scheduler", "web", "control worker", "broker")
EXECUTORS = tuple(f"executor {host}" for host in HOSTS)
FORKSERVERS = tuple(f"forkserver {host}" for host in HOSTS)


@contextmanager
def held_down(stack: RunningStack, *parts: str) -> Iterator[None]:
    """Kill these parts, and stop whatever is started in their place until the block ends."""
    find = [finder(stack, part) for part in parts]
    wait_until(lambda: all(found() for found in find), f"{', '.join(parts)}")
    for process in [process for found in find for process in found()]:
        kill(process)
    over = threading.Event()
    stopped: list[psutil.Process] = []

    def hold() -> None:
        while not over.wait(0.02):
            for process in [process for found in find for process in found()]:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
                    stopped.append(process)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        yield
    finally:
        over.set()
        holder.join()
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def answers(stack: RunningStack) -> bool:
    """Return whether it is well. A web process that was stopped still takes connections, and says nothing."""
    with suppress(httpx.HTTPError):
        return httpx.get(f"{stack.url}/healthz", timeout=5, trust_env=False).status_code == 200
    return False


def wait_until_healthy(stack: RunningStack) -> None:
    wait_until(lambda: answers(stack), "a healthy stack")


def test_nobody_misses_a_part_that_is_killed(
    stack: RunningStack, training: Training, before: dict[str, Marked]
) -> None:
    for part in (*FORKSERVERS, *CONTROL, *EXECUTORS):
        found = finder(stack, part)
        victims = found()
        assert victims, part
        for victim in victims:
            kill(victim)
        wait_for_steps(training, 3)
        wait_until(lambda found=found, old=victims: set(found()) - set(old), f"another {part}")
    wait_until_healthy(stack)
    assert_they_stayed(stack, training, before)


def test_training_goes_on_while_the_whole_control_plane_is_down(
    stack: RunningStack, training: Training, before: dict[str, Marked]
) -> None:
    parts = (*CONTROL, *EXECUTORS)
    with held_down(stack, *parts):
        wait_for_steps(training, 40)
        wait_until(lambda: not any(finder(stack, part)() for part in parts), "whatever was started is stopped")
        assert not answers(stack)
    reached = training.steps
    wait_until_healthy(stack)
    wait_until(lambda: training.now["step"] >= reached, "the pages have caught up")
    assert_they_stayed(stack, training, before)
    assert training.now["state"] == "RUNNING"


def test_a_coordinator_that_is_killed_is_replaced(
    stack: RunningStack, training: Training, before: dict[str, Marked]
) -> None:
    [coordinator] = roles(stack, training, "coordinator")
    kill(coordinator)
    wait_for_steps(training, 3)
    wait_until(lambda: set(roles(stack, training, "coordinator")) - {coordinator}, "another one")
    wait_for_steps(training, 3)
    assert_they_stayed(stack, training, before)


@pytest.mark.parametrize(
    "victims",
    [[1], [0], [0, 2]],
    ids=["a rank", "rank 0", "two at once"],
)
def test_survivors_go_on_and_a_replacement_joins(
    stack: RunningStack, training: Training, before: dict[str, Marked], victims: list[int]
) -> None:
    killed = [before[training.members[victim]] for victim in victims]
    for one in killed:
        kill(one)
    wait_until(lambda: not {one.member_id for one in killed} & set(training.members), "the survivors")
    wait_for_full_size(stack, training)
    assert_they_stayed(stack, training, {member_id: one for member_id, one in before.items() if one not in killed})


@pytest.mark.parametrize("host", HOSTS)
def test_a_shim_takes_only_its_own_ranks_with_it(
    stack: RunningStack, training: Training, before: dict[str, Marked], host: str
) -> None:
    [shim] = [one for one in roles(stack, training, "shim") if one.host == host]
    kill(shim)
    wait_until(lambda: not any(one.host == host for one in before.values() if lives(one)), "its ranks end")
    wait_for_full_size(stack, training)
    assert_they_stayed(stack, training, {member_id: one for member_id, one in before.items() if one.host != host})


def test_a_lost_host_takes_only_its_own_ranks_with_it(
    stack: RunningStack, training: Training, before: dict[str, Marked]
) -> None:
    """The one with the coordinator: another host leads once it is known to be lost."""
    [coordinator] = roles(stack, training, "coordinator")
    host = coordinator.host
    survivors = {member_id: one for member_id, one in before.items() if one.host != host}
    assert 0 < len(survivors) < SIZE
    with held_down(stack, f"executor {host}", f"forkserver {host}"):
        for one in marked(stack):
            if one.host == host:
                with suppress(psutil.NoSuchProcess):  # the rank died with its shim first
                    kill(one)
        lost = before.keys() - survivors.keys()
        wait_until(lambda: not lost & set(training.members), "the survivors")
        wait_for_steps(training, 10)
        assert_they_stayed(stack, training, survivors)
    wait_for_full_size(stack, training)
    assert_they_stayed(stack, training, survivors)


def test_no_step_was_lost_and_each_sample_counted_once(stack: RunningStack, training: Training) -> None:
    records = training.lines("metrics.jsonl", 1)
    assert [record["step"] for record in records] == list(range(1, len(records) + 1))
    generations = [record["generation"] for record in records]
    assert generations == sorted(generations)
    assert training.now["attempt"] == 1, "never started again while one rank was left"
    samples = len(np.load(stack.home / "data" / "digits" / "train.npz")["labels"])
    read = training.samples_by_step()
    for epoch, group in itertools.groupby(records, key=lambda record: record["epoch"]):
        steps = list(group)
        used = [read[epoch, record["step"] - 1] for record in steps]
        assert [len(one) for one in used] == [record["samples"] for record in steps]
        assert len(set().union(*used)) == sum(record["samples"] for record in steps)
        if epoch < records[-1]["epoch"]:
            assert sum(record["samples"] for record in steps) == samples


def test_with_no_rank_left_the_next_attempt_begins_at_a_checkpoint(
    stack: RunningStack, training: Training, before: dict[str, Marked]
) -> None:
    for one in before.values():
        kill(one)
    wait_until(lambda: training.now["attempt"] == 2 and training.lines("metrics.jsonl", 2), "attempt 2")
    wait_for_full_size(stack, training)
    first = training.lines("metrics.jsonl", 2)[0]["step"]
    checkpoints = training.api.get(f"jobs/{training.id}/checkpoints/").json()
    listed = checkpoints["results"] if isinstance(checkpoints, dict) else checkpoints
    assert first > 1
    assert first - 1 in [checkpoint["step"] for checkpoint in listed if checkpoint["attempt"] == 1]


def test_nothing_was_ever_amiss_and_nothing_is_left(
    stack: RunningStack, training: Training, observer: Observer
) -> None:
    training.api.post(f"jobs/{training.id}/cancel/").raise_for_status()
    wait_until(lambda: training.now["state"] == "CANCELLED", "it is cancelled")
    observer.assert_no_orphan(training.id, seconds=2 * LEASE_SECONDS)
    observer.assert_all_was_well()
