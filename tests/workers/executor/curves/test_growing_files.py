"""Files are read bit by bit, whatever happens to them: cut, replaced, half written, no text."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.workers.executor.curves import files
from workers.executor.curves.growing_files import EventSource, LogSource, ResultsSource, TableSource
from workers.executor.log_rotation import trim


def look(source: Any, path: Path, *, is_last: bool = False) -> list[tuple[int, dict[str, float | None]]]:
    file = os.open(path, os.O_RDONLY)
    try:
        return [(point.step, point.metrics) for point in source.read(file, None, is_last=is_last)]
    finally:
        os.close(file)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "stdout"


def add(path: Path, data: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(data.encode() if isinstance(data, str) else data)


def test_a_line_counts_once_it_is_complete(log: Path) -> None:
    source = LogSource("stdout")
    add(log, "epoch 1 loss 0.")
    assert look(source, log) == []
    add(log, "5\nepoch 2 loss 0.4")
    assert look(source, log) == [(1, {"loss": 0.5})]
    assert look(source, log, is_last=True) == [(2, {"loss": 0.4})]
    assert look(source, log, is_last=True) == []


def test_of_a_bar_the_newest_state_counts(log: Path) -> None:
    source = LogSource("stderr")
    add(log, "".join(f"\r{n}%|#| {n}/100 [00:01<00:02, 3it/s, loss={n}.5]" for n in range(1, 51)))
    assert look(source, log) == [(49, {"loss": 49.5})]
    add(log, "\r51%|#| 51/100 [00:01<00:02, 3it/s, loss=51.5]\n")
    assert look(source, log) == [(51, {"loss": 51.5})]


def test_rubbish_is_passed_over(log: Path) -> None:
    add(log, os.urandom(200_000).replace(b"\n", b"") + b"\nepoch 7 loss 1\n")
    source = LogSource("stdout")
    found = [point for _ in range(6) for point in look(source, log)]
    assert found[-1:] == [(7, {"loss": 1.0})]


def test_each_look_reads_a_limited_number_of_lines(log: Path) -> None:
    add(log, "".join(f"epoch {n} loss {n}\n" for n in range(500)))
    source = LogSource("stdout")
    looks = [look(source, log) for _ in range(4)]
    assert [len(points) for points in looks] == [200, 200, 100, 0]
    assert [step for points in looks for step, _ in points] == list(range(500))


def test_a_log_far_ahead_is_read_on_near_its_end(log: Path) -> None:
    add(log, "no metric here\n" * 200_000 + "epoch 9 loss 1\n")
    source = LogSource("stdout", most_behind=1024 * 1024)
    found = [point for _ in range(40) for point in look(source, log)]
    assert found == [(9, {"loss": 1.0})]


def test_a_shortened_log_yields_no_line_twice(log: Path) -> None:
    source = LogSource("stdout")
    lines = [f"epoch {n} loss {n}\n" for n in range(100)]
    add(log, "".join(lines))
    assert len(look(source, log)) == 100
    assert trim(log, 400)
    assert look(source, log) == []
    add(log, "epoch 100 loss 100\n")
    assert look(source, log) == [(100, {"loss": 100.0})]


def test_a_log_that_its_script_begins_anew_is_read_from_there(log: Path) -> None:
    source = LogSource("stdout")
    add(log, "epoch 1 loss 1\nepoch 2 loss 2\n")
    look(source, log)
    log.write_text("epoch 3 loss 3\n")
    assert look(source, log) == [(3, {"loss": 3.0})]


LIGHTNING = "epoch,step,train_loss,val_loss\n0,49,0.5,\n0,49,,0.6\n1,99,0.4,\n"


@pytest.mark.parametrize(
    ("text", "points"),
    [
        (LIGHTNING, [(49, {"train_loss": 0.5}), (49, {"val_loss": 0.6}), (99, {"train_loss": 0.4})]),
        ("epoch;accuracy;loss\r\n0;0.5;1e-3\r\n", [(0, {"accuracy": 0.5, "loss": 1e-3})]),
        ("Epoch,lr,note,loss\n3,0.1,good,nan\n", [(3, {"lr": 0.1, "loss": None})]),
        ("age,height\n3,4\n", []),
        ("step\n3\n", []),
        ("step,loss\nx,1\n-1,1\n2\n2,1,1\n3,4\n", [(3, {"loss": 4.0})]),
    ],
)
def test_tables(tmp_path: Path, text: str, points: list[Any]) -> None:
    file = tmp_path / "metrics.csv"
    add(file, text)
    source = TableSource("metrics.csv")
    assert look(source, file) == points
    assert look(source, file) == []


def test_a_table_that_is_written_anew_with_more_columns_is_read_anew(tmp_path: Path) -> None:
    file, source = tmp_path / "metrics.csv", TableSource("metrics.csv")
    file.write_text("step,loss\n1,3\n")
    assert look(source, file) == [(1, {"loss": 3.0})]
    file.write_text("step,loss,acc\n1,3,\n2,2,0.5\n")
    assert look(source, file) == [(1, {"loss": 3.0}), (2, {"loss": 2.0, "acc": 0.5})]


def test_scalars_of_event_files(tmp_path: Path) -> None:
    file, source = tmp_path / "events.out.tfevents.1", EventSource("runs/events.out.tfevents.1")
    whole = files.event(3, {"loss/train": files.scalar(0.5), "lr": files.tensor(0.25), "picture": files.image()})
    add(file, files.record(b"\x1a\x0dbrain.Event:2") + whole[:-7])
    assert look(source, file) == []
    add(file, whole[-7:] + files.event(4, {"loss/train": files.scalar(float("nan"))}))
    assert look(source, file) == [(3, {"loss/train": 0.5, "lr": 0.25}), (4, {"loss/train": None})]
    assert look(EventSource.from_json(source.to_json()), file) == []


@pytest.mark.parametrize("rubbish", [b"\0" * 40, bytes(range(256)), b"x" * 12])
def test_what_is_no_event_file_is_left_alone(tmp_path: Path, rubbish: bytes) -> None:
    file, source = tmp_path / "events.out.tfevents.1", EventSource("events.out.tfevents.1")
    add(file, files.event(1, {"a": files.scalar(1.0)}) + rubbish)
    assert look(source, file) == [(1, {"a": 1.0})]
    assert source.is_broken


def test_a_broken_or_huge_record_is_passed_over(tmp_path: Path) -> None:
    file, source = tmp_path / "events.out.tfevents.1", EventSource("events.out.tfevents.1")
    add(file, files.record(b"\xff" * 30) + files.record(b"\0" * 300_000) + files.event(2, {"a": files.scalar(1.0)}))
    assert look(source, file) == [(2, {"a": 1.0})]


def test_a_list_of_results_is_read_on_as_it_is_written_anew(tmp_path: Path) -> None:
    path, source = tmp_path / "val_dict_list.json", ResultsSource("val_dict_list.json")
    path.write_text('[{"steps": 45, "accuracy": 0.5, "name": "a"}, {"accuracy": 1}, 7, {"epoch": 3, "Loss": "0.25"}]')
    assert look(source, path) == [(45, {"accuracy": 0.5}), (3, {"Loss": 0.25})]
    assert look(source, path) == []
    path.write_text('[{"steps": 45, "accuracy": 0.5}, {}, {}, {"epoch": 3}, {"steps": 90, "accuracy": NaN}, {"st')
    assert look(source, path) == [], "half written"
    source = ResultsSource.from_json(source.to_json())
    path.write_text('[{"steps": 45, "accuracy": 0.5}, {}, {}, {"epoch": 3}, {"steps": 90, "accuracy": NaN}]')
    assert look(source, path) == [(90, {"accuracy": None})]
    path.write_text('[{"steps": 1, "accuracy": 0.1}]')
    assert look(source, path) == [(1, {"accuracy": 0.1})], "another list"
    for rubbish in (
        "",
        "{}",
        "[" * 100_000,
        '[{"steps": -1, "a": 1}, {"steps": true, "a": 1}, {"steps": 1e300, "a": 1}]',
    ):
        path.write_text(rubbish)
        assert look(source, path) == []


def test_long_results_are_read_bit_by_bit(tmp_path: Path) -> None:
    path, source = tmp_path / "val_dict_list.json", ResultsSource("val_dict_list.json")
    path.write_text(json.dumps([{"steps": step, "loss": 0.5} for step in range(1200)]))
    assert [len(look(source, path)) for _ in range(4)] == [500, 500, 200, 0]
    path.write_text("[" + " " * 5_000_000 + "]")
    assert look(source, path) == [], "too large to be results"
