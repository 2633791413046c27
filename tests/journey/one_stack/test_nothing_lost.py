"""Through the whole product: a training that is resized again and again equals one that never was.

And one whose script cannot be resized is not.
"""

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from tidepool.torch.state.checkpoint_files import load_weights
from torch import nn

from tests.journey.observer import Observer
from tests.journey.running_stack import ROOT, RunningStack
from tests.journey.training import RECORDER, Training
from tests.runtime.lab import OFF_CLUSTER
from tests.waiting import wait_until

pytestmark = pytest.mark.journey

EPOCHS = 28


@pytest.fixture(scope="module")
def observer(stack: RunningStack) -> Iterator[Observer]:
    with Observer(stack, slots=4) as observer:
        yield observer


@pytest.fixture(scope="module")
def both(stack: RunningStack, observer: Observer, recorder: None) -> Iterator[tuple[Training, Training]]:
    """A training that had 1, 8, 4, 8, 2, 3 and 8 GPUs, and the one in exactness `bitwise` that it shared them with."""
    with stack.api() as api:
        hurry = stack.signals / "hurry"
        options = {"step-seconds": 0.1, "hurry": str(hurry), "checkpoint-every": 9}
        training = Training(api, stack.home, "resized", epochs=EPOCHS, **options)
        training.wait_for_size(8)
        other = Training(api, stack.home, "exact", exactness="bitwise", epochs=3, noisy=1, **{"step-seconds": 0.01})
        training.wait_for_size(4)
        other.wait_for_the_end()
        training.wait_for_size(8)
        for size in (2, 3, 8):
            training.change(max_slots=size)
            training.wait_for_size(size)
        hurry.touch()
        training.wait_for_the_end()
        yield training, other


@pytest.fixture(scope="module")
def resized(both: tuple[Training, Training]) -> Training:
    return both[0]


@pytest.fixture(scope="module")
def exact(both: tuple[Training, Training]) -> Training:
    return both[1]


@pytest.fixture(scope="module")
def digits(stack: RunningStack) -> Path:
    return stack.home / "data" / "digits"


def test_had_all_these_sizes(resized: Training) -> None:
    assert resized.sizes == [0, 1, 8, 4, 8, 2, 3, 8, 0]


def test_read_each_sample_once_per_epoch(resized: Training, digits: Path) -> None:
    samples = len(np.load(digits / "train.npz")["labels"])
    files = list((resized.folder / "log").glob("*/samples"))
    assert len(files) > 8, "ranks that came and went wrote files of their own"
    read = Counter(line.rsplit(maxsplit=1)[0] for file in files for line in file.read_text().splitlines())
    assert read == Counter(f"{epoch} {index}" for epoch in range(EPOCHS) for index in range(samples))


