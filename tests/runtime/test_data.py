"""Worker processes read samples ahead: the same batches as without them, whatever happens to the plan."""

import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from tidepool import procfs
from tidepool.refusal import Refusal
from tidepool.torch import Session, data
from tidepool.torch.data import Feed, MicroBatch, Reading, reading_of
from tidepool.torch.state.randomness import Generators
from torch.utils.data import DataLoader, Dataset, get_worker_info

from tests.runtime.lab import Lab
from tests.runtime.test_scripts_resized import ARGUMENTS, SLOWLY, alone, assert_all_ended_as
from tests.waiting import wait_until

__all__ = ["alone"]


class Noisy(Dataset[tuple[torch.Tensor, int]]):
    """Draws from every generator while a sample is read."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.tensor([index, random.random(), numpy.random.random(), float(torch.rand(()))]), index


def weights(workers: int, collate_fn: Callable[[list[Any]], Any] | None = None) -> tuple[torch.Tensor, float]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    session = Session(
        model, torch.optim.SGD(model.parameters(), lr=0.01), effective_batch_size=16, rank_batch_size=6, seed=3
    )
    for _ in session.epochs(2):
        for step in session.steps(Noisy(), num_workers=workers, collate_fn=collate_fn):
            for inputs, _labels in step:
                step.backward(model(inputs / 40).square().mean())
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]), float(torch.rand(()))


def test_results_do_not_depend_on_the_number_of_workers() -> None:
    before = {process.pid for process in procfs.descendants(os.getpid())}
    expected = weights(0)
    for workers in (1, 2):
        got = weights(workers)
        assert got[0].equal(expected[0])
        assert got[1] == expected[1], "nothing was drawn from the script's generator"
    assert {process.pid for process in procfs.descendants(os.getpid())} <= before, "every worker has ended"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_script_may_make_its_own_batches(workers: int) -> None:
    def collated(samples: list[Any]) -> Any:
        return torch.stack([inputs for inputs, _ in samples]).flip(0), [label for _, label in samples]

    assert not weights(workers, collated)[0].equal(weights(0)[0])
    assert weights(workers, collated)[0].equal(weights(0, collated)[0])


def pieces(start: int, end: int, *, size: int = 4) -> list[MicroBatch]:
    return [MicroBatch(step, 0, list(range(step * size, (step + 1) * size))) for step in range(start, end)]


@pytest.fixture
def feed() -> Iterator[Feed]:
    made = Feed(Noisy(), None, 5, Reading(2), Generators(torch.device("cpu")))
    yield made
    made.close()


def read(feed: Feed, piece: MicroBatch) -> list[int]:
    numbers: list[int] = feed.take(piece)[1].tolist()
    return numbers


def test_what_was_read_in_vain_is_dropped(feed: Feed) -> None:
    feed.ahead = lambda: iter(pieces(0, 10))
    feed.prepare()
    assert read(feed, pieces(0, 1)[0]) == [0, 1, 2, 3]
    smaller = pieces(1, 10, size=2)
    feed.ahead = lambda: iter(smaller)
    assert [read(feed, piece) for piece in smaller[:3]] == [[2, 3], [4, 5], [6, 7]]
    feed.ahead = lambda: iter(smaller[2:])
    assert [read(feed, piece) for piece in smaller[2:5]] == [[6, 7], [8, 9], [10, 11]], "a step that is done again"


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let feeds look ahead where there is no GPU."""
    monkeypatch.setattr(data, "_looks_ahead", lambda device, reading: reading.workers > 0)


def test_the_next_batch_is_taken_ahead_and_used_or_dropped(looking: None, feed: Feed) -> None:
    feed.ahead = lambda: iter(pieces(0, 10))
    feed.look_ahead()
    assert feed._next is None, "nothing was read yet"
    assert read(feed, pieces(0, 1)[0]) == [0, 1, 2, 3]
    feed.look_ahead()
    feed.look_ahead()
    assert feed._next is not None
    assert feed._next.piece == pieces(1, 2)[0]
    assert read(feed, pieces(1, 2)[0]) == [4, 5, 6, 7]
    feed.look_ahead()
    smaller = pieces(2, 10, size=2)
    feed.ahead = lambda: iter(smaller)
    assert [read(feed, piece) for piece in smaller[:2]] == [[4, 5], [6, 7]], "a rank has come meanwhile"
    feed.look_ahead()
    feed.ahead = lambda: iter(smaller[1:])
    assert [read(feed, piece) for piece in smaller[1:3]] == [[6, 7], [8, 9]], "a rank has died meanwhile"


def test_at_the_end_of_the_plan_there_is_nothing_ahead(looking: None, feed: Feed) -> None:
    [last] = pieces(8, 9)
    feed.ahead = lambda: iter([last])
    assert read(feed, last) == [32, 33, 34, 35]
    feed.look_ahead()
    assert feed._next is None
    assert read(feed, last) == [32, 33, 34, 35]
    feed.pause()
    feed.look_ahead()
    assert feed._next is None


