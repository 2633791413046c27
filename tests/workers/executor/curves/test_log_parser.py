"""Tests of reading what scripts print as points: the usual formats as a table, and patterns of owners."""

import json
from pathlib import Path
from typing import Any

import pytest

from workers.executor.curves.log_parser import LineReader
from workers.executor.curves.parsed_points import Point
from workers.executor.curves.pattern import PatternError, compiled


def read(*lines: str, pattern: str = "", reader: LineReader | None = None) -> list[Point]:
    reader, expression = reader or LineReader(), compiled(pattern) if pattern else None
    return [point for line in lines if (point := reader.point(line, expression))]


@pytest.mark.parametrize(
    ("line", "step", "epoch", "metrics"),
    [
        ("epoch 3 loss 0.12", 3, 3, {"loss": 0.12}),
        ("Epoch 2/10 ... loss: 0.3 - acc: 0.9", 2, 2, {"loss": 0.3, "acc": 0.9}),
        ("[100/1000] loss=0.3", 100, 0, {"loss": 0.3}),
        (" 10/100 ━━━━━━━━ 5s 50ms/step - accuracy: 0.9 - loss: 0.3", 10, 0, {"accuracy": 0.9, "loss": 0.3}),
        ('{"step": 3, "loss": 0.5, "train": {"f1": 0.3}, "host": "a"}', 3, 0, {"loss": 0.5, "train/f1": 0.3}),
        ("{'loss': 0.3, 'learning_rate': 1e-05, 'epoch': 2}", 2, 2, {"loss": 0.3, "learning_rate": 1e-05}),
        ("{'eval_loss': '0.25', 'epoch': '2.0'}", 2, 2, {"eval_loss": 0.25}),
        (
            "Epoch 1:  45%|████▌     | 450/1000 [00:10<00:12, 45.2it/s, loss=0.345, v_num=3]",
            450,
            1,
            {"loss": 0.345},
        ),
        ("120it [00:10, 12.0it/s, loss=2.5]", 120, 0, {"loss": 2.5}),
        (
            "Epoch: [0][  10/5005]\tTime  0.123 ( 0.234)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.50 (  0.10)",
            10,
            0,
            {"loss": 6.9, "acc@1": 0.5},
        ),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300000", 640, 1, {"loss": 2.3}),
        (
            "Test set: Average loss: 0.0500, Accuracy: 9830/10000 (98%)",
            1,
            0,
            {"test_loss": 0.05, "test_accuracy": 98.0},
        ),
        ("step 1,000: train loss 4.2, val loss 4.3", 1000, 0, {"train_loss": 4.2, "val_loss": 4.3}),
        ("iter 110: loss 2.3, time 10ms, mfu 3", 110, 0, {"loss": 2.3}),
        ("\x1b[32mepoch 4\x1b[0m loss nan", 4, 4, {"loss": None}),
        ("step 4 loss nan lr 0.1", 4, 0, {"loss": None, "lr": 0.1}),
        ("step 4 loss -inf val loss NaN acc 0.5", 4, 0, {"loss": None, "val_loss": None, "acc": 0.5}),
        ("1/9\b\b\b2/9 loss: 0.5", 2, 0, {"loss": 0.5}),
    ],
)
def test_the_usual_ways(line: str, step: int, epoch: int, metrics: dict[str, Any]) -> None:
    [point] = read(line)
    assert (point.step, point.epoch, point.metrics) == (step, epoch, metrics)


