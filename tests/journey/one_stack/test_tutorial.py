"""The tutorial, played by its command over REST, compared with the operating system and with the files on disk."""

import io
import itertools
import json
import subprocess
import zipfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.journey.ranks import RankSeen, RankWatch
from tests.journey.running_stack import ROOT, RunningStack, manage
from tests.journey.training import cancel_all
from tests.waiting import wait_until

pytestmark = pytest.mark.journey

FIRST, SECOND = "tutorial-1", "tutorial-2"
FIXED_KEYS = {"step", "epoch", "cursor", "samples", "world_size", "generation", "attempt", "at", "progress"}


@dataclass
class Play:
    """Record of the tutorial as it was played."""

    stack: RunningStack
    command: subprocess.CompletedProcess[str]
    watch: RankWatch

    def job(self, name: str) -> dict[str, Any]:
        with self.stack.api() as api:
            jobs = api.get("jobs/").json()["results"]
        return dict(max((job for job in jobs if job["name"] == name), key=lambda job: job["id"]))

    def folder(self, name: str) -> Path:
        job = self.job(name)
        return self.stack.home / "results" / job["owner"] / "batchworkdir" / str(job["id"])

    def lines(self, name: str, file: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder(name) / file).read_text().splitlines()]

    def series(self, name: str) -> list[dict[str, Any]]:
        with self.stack.api() as api:
            return list(api.get(f"jobs/{self.job(name)['id']}/allocation/").json())

    def generations(self, name: str) -> list[dict[str, Any]]:
        """Return the generations in order, as the coordinator recorded them once the ranks had switched."""
        return [line["data"] for line in self.lines(name, "plans.jsonl") if line["kind"] == "generation_active"]


@pytest.fixture(scope="module")
def play(stack: RunningStack) -> Play:
    with stack.api() as api:
        with RankWatch(api) as watch:
            command = manage(stack.home, "tutorial", "--url", stack.url, "--look", "2", seconds=500)
        cancel_all(api)
    return Play(stack, command, watch)


def sizes(series: list[dict[str, Any]]) -> list[int]:
    """World sizes in order, without the zeros before and after."""
    found = [point["slots"] for point in series]
    return [size for size, _ in itertools.groupby(found) if size]


def unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_every_moment_is_seen(play: Play) -> None:
    assert play.command.returncode == 0, play.command.stdout + play.command.stderr + play.stack.everything_said()
    table = play.command.stdout[play.command.stdout.index("Moment ") :].splitlines()
    for title in ("T1 starts", "T1 takes every GPU", "T2 gets its half", "T2's priority is 10000", "T1 has ended"):
        assert any(line.startswith(title) for line in table), title
    assert table[-1] == "All 5 moments were seen."


def test_first_training_starts_on_one_and_follows_the_shares(play: Play) -> None:
    assert sizes(play.series(FIRST)) == [1, 8, 4, 3]


def test_first_training_outlives_the_change_of_priority(play: Play) -> None:
    series = play.series(FIRST)
    [changed] = [unix(point["at"]) for point in series if point["slots"] == 3]
    assert unix(series[-1]["at"]) > changed


def test_second_training_gets_half_then_more_then_everything(play: Play) -> None:
    found = sizes(play.series(SECOND))
    assert [size for size in found if size in (4, 5, 8)] == [4, 5, 8]
    assert found[-1] == 8


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_no_training_was_started_again(play: Play, name: str) -> None:
    assert {point["attempt"] for point in play.series(name) if point["slots"]} == {1}
    states = [state for state, _ in itertools.groupby(event["new"] for event in play_events(play, name))]
    assert states[:3] == ["PENDING", "STARTING", "RUNNING"]
    assert states.count("STARTING") == 1


def play_events(play: Play, name: str) -> list[dict[str, Any]]:
    with play.stack.api() as api:
        return list(api.get(f"jobs/{play.job(name)['id']}/events/").json()["results"])


def test_sizes_are_what_the_ranks_reported_at_their_switches(play: Play) -> None:
    generations = play.generations(FIRST)
    reported = [point for point in play.series(FIRST) if point["slots"]]
    assert [(point["generation"], point["slots"]) for point in reported] == [
        (generation["generation"], generation["world_size"]) for generation in generations
    ]
    assert [unix(point["at"]) for point in reported] == pytest.approx(
        [generation["at"] for generation in generations], abs=0.01
    )


def test_ranks_that_stay_keep_their_process(play: Play) -> None:
    """Growing adds ranks and shrinking removes some; nobody is replaced."""
    members = [{member["member_id"] for member in generation["members"]} for generation in play.generations(FIRST)]
    one, eight, four, three = members
    assert one < eight
    assert four < eight
    assert three < four
    pids: dict[str, set[tuple[int, float]]] = {}
    for _, alive in play.watch.alive[FIRST]:
        for rank in alive:
            pids.setdefault(rank.member_id, set()).add((rank.pid, rank.started_at))
    assert all(len(identities) == 1 for identities in pids.values()), pids