def test_an_error_ahead_reaches_the_script_in_the_batch_of_which_it_is(looking: None) -> None:
    class Broken(Noisy):
        def __getitem__(self, index: int) -> Any:
            if index == 5:
                raise ValueError("a broken sample")
            return super().__getitem__(index)

    feed = Feed(Broken(), None, 5, Reading(1), Generators(torch.device("cpu")))
    feed.ahead = lambda: iter(pieces(0, 10))
    assert read(feed, pieces(0, 1)[0]) == [0, 1, 2, 3]
    feed.look_ahead()
    with pytest.raises(ValueError, match="a broken sample"):
        feed.take(pieces(1, 2)[0])
    feed.close()


def test_results_do_not_depend_on_looking_ahead(looking: None) -> None:
    assert weights(2)[0].equal(weights(0)[0])


def test_reading_goes_on_after_the_end_of_the_plan(feed: Feed) -> None:
    last = pieces(8, 10)
    feed.ahead = lambda: iter(last)
    assert [read(feed, piece) for piece in last] == [[32, 33, 34, 35], [36, 37, 38, 39]]
    assert [read(feed, piece) for piece in last] == [[32, 33, 34, 35], [36, 37, 38, 39]], "after a failure in the last"


def test_a_step_that_is_over_is_not_read_again(feed: Feed) -> None:
    feed.ahead = lambda: iter(pieces(5, 7))
    with pytest.raises(RuntimeError, match="this step is over"):
        feed.take(pieces(0, 1)[0])


def test_an_error_in_a_worker_reaches_the_script() -> None:
    class Broken(Noisy):
        def __getitem__(self, index: int) -> Any:
            raise KeyError("no such image")

    feed = Feed(Broken(), None, 5, Reading(1), Generators(torch.device("cpu")))
    feed.ahead = lambda: iter(pieces(0, 2))
    with pytest.raises(KeyError, match="no such image"):
        feed.take(pieces(0, 1)[0])
    feed.close()


class Opened(Noisy):
    """Reads from what its worker has opened."""

    opened: int | None = None

    def __getitem__(self, index: int) -> Any:
        return self.opened, os.getpid()


def open_it(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.opened = worker  # type: ignore[attr-defined]


def feed_of(**how: Any) -> Feed:
    loader = DataLoader(Opened(), collate_fn=list, num_workers=1, worker_init_fn=open_it, **how)
    feed = Feed(loader.dataset, loader.collate_fn, 5, reading_of(loader), Generators(torch.device("cpu")))
    feed.ahead = lambda: iter(pieces(0, 3))
    return feed


@pytest.mark.parametrize("how", [{}, {"multiprocessing_context": "spawn"}, {"prefetch_factor": 4, "in_order": False}])
def test_a_worker_begins_as_the_script_says(how: dict[str, Any]) -> None:
    feed = feed_of(**how)
    assert [{opened for opened, _ in feed.take(piece)} for piece in pieces(0, 3)] == [{0}] * 3
    assert {opened for opened, _ in feed.read(7, [1, 2])} == {0}, "also for a batch that is not of the plan"
    feed.close()


@pytest.mark.parametrize("persistent", [True, False])
def test_persistent_workers_outlive_a_pass(persistent: bool) -> None:
    feed, readers = feed_of(persistent_workers=persistent), set()
    for taken in (3, 1, 3):
        readers |= {reader for piece in pieces(0, taken) for _, reader in feed.take(piece)}
        feed.pause()
    feed.close()
    assert len(readers) == (1 if persistent else 3)
    assert not readers & {process.pid for process in procfs.descendants(os.getpid())}


def test_a_wait_for_a_batch_may_have_an_end() -> None:
    class Slow(Noisy):
        def __getitem__(self, index: int) -> Any:
            time.sleep(600)

    feed = Feed(Slow(), None, 5, Reading(1, timeout=0.1), Generators(torch.device("cpu")))
    feed.ahead = lambda: iter(pieces(0, 2))
    with pytest.raises(RuntimeError, match="timed out after"):
        feed.take(pieces(0, 1)[0])
    feed.close()


def test_workers_of_another_parent_are_refused() -> None:
    with pytest.raises(Refusal, match="forkserver"):
        feed_of(multiprocessing_context="forkserver")


def test_a_negative_number_of_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="num_workers must not be negative, but is -1"):
        Feed(Noisy(), None, 5, Reading(-1), Generators(torch.device("cpu")))


@pytest.mark.parametrize("ahead", [[], ["--look-ahead"]], ids=["", "looking ahead"])
def test_workers_follow_resizes_and_end_with_a_killed_rank(
    make_lab: Callable[..., Lab], alone: Any, ahead: list[str]
) -> None:
    lab = make_lab("everything.py", arguments=[*ARGUMENTS, "--workers", "1", *ahead, *SLOWLY])
    for size in (1, 3, 2):
        lab.size(size)
        lab.wait_for_size(size)
        lab.wait_for_steps(2)
    victim = lab.member_ids()[0]
    rank = lab.started()[victim]["pid"]
    workers = wait_until(lambda: procfs.descendants(rank), lambda: f"workers: {lab.story()}")
    assert workers[0].cmdline()[0] == "tidepool reader: training 1"
    lab.kill(victim)
    wait_until(
        lambda: not any(procfs.runs(worker) for worker in workers),
        lambda: f"the end of the workers {workers}",
    )
    wait_until(lambda: victim not in lab.member_ids(), lab.story)
    lab.wait_for_size(2)
    lab.wait_for_the_end()

    assert_all_ended_as(alone, lab, 2)
