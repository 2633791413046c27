"""metrics.jsonl: valid JSON whatever the numbers, and each step once whoever writes it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tidepool.journal import last_record
from tidepool.torch.rank.metrics_file import MetricsFile
from tidepool.torch.state.update import learning_rates, named_optimizers


def read(folder: Path) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in (folder / "metrics.jsonl").read_text().split("\n")[:-1]]


def test_what_is_not_a_number_is_null(tmp_path: Path) -> None:
    MetricsFile(tmp_path).write([{"step": 1, "loss": float("nan"), "accuracy": float("inf"), "learning_rate": 0.1}])
    assert read(tmp_path) == [{"step": 1, "loss": None, "accuracy": None, "learning_rate": 0.1}]


def test_the_next_writer_adds_what_its_predecessor_could_not(tmp_path: Path) -> None:
    first, second = MetricsFile(tmp_path), MetricsFile(tmp_path)
    first.write([{"step": 1}, {"step": 2}])
    second.write([{"step": 1}, {"step": 2}, {"step": 3}])
    second.write([{"step": 3}, {"step": 4}])
    assert [record["step"] for record in read(tmp_path)] == [1, 2, 3, 4]


def test_one_that_was_not_first_for_a_while_looks_again(tmp_path: Path) -> None:
    first, second = MetricsFile(tmp_path), MetricsFile(tmp_path)
    first.write([{"step": 1}])
    second.write([{"step": 2}])
    first.forget()
    first.write([{"step": 2}, {"step": 3}])
    assert [record["step"] for record in read(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize("torn", [b'{"step":3,"lo', b'{"step":3,"loss":1.5}'])
def test_a_line_that_its_writer_was_killed_in_is_written_again(tmp_path: Path, torn: bytes) -> None:
    MetricsFile(tmp_path).write([{"step": 1}, {"step": 2}])
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(torn)
    MetricsFile(tmp_path).write([{"step": 2}, {"step": 3, "loss": 1.5}])
    assert read(tmp_path) == [{"step": 1}, {"step": 2}, {"step": 3, "loss": 1.5}]


@pytest.mark.parametrize("torn", [b"", b'{"step":3,"lo', b"x" * 200_000])
def test_a_record_may_have_any_number_of_metrics(tmp_path: Path, torn: bytes) -> None:
    many = {f"task_{number}/loss": 1.5 for number in range(10_000)}
    MetricsFile(tmp_path).write([{"step": 1, **many}, {"step": 2, **many}])
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(torn)
    assert last_record(tmp_path / "metrics.jsonl") == {"step": 2, **many}
    MetricsFile(tmp_path).write([{"step": 2}, {"step": 3}])
    assert [record["step"] for record in read(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize("content", [b"", b"torn", b"\n", b"[]\n"])
def test_a_file_without_a_record_has_no_last_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(content)
    assert last_record(tmp_path / "metrics.jsonl") == {}


def test_off_the_cluster_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    MetricsFile(None).write([{"step": 1}])
    assert list(tmp_path.iterdir()) == []


def test_each_optimizer_and_group_has_its_learning_rate() -> None:
    one, two = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
    adam, sgd = torch.optim.Adam([one], lr=0.01), torch.optim.SGD([two], lr=0.1)
    groups = torch.optim.SGD([{"params": [one]}, {"params": [two], "lr": 0.5}], lr=0.25)

    assert learning_rates(named_optimizers(adam)) == {"learning_rate": 0.01}
    assert learning_rates({"body": adam, "head": sgd}) == {
        "learning_rate": 0.01,
        "learning_rate/body": 0.01,
        "learning_rate/head": 0.1,
    }
    assert learning_rates({"optimizer": groups}) == {
        "learning_rate": 0.25,
        "learning_rate/group-0": 0.25,
        "learning_rate/group-1": 0.5,
    }
