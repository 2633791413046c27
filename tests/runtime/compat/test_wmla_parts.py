"""The parts of WMLA's driver by themselves: hyperparameters for all ranks, the ledger, datasets that are downloaded."""

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from _wmla.driver import Hyperparameters
from _wmla.ledger import Entry, Ledger, bring_files, records_after
from _wmla.options import datasets_of
from tidepool.env import RankContext, rank_environment
from tidepool.protocol import to_json

from tests.runtime.process_tree import launch_spec


def adam(**options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], **options)


# --- hyperparameters ---


def test_hyperparameters_of_one_become_those_of_another() -> None:
    one, other = adam(), adam()
    numbers = Hyperparameters(other)
    one.param_groups[0].update(lr=0.25, betas=(0.5, 0.75))
    numbers.write(Hyperparameters(one).read())
    assert other.param_groups[0]["lr"] == 0.25
    assert other.param_groups[0]["betas"] == (0.5, 0.75)
    assert other.param_groups[0]["amsgrad"] is False


def test_they_are_written_after_the_optimizer_has_received_state() -> None:
    """`load_state_dict` makes new parameter groups."""
    optimizer = adam()
    numbers = Hyperparameters(optimizer)
    optimizer.load_state_dict(adam(lr=0.5).state_dict())
    assert 0.5 in numbers.read()
    numbers.write([0.125 if number == 0.5 else number for number in numbers.read()])
    assert optimizer.param_groups[0]["lr"] == 0.125


def test_a_rate_that_is_a_tensor_stays_one() -> None:
    optimizer = adam(lr=torch.tensor(0.5))
    before = optimizer.param_groups[0]["lr"]
    numbers = Hyperparameters(optimizer)
    numbers.write([0.25 if number == 0.5 else number for number in numbers.read()])
    assert optimizer.param_groups[0]["lr"] is before
    assert before.item() == 0.25


# --- the ledger ---


class Logger:
    def __init__(self) -> None:
        self.gs = 0
        self.history: list[Any] = []
        self.open_file = object()


def test_a_new_driver_goes_on_where_the_ledger_was_written(tmp_path: Path) -> None:
    driver, logger = tmp_path / "driver", Logger()
    (driver / "sub").mkdir(parents=True)
    (driver / "stdout").write_text("one\n")
    logger.gs, logger.history = 3, [(1, {"loss": 0.5})]
    Ledger(tmp_path, driver, [logger]).write(7, 100.0)
    with (driver / "stdout").open("a") as file:
        file.write("two\n")
    (driver / "sub" / "later").write_text("x")

    fresh = Logger()
    ledger = Ledger(tmp_path, driver, [fresh])
    entry = ledger.read()
    assert entry is not None
    ledger.restore(entry)
    assert (entry.step, entry.began_at) == (7, 100.0)
    assert (driver / "stdout").read_text() == "one\n"
    assert (driver / "sub" / "later").read_text() == ""
    assert (fresh.gs, fresh.history) == (3, [[1, {"loss": 0.5}]])
    assert fresh.open_file is not logger.open_file, "what is no plain value stays the new one's"


def test_there_is_no_ledger_at_first(tmp_path: Path) -> None:
    assert Ledger(tmp_path, tmp_path / "driver", []).read() is None


def test_an_earlier_attempts_files_are_brought_as_long_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "old" / "sub").mkdir(parents=True)
    (tmp_path / "old" / "stdout").write_text("one\ntwo\n")
    (tmp_path / "old" / "sub" / "metrics").write_text("x")
    entry = Entry(1, "", 0.0, {"stdout": 4, "sub/metrics": 1, "gone": 3})
    bring_files(entry, tmp_path / "old", tmp_path / "new")
    found = {str(path.relative_to(tmp_path / "new")): path.read_text() for path in (tmp_path / "new").rglob("*.*")}
    assert (tmp_path / "new" / "stdout").read_text() == "one\n"
    assert (tmp_path / "new" / "sub" / "metrics").read_text() == "x"
    assert "gone" not in found


def test_records_are_read_from_the_end(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    assert records_after(file, 0) == []
    file.write_text("".join(json.dumps({"step": step, "more": "x" * 90}) + "\n" for step in range(1, 3001)))
    with file.open("a") as stream:
        stream.write('{"step": 3001, "mo')
    assert [record["step"] for record in records_after(file, 2998)] == [2999, 3000]
    assert [record["step"] for record in records_after(file, 10)] == list(range(11, 3001))
    assert len(records_after(file, 0)) == 3000
    assert records_after(file, 3000) == []


# --- datasets ---


def test_what_datasets_fn_returns_is_told_apart() -> None:
    assert datasets_of(lambda: ("train", "test")) == ("train", "test")
    assert datasets_of(lambda: "train") == ("train", None)
    with pytest.raises(TypeError, match="returned 3 things"):
        datasets_of(lambda: (1, 2, 3))


def test_arrays_as_for_keras_are_refused_with_what_to_return() -> None:
    arrays = (torch.ones(4, 2), torch.ones(4))
    with pytest.raises(TypeError, match=r"as for Keras: return .* TensorDataset"):
        datasets_of(lambda: (arrays, arrays))


def test_one_rank_of_a_host_at_a_time_prepares_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process fails if another one is in there with it before the data are whole."""
    launch = launch_spec(tmp_path, "main.py")
    Path(launch.folder).mkdir(parents=True, exist_ok=True)
    file = tmp_path / "launch.json"
    file.write_text(json.dumps(to_json(launch)))
    context = RankContext(job=1, attempt=1, member_id="a.0.1", host="a", slot=0, address="127.0.0.1", launch=launch)
    for name, value in rank_environment(context, file).items():
        monkeypatch.setenv(name, value)
    forked = multiprocessing.get_context("fork")
    processes = [forked.Process(target=download, args=(tmp_path,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert (tmp_path / "data").read_text() == "whole"


def download(folder: Path) -> None:
    def datasets() -> tuple[str, None]:
        file = folder / "data"
        if not file.exists():
            with file.open("x") as stream:  # a second one that comes meanwhile finds a file that is not whole
                stream.flush()
                for _ in range(200_000):
                    pass
                stream.write("whole")
        assert file.read_text() == "whole"
        return file.read_text(), None

    datasets_of(datasets)