def test_made_each_step_once(resized: Training, digits: Path) -> None:
    per_epoch = -(-len(np.load(digits / "train.npz")["labels"]) // 64)
    records = resized.lines("metrics.jsonl")
    assert [record["step"] for record in records] == list(range(1, EPOCHS * per_epoch + 1))
    found = [size for size, _ in itertools.groupby(record["world_size"] for record in records)]
    assert found == [1, 8, 4, 8, 2, 3, 8]


def differences(training: Training, digits: Path, folder: Path, *arguments: str) -> dict[str, float]:
    """From one rank that was never interrupted: the same script, off the cluster. The largest one of each tensor."""
    out = folder / "weights.pth"
    environment = {**OFF_CLUSTER, "DATA_DIR": str(digits), "LOG_DIR": str(folder)}
    command = [sys.executable, str(RECORDER / "train.py"), *arguments, "--out", str(out)]
    subprocess.run(command, check=True, env=environment, timeout=200)
    alone = torch.load(out, weights_only=True)
    elastic = torch.load(training.folder / "model" / "train" / "model_epoch_final.pth", weights_only=True)
    assert alone.keys() == elastic.keys()
    return {name: float((elastic[name].double() - tensor.double()).abs().max()) for name, tensor in alone.items()}


def test_has_the_weights_of_one_rank_that_was_never_interrupted(
    resized: Training, digits: Path, tmp_path: Path
) -> None:
    found = differences(resized, digits, tmp_path, "--epochs", str(EPOCHS))
    assert max(found.values()) <= 1e-5, found


def test_bitwise_has_the_very_bits_of_one_rank(exact: Training, digits: Path, tmp_path: Path) -> None:
    assert len(set(exact.sizes) - {0}) > 1, exact.sizes
    assert (exact.now["exactness"], exact.now["virtual_ranks"]) == ("bitwise", 8)
    found = differences(exact, digits, tmp_path, "--epochs", "3", "--noisy", "1", "--virtual-ranks", "8")
    assert set(found.values()) == {0.0}, found
    assert any("running_mean" in name for name in found)


@pytest.mark.parametrize("held_by", ["its owner", pytest.param("its limit", marks=pytest.mark.long)])
def test_a_training_that_is_held_back_goes_on_after_exactly_that_step(
    stack: RunningStack, recorder: None, digits: Path, held_by: str
) -> None:
    samples = len(np.load(digits / "train.npz")["labels"])
    hurry, is_limited = stack.signals / f"hurry after {held_by}", held_by == "its limit"
    with stack.api() as api:
        options = {"step-seconds": 0.5 if is_limited else 0.2, "hurry": str(hurry)}
        training = Training(api, stack.home, f"held by {held_by}", max_slots=3, epochs=2, **options)
        wait_until(lambda: training.steps >= 2, "its first steps")
        if is_limited:
            training.change(max_seconds=10)
        else:
            api.post(f"jobs/{training.id}/suspend/").raise_for_status()
        wait_until(lambda: training.now["state"] == "SUSPENDED", lambda: f"SUSPENDED; it is {training.now}")
        assert training.now["reason"]["code"] == ("TIME_LIMIT" if is_limited else "SUSPENDED_BY_USER")
        [halted] = [line["data"]["step"] for line in training.lines("plans.jsonl") if line["kind"] == "halted"]
        [point] = api.get(f"jobs/{training.id}/checkpoints/").json()["results"]
        assert (point["step"], training.now["slots"]) == (halted, 0)
        training.change(max_seconds=None)
        hurry.touch()
        api.post(f"jobs/{training.id}/resume/").raise_for_status()
        training.wait_for_the_end()
        texts = [event["reason"]["text"] for event in api.get(f"jobs/{training.id}/events/").json()["results"]]
    assert (
        f"Stopped after step {halted}, with a checkpoint. No step is lost, and training will continue from there."
        in texts
    )
    first, second = ([record["step"] for record in training.lines("metrics.jsonl", number)] for number in (1, 2))
    assert first == list(range(1, halted + 1))
    assert second == list(range(halted + 1, 2 * -(-samples // 64) + 1))
    files = list(training.folder.glob("attempt-*/log/*/samples"))
    read = Counter(line.rsplit(maxsplit=1)[0] for file in files for line in file.read_text().splitlines())
    assert read == Counter(f"{epoch} {index}" for epoch in range(2) for index in range(samples))


def upload(api: httpx.Client, path: Path) -> int:
    content = path.read_bytes()
    begun = api.post("uploads/", json={"name": path.name, "size_bytes": len(content)}).raise_for_status().json()
    headers = {"Content-Type": "application/octet-stream", "Upload-Offset": "0"}
    api.patch(f"uploads/{begun['id']}/", content=content, headers=headers).raise_for_status()
    return int(begun["id"])


# tests/jobs/actions/test_submission.py shows that a training gets the bytes of an upload.
@pytest.mark.parametrize("source", ["result", "checkpoint", pytest.param("upload", marks=pytest.mark.long)])
def test_a_training_begins_with_the_weights_of_an_earlier_one(
    stack: RunningStack, resized: Training, source: str
) -> None:
    """With a learning rate of 0 they are its own in the end."""
    with stack.api() as api:
        point = min(api.get(f"jobs/{resized.id}/checkpoints/").json()["results"], key=lambda point: point["step"])
        result = resized.folder / "attempt-1" / "model/train/model_epoch_final.pth"
        given = {
            "result": resized.id,
            "checkpoint": {"checkpoint": point["id"]},
            "upload": {"upload": upload(api, result)},
        }[source]
        options = {"epochs": 1, "learning-rate": 0.0}
        training = Training(
            api, stack.home, f"from-{source}", min_slots=2, max_slots=2, initial_weights=given, **options
        )
        training.wait_for_the_end()
        sizes = training.sizes
    folder = resized.folder / "attempt-1"
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    load_weights(folder / f"checkpoint/step-{point['step']:09d}" if source == "checkpoint" else result, model)
    found = torch.load(training.folder / "current/model/train/model_epoch_final.pth", weights_only=True)
    assert all(torch.equal(found[name], tensor) for name, tensor in model.state_dict().items())
    steps = [record["step"] for record in training.lines("metrics.jsonl")]
    assert steps == list(range(1, len(steps) + 1)), "another training, with steps of its own"
    assert sizes == [0, 2, 0]


def test_no_slot_was_held_twice_and_nothing_went_back(resized: Training, observer: Observer) -> None:
    observer.assert_all_was_well()
    observer.assert_no_orphan(resized.id, seconds=60)


class PlainJob:
    """A job of a plain DDP script, on exactly two GPUs."""

    def __init__(self, api: httpx.Client, home: Path) -> None:
        self.api = api
        code = home / "models" / "ddp-digits"
        shutil.copytree(ROOT / "examples" / "ddp-digits", code)
        model = {"name": "ddp-digits", "framework": "PyTorch", "path": str(code), "entry_point": "train.py"}
        assert api.post("models/", json={**model, "engine": "fixed"}).status_code == 201
        asked = {"name": "plain", "model": "ddp-digits", "dataset": "digits", "instance_group": "sig-elastic"}
        answer = api.post("jobs/", json={**asked, "max_slots": 2, "parameters": {"epochs": 100_000}})
        assert answer.status_code == 201, answer.text
        self.path = f"jobs/{answer.json()['id']}/"

    @property
    def now(self) -> dict[str, Any]:
        return dict(self.api.get(self.path).json())

    def ask(self, what: str) -> None:
        self.api.post(f"{self.path}{what}/").raise_for_status()

    def wait_for(self, state: str, attempt: int = 1) -> None:
        wait_until(
            lambda: (self.now["state"], self.now["attempt"]) == (state, attempt),
            f"{state} in attempt {attempt}; it is {self.now}",
        )

    def wait_for_print(self, words: str) -> None:
        wait_until(
            lambda: words in self.api.get(f"{self.path}logs/", params={"rank": 0}).json()["text"],
            f"its first rank says {words!r}; {self.now}",
        )

    def pids(self) -> dict[int, int]:
        ranks = self.api.get(f"{self.path}ranks/").json()["results"]
        return {rank["rank"]: rank["pid"] for rank in ranks if rank["rank"] is not None}


@pytest.mark.long
def test_a_plain_ddp_script_is_stopped_continued_and_never_resized(stack: RunningStack) -> None:
    with stack.api() as api:
        job = PlainJob(api, stack.home)
        job.wait_for("RUNNING")
        assert (job.now["slots"], job.now["generation"], sorted(job.pids())) == (2, 1, [0, 1])
        job.wait_for_print("epoch 1:")
        refused = api.patch(job.path, json={"max_slots": 1})
        assert refused.status_code == 409
        assert "suspend it before" in refused.json()["error"]

        job.ask("suspend")
        job.wait_for("SUSPENDED")
        assert "its script continues from its CHECKPOINT_DIR" in job.now["reason"]["text"]
        job.ask("resume")
        job.wait_for("RUNNING", attempt=2)
        job.wait_for_print("goes on at epoch")

        os.kill(job.pids()[1], signal.SIGKILL)
        job.wait_for("RUNNING", attempt=3)
        job.wait_for_print("goes on at epoch")
        series = api.get(f"{job.path}allocation/").json()
        assert [point["slots"] for point in series] == [0, 2, 0, 2, 0, 2]
        job.ask("cancel")
        job.wait_for("CANCELLED", attempt=3)