@pytest.mark.parametrize(
    "line",
    [
        *("", "Listening on port 8080", "seed: 42", "device: 0", "INFO started pid=123", "Using 3 workers"),
        *("{not json}", "\x00\xff\ufffd\ufffd", "{" * 5000 + "}", "2026-11-23 07:15:00 ready in 3 s", "version 1.2.3"),
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert read(line) == []


def test_a_counter_that_begins_anew_goes_on() -> None:
    points = read("Epoch 1", "[50/100] loss=3", "[100/100] loss=2", "Epoch 2", "[50/100] loss=1", "val_loss: 4")
    assert [(point.step, point.epoch) for point in points if point.metrics] == [(50, 1), (100, 1), (150, 2), (150, 2)]


def test_the_metrics_below_a_line_that_names_the_first_epoch_belong_to_it() -> None:
    """Lines of torchvision's tutorial: a first epoch 0 left its training curve at steps of later ones."""
    phases = ["train Loss: 0.6 Acc: 0.7", "val Loss: 0.2 Acc: 0.9"]
    points = read("Epoch 0/24", "----------", *phases, "Epoch 1/24", "----------", *phases)
    assert [(point.step, point.epoch) for point in points if point.metrics] == [(0, 0), (0, 0), (1, 1), (1, 1)]


@pytest.mark.parametrize("line", ["epoch {}", "Epoch: {}", "----- Starting epoch {} -----", "Training epoch {}..."])
def test_a_line_may_name_the_epoch_alone(line: str) -> None:
    lines = [line.format(1), "loss: 3 [ 64/100]", "loss: 2 [100/100]", line.format(2), "loss: 1 [100/100]"]
    points = [point for point in read(*lines) if point.metrics]
    assert [(point.step, point.epoch) for point in points] == [(64, 1), (100, 1), (200, 2)]


def test_a_bar_that_is_drawn_again_below_the_next_epoch_s_line_does_not_begin_anew() -> None:
    points = read("epoch 1 loss 2", bar(5, 9), "epoch 2 loss 1", bar(5, 9), bar(6, 9))
    assert [point.step for point in points] == [1, 5, 5, 5, 6]


def test_progress_does_not_count_the_last_epoch_s_counter_for_the_next_one() -> None:
    points = read("Epoch 1/2", "Step 9/9 loss 0.5", "Epoch 2/2", "Step 3/9 loss 0.3")
    assert [point.progress for point in points] == [0.0, 0.5, 0.5, pytest.approx(2 / 3)]


def test_sizes_of_a_batch_and_of_an_epoch_are_no_position() -> None:
    """Lines of PyTorch's own tutorial on several GPUs."""
    [first, second] = read(
        "[GPU0] Epoch 3 | Batchsize: 32 | Steps: 16", "epoch 4 loss 1", "[GPU0] Epoch 5 | Batchsize: 32 | Steps: 16",
        "epoch 5 loss 1",
    )  # fmt: skip
    assert [(point.step, point.metrics) for point in (first, second)] == [(4, {"loss": 1.0}), (5, {"loss": 1.0})]


def test_parts_of_epochs_count_points() -> None:
    points = read("{'loss': 3.0, 'epoch': 0.5}", "{'loss': 2.0, 'epoch': 1.0}", reader=LineReader(total_epochs=2))
    assert [(point.step, point.progress) for point in points] == [(1, 0.25), (2, 0.5)]


@pytest.mark.parametrize(
    ("lines", "progress"),
    [
        (["Epoch 1/4", "50/100 [=====] - loss: 1"], 0.125),
        (["Epoch 3/4 loss: 2"], 0.75),
        (["Epoch 0/4"], 0.0),
        (["30%|███   | 30/100 [00:01<00:02, 30it/s]"], 0.3),
        (["100%|███| 9/9 [00:01<00:02, 3it/s]", "11%|█  | 1/9 [00:01<00:02, 3it/s]"], None),
        (["epoch 3 loss 2"], None),
    ],
)
def test_progress(lines: list[str], progress: float | None) -> None:
    assert read(*lines)[-1].progress == progress


def test_a_reader_goes_on_where_its_record_ends() -> None:
    first = LineReader()
    read("Epoch 1/2", "[100/100] loss=2", reader=first)
    [point] = read("[10/100] loss=1", reader=LineReader.from_json(first.to_json()))
    assert point.step == 110


def test_a_pattern_says_what_lines_mean() -> None:
    pattern = r"it (?P<step>\d+) of (?P<total_steps>\d+): R=(?P<reward>\S+)"
    assert read("it 5 of 10: R=3.5", "it 6 of 10: R=x", "loss 3", pattern=pattern) == [
        Point(5, {"reward": 3.5}, progress=0.5),
        Point(6, {}, progress=0.6),
    ]
    [point] = read("a=1 b=2", pattern=r"(?P<name>\w)=(?P<value>\d)")
    assert point.metrics == {"a": 1.0, "b": 2.0}


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "loss",
        r"(?P<step>\d+)",
        r"(?P<name>\w+)",
        r"(?=a)(?P<loss>a)",
        r"(?P<loss>a)\1",
        "a\n",
        "(?P<a>x)" + "x" * 500,
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compiled(pattern)


def test_no_pattern_takes_long() -> None:
    """Python's own engine would not come back from this one: it needs 2^1000 steps."""
    assert read("a" * 1000 + "!", pattern=r"^(?P<loss>(a+)+)$") == []


STYLES = json.loads(Path(__file__).with_name("log_styles.json").read_text())


@pytest.mark.parametrize("row", STYLES, ids=[row["style"] for row in STYLES])
def test_lines_of_common_tools(row: dict[str, Any]) -> None:
    """The first line of a log, in the style of each tool."""
    points = read(row["line"])
    if row["metrics"] is None:
        assert points == []
        return
    [point] = points
    assert point.metrics == row["metrics"]
    assert (point.step, point.epoch) == (row["step"], row["epoch"])
    assert point.progress == (None if row["progress"] is None else pytest.approx(row["progress"]))


@pytest.mark.parametrize(
    "line",
    [
        "Namespace(epochs=10, lr=0.1, batch_size=64)",
        "args: Namespace(lr=0.1, epochs=10)",
        "TrainingArguments(learning_rate=5e-05, num_train_epochs=3)",
        "{'epochs': 10, 'lr': 0.1}",
        'config: {"batch_size": 64, "lr": 0.1, "seed": 1}',
        "epochs: 10",
    ],
)
def test_printed_arguments_are_neither_a_metric_nor_progress(line: str) -> None:
    reader = LineReader()
    assert read(line, reader=reader) == []
    [first] = read("epoch 1 loss 1.0", reader=reader)
    assert (first.step, first.epoch, first.metrics) == (1, 1, {"loss": 1.0})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0,312", 0.312),
        ("2,3026", 2.3026),
        ("12,5", 12.5),
        ("2,303", 2.303),
        ("1,234.5", 1234.5),
        ("1,048,576", 1048576),
    ],
)
def test_a_comma_is_decimal_where_it_cannot_separate_thousands(text: str, value: float) -> None:
    assert read(f"epoch 3 loss: {text}")[0].metrics == {"loss": value}


