"""Variables that count as counters of a script's loop. The corpus of loops shows that counters follow the batches."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidepool.torch.rank import own_counts
from tidepool.torch.rank.own_counts import _GIVEN, OwnCounts, _counters

from tests.runtime.test_live_objects import a_thread_that_makes_tuples

MODULE = """
    step = 0
    for epoch in range(3):
        place = 0
        for batch in loader:
            step += 1
            place = place + 1
            loss = compute(batch)
            total += loss
            if batch:
                self.updates += 1
            state["seen"] -= 2
            rows[index()] += 1
            for label in batch:
                correct += 1
            def inner():
                other += 1
"""
METHOD = """
    def train(self, seen):
        count, other = 0, 1
        for batch in self.loader:
            count += 1
            seen += 1
            self.step += 1
"""
ANNEALED = """
    def train(self, options):
        rate = self.rate
        for number, (inputs, labels) in enumerate(self.loader):
            rate *= 0.5
            beta = min(1.0, beta + 0.01)
            self.temperature = max(options.least, self.temperature * self.decay)
            meter.update(loss)
            total += len(labels)
            seen += options.batch_size
            smooth = 0.9 * smooth + 0.1 * loss
            scale = scale * meter.mean
            order = order * number
            loss = beta * 2
            label = label + "x"
"""
ITERATIONS = """
    while step < 100:
        batch = next(batches)
        step += 1
"""


@pytest.mark.parametrize(
    ("text", "line", "counters", "begin_anew"),
    [
        (MODULE, 5, {"step", "place", "self.updates", "state['seen']"}, {"place"}),
        (METHOD, 4, {"count", "seen", "self.step"}, {"count"}),
        (ANNEALED, 7, {"rate", "beta", "self.temperature", "seen"}, {"rate"}),
        (ITERATIONS, 3, {"step"}, set()),
        (MODULE, 2, set(), set()),
        ("x = (", 1, set(), set()),
    ],
    ids=["loops", "a method", "annealing", "iterations", "no loop", "no source"],
)
def test_counters_are_what_the_body_changes_by_constants(
    tmp_path: Path, text: str, line: int, counters: set[str], begin_anew: set[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(text))
    found = _counters(compile("", str(script), "exec"), line)
    assert set(found.readers) == counters
    assert found.begin_anew == begin_anew


def counted(counts: OwnCounts, shifts: list[int]) -> list[int]:
    """Return the numbers of an `enumerate` of which the loop's counts are put back by these shifts."""

    def batches() -> Iterator[None]:
        for shift in shifts:
            yield
            counts.put_back({_GIVEN: counts.given + shift})

    return [number for number, _ in enumerate(passed_on(batches()))]


def passed_on(batches: Iterator[None]) -> Iterator[None]:
    yield from batches


def test_the_number_of_an_enumerate_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        own_counts, "_is_ours", lambda frame: frame.f_code.co_name in ("put_back", "batches", "passed_on")
    )
    assert counted(OwnCounts(), [0, 5, -1, 0]) == [0, 1, 7, 7]


def test_another_thread_is_not_disturbed_where_an_enumerate_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        own_counts, "_is_ours", lambda frame: frame.f_code.co_name in ("put_back", "batches", "passed_on")
    )
    with a_thread_that_makes_tuples():
        assert counted(OwnCounts(), [1] * 40) == list(range(0, 80, 2))
