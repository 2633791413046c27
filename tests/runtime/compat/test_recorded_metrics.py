"""Tests of records by EMetrics, ours or a copy of IBM's, as points of curves."""

import json
import math
from pathlib import Path

import pytest
from emetrics import EMetrics
from tidepool.recorded_metrics import RecordedMetrics


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOG_DIR", str(tmp_path))
    return tmp_path / "evaluation-metrics.txt"


def points_of(file: Path) -> list[dict[str, float | None]]:
    """Without the times."""
    recorded = RecordedMetrics()
    points = [point for line in file.read_bytes().splitlines(keepends=True) if (point := recorded.point(line))]
    assert all(point.pop("at") > 1.7e9 for point in points)
    return points


def record(log: Path, *records: tuple[str, int, dict[str, float]]) -> list[dict[str, float | None]]:
    with EMetrics.open() as metrics:
        for group, iteration, values in records:
            metrics.record(group, iteration, values)
    return points_of(log)


def test_each_record_is_a_point_by_the_name_of_its_group(log: Path) -> None:
    assert record(
        log,
        (EMetrics.TRAIN_GROUP, 10, {"loss": 0.5, "lr": 1}),
        (EMetrics.TEST_GROUP, 10, {"loss": 0.75, "test_f1": 0.5}),
        ("holdout", 1, {"auc": 0.875}),
        (EMetrics.TRAIN_GROUP, 20, {"loss": 0.25}),
    ) == [
        {"step": 10, "loss": 0.5, "lr": 1.0},
        {"step": 10, "test_loss": 0.75, "test_f1": 0.5},
        {"step": 1, "holdout_auc": 0.875},
        {"step": 20, "loss": 0.25},
    ]


def test_iterations_that_begin_anew_in_each_epoch_go_on(log: Path) -> None:
    """Record as IBM's sample of PyTorch: batch number x batch size, of three batches in each of three epochs."""
    points = record(log, *((EMetrics.TEST_GROUP, batch * 64, {"loss": 0.5}) for _ in range(3) for batch in range(3)))
    assert [point["step"] for point in points] == [64 * number for number in range(9)]


def test_one_record_per_epoch_at_the_same_iteration_goes_on(log: Path) -> None:
    points = record(log, *((EMetrics.TRAIN_GROUP, 0, {"loss": 0.5}) for _ in range(3)))
    assert [point["step"] for point in points] == [0, 1, 2]


def test_two_records_of_one_moment_are_one_step(log: Path) -> None:
    points = record(log, *(("train", step, {name: 1.5}) for step in (1, 2, 1) for name in ("loss", "error")))
    assert [point["step"] for point in points] == [1, 1, 2, 2, 3, 3]


def test_accuracies_are_percent(log: Path) -> None:
    shares = [0, 0.0016, 0.5, 1.0, 97.5]
    points = record(log, *(("train", step, {"accuracy": value}) for step, value in enumerate(shares, start=1)))
    assert [point["accuracy"] for point in points] == pytest.approx([0, 0.16, 50, 100, 97.5])


def test_what_is_no_number_is_no_point(log: Path) -> None:
    points = record(log, ("train", 1, {"loss": math.nan, "phase": "warm-up"}), ("train", 2, {"phase": "done"}))
    assert points == [{"step": 1, "loss": None}]


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"\n", b"{\n", b"[]\n", b"5\n", b"\xff\n", b'{"grouplabel": "train"}\n', b"[" * 20_000 + b"\n"),
        json.dumps({"meta": {"time": 1}, "grouplabel": "t", "etimes": {"iteration": {"value": "x"}}, "values": {}}),
        json.dumps({"meta": {"time": 1}, "grouplabel": "t", "etimes": {"iteration": {"value": "1"}}, "values": [1]}),
        json.dumps({"meta": {"time": None}, "grouplabel": 1, "etimes": {"iteration": {"value": "1"}}, "values": {}}),
    ],
)
def test_a_line_that_is_no_record_is_left_out(line: bytes | str) -> None:
    assert RecordedMetrics().point(line.encode() if isinstance(line, str) else line) == {}


@pytest.mark.parametrize("iterations", [("9" * 4300, "5"), (str(2**53), "1"), (f"-{2**60}",)])
def test_an_iteration_that_no_training_reaches_is_no_point(iterations: tuple[str, ...]) -> None:
    """A sum of two of so many digits was more than JSON may have, and kept back the reports of the whole host."""
    recorded = RecordedMetrics()
    values = {"meta": {"time": 1}, "grouplabel": "train", "values": {"loss": {"value": "1"}}}
    lines = (json.dumps({**values, "etimes": {"iteration": {"value": one}}}) for one in iterations)
    assert all(abs(point.get("step", 0)) <= 2**53 for point in map(recorded.point, (line.encode() for line in lines)))