def test_a_counter_may_have_thousands_separators() -> None:
    assert [point.step for point in read("step 1,200 loss 2.0", "step 1,048,576 loss 2.0")] == [1200, 2**20]


def test_evaluations_and_bars_of_epochs_do_not_count_steps() -> None:
    lines = [
        "epochs:   0%|          | 0/3 [00:00<?, ?it/s]",
        "epoch 0:  45%|████▌     | 90/200 [00:10<00:12, 8.9it/s]",
        "Validating:  50%|█████     | 10/20 [00:10<00:12, 8.9it/s]",
        "Test: [48/48] Loss: 0.5",
        "epoch 0: 100%|██████████| 200/200 [00:20<00:00, 8.9it/s]",
        "epochs:  33%|███▎      | 1/3 [00:20<00:40, 20.0s/it]",
        "epoch 1:  50%|█████     | 100/200 [00:10<00:12, 8.9it/s]",
    ]
    points = read(*lines)
    assert [point.step for point in points] == [0, 90, 90, 90, 200, 200, 300]
    assert points[-1].progress == pytest.approx(0.5)
    known = [point.progress for point in points if point.progress is not None]
    assert known == sorted(known)


def bar(done: int, total: int, name: str = "") -> str:
    return f"{name}{100 * done // total:3d}%|#####     | {done}/{total} [00:{done % 60:02d}<00:10,  1.92it/s]"


def test_short_bars_beside_a_training_count_no_steps() -> None:
    """Lines of the Trainer of Transformers, which draws bars of evaluations and of files between those of its steps."""
    lines = [bar(0, 120), "[rank0]:[W1127 14:21:26.373 reducer.cpp:1529] Warning: find_unused_parameters=True"]
    for step in range(1, 121):
        lines.append(bar(step, 120))
        if step % 5 == 0:
            lines.append(str({"loss": f"{2 - step / 100:.4g}", "epoch": f"{step / 22:.4g}"}))
        if step % 20 == 0:
            lines += [bar(0, 1, "Writing model shards: "), bar(1, 1, "Writing model shards: ")]
        if step % 25 == 0:
            lines += [bar(0, 2), bar(1, 2), bar(2, 2)]
    lines += [bar(0, 2), bar(2, 2), "{'eval_loss': '0.25', 'epoch': '5.45'}"]
    points = read(*lines)
    assert [point.step for point in points if "loss" in point.metrics] == list(range(5, 121, 5))
    assert {name for point in points for name in point.metrics} == {"loss", "eval_loss"}
    assert (points[-1].step, points[-1].progress) == (120, 1.0)


def test_a_shorter_bar_of_a_second_phase_counts_once_it_trains() -> None:
    points = read(bar(50, 50), "loss: 0.9", bar(0, 20), bar(5, 20), "loss: 0.5", bar(20, 20), "loss: 0.4")
    assert [point.step for point in points if point.metrics] == [50, 55, 70]


def test_steps_in_text_count_and_those_of_bars_beside_it_do_not() -> None:
    lines = []
    for epoch in range(3):
        for step in range(0, 200, 40):
            lines += [bar(step, 200, f"epoch {epoch}: "), f"epoch {epoch + 1} step {epoch * 200 + step + 1} loss 0.5"]
    points = [point for point in read(*lines) if point.metrics]
    assert [point.step for point in points] == [*range(1, 600, 40)]


@pytest.mark.parametrize("first", [0, 1])
def test_a_second_phase_leaves_the_points_of_the_first(first: int) -> None:
    phase = [f"epoch {number} loss {number + 1}" for number in range(first, first + 3)]
    points = read(*phase, *phase, reader=LineReader(total_epochs=3))
    assert [point.step for point in points] == list(range(first, first + 6))
    assert [point.progress for point in points[3:]] == [None] * 3


def test_a_line_about_an_earlier_epoch_begins_no_phase() -> None:
    assert [point.step for point in read("epoch 1 loss 3", "epoch 3 loss 1", "best epoch 2 loss 1")] == [1, 3, 2]