@pytest.mark.parametrize("size", [8, 4, 3])
def test_operating_system_runs_exactly_the_ranks_of_each_moment(play: Play, size: int) -> None:
    generations = play.generations(FIRST)
    [index] = [number for number, generation in enumerate(generations) if generation["world_size"] == size]
    start = generations[index]["at"]
    end = generations[index + 1]["at"] if index + 1 < len(generations) else play.lines(FIRST, "metrics.jsonl")[-1]["at"]
    wanted = {member["member_id"] for member in generations[index]["members"]}
    seen = play.watch.between(FIRST, start, end)
    assert seen, f"nobody looked between {start} and {end}"
    assert any({rank.member_id for rank in alive} == wanted for alive in seen), describe(wanted, seen)
    # The list of ranks follows the processes with a delay, so none is judged by when it was first listed: a process
    # that started before the moment and was alive near its end was there all the time.
    near_the_end = play.watch.times(FIRST, start, end)[-3:][0]
    lives = play.watch.lives(FIRST)
    assert wanted <= lives.keys(), describe(wanted, seen)
    for member_id in wanted:
        started_at, last_alive = lives[member_id]
        assert started_at < start, f"{member_id} started at {started_at}, after {start}"
        assert last_alive >= near_the_end, f"{member_id} was last seen alive at {last_alive}, before {near_the_end}"


def describe(wanted: set[str], seen: list[frozenset[RankSeen]]) -> str:
    shown = [sorted(rank.member_id for rank in alive) for alive, _ in itertools.groupby(seen)]
    return f"wanted {sorted(wanted)}, seen in turn {shown}"


def test_no_step_is_lost_or_made_twice(play: Play) -> None:
    records = play.lines(FIRST, "metrics.jsonl")
    assert [record["step"] for record in records] == list(range(1, len(records) + 1))
    assert all(record.keys() >= FIXED_KEYS for record in records)
    generations = [record["generation"] for record in records]
    assert generations == sorted(generations)
    found = [size for size, _ in itertools.groupby(record["world_size"] for record in records)]
    assert found == [1, 8, 4, 3]


def test_every_epoch_passes_over_the_dataset_without_a_gap(play: Play) -> None:
    records = play.lines(FIRST, "metrics.jsonl")
    epochs = [list(group) for _, group in itertools.groupby(records, key=lambda record: record["epoch"])]
    samples = len(np.load(play.stack.home / "data" / "digits" / "train.npz")["labels"])
    for epoch in epochs:
        assert list(itertools.accumulate(record["samples"] for record in epoch)) == [
            record["cursor"] for record in epoch
        ]
        assert epoch[-1]["cursor"] == samples
        assert {record["samples"] for record in epoch[:-1]} == {64}


def test_learned_the_digits_and_the_downloaded_weights_agree(play: Play) -> None:
    """The number of epochs, and so the accuracy, depends on the speed of the machine."""
    job = play.job(FIRST)
    assert job["state"] == "SUCCEEDED"
    assert job["final_metrics"]["test_accuracy"] > 90
    with play.stack.api() as api:
        archive = zipfile.ZipFile(io.BytesIO(api.get(f"jobs/{job['id']}/result/").raise_for_status().content))
    assert archive.testzip() is None
    [weights] = [name for name in archive.namelist() if name.endswith("/train/model_epoch_final.pth")]
    accuracy = held_out_accuracy(torch.load(io.BytesIO(archive.read(weights)), weights_only=True), play.stack.home)
    assert accuracy == pytest.approx(job["final_metrics"]["test_accuracy"], abs=0.01)


def test_a_run_on_a_gpu_measures_the_same_accuracy(play: Play) -> None:
    job = play.job(FIRST)
    with play.stack.api() as api:
        asked = api.post(f"jobs/{job['id']}/validations/", json={"split": "testing"})
        assert asked.status_code == 201, asked.text
        run = asked.json()["job"]
        wait_until(lambda: api.get(f"jobs/{run}/").json()["finished_at"], "the validation")
        results = api.get("models/digits-cnn/validations/").json()["results"]
    [result] = [each for each in results if each["job"] == run]
    assert (result["state"], result["problem"]) == ("SUCCEEDED", None)
    assert result["accuracy"] == pytest.approx(job["final_metrics"]["test_accuracy"], abs=0.01)
    assert result["loss"] == pytest.approx(job["final_metrics"]["test_loss"], rel=1e-4)
    assert (result["split"], result["samples"], len(result["confusion"])) == ("held-out", 359, 10)


def held_out_accuracy(weights: dict[str, torch.Tensor], home: Path) -> float:
    """Per cent of the held-out digits that the example's network gets right with these weights."""
    namespace: dict[str, Any] = {}
    exec((ROOT / "examples/digits-cnn/digits_cnn.py").read_text(), namespace)
    model = namespace["DigitsCNN"]()
    model.load_state_dict(weights)
    model.eval()
    with np.load(home / "data" / "digits" / "test.npz") as arrays, torch.no_grad():
        right = model(torch.from_numpy(arrays["images"])).argmax(dim=1) == torch.from_numpy(arrays["labels"])
    return 100 * float(right.double().mean())


def test_nobody_failed_to_look(play: Play) -> None:
    assert play.watch.problems == []
