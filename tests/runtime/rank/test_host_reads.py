"""Reads of tensors that the thread which trains has to wait for, and what is none of them."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tidepool.torch.rank import host_reads
from tidepool.torch.rank.host_reads import HostReads
from torch import nn

from tests.runtime.rank.test_step_clock import Time


class OnDevice(torch.Tensor):
    """A number whose reader waits for two seconds of the test's clock."""

    time: Time

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if function.__name__ in {"item", "tolist"}:
            cls.time.now += 2
        return super().__torch_function__(function, types, arguments, named or {})  # type: ignore[no-untyped-call]


@pytest.fixture
def time() -> Iterator[Time]:
    methods = {name: getattr(torch.Tensor, name) for name in host_reads._NAMES}
    OnDevice.time = Time()
    yield OnDevice.time
    for name, method in methods.items():
        setattr(torch.Tensor, name, method)
    host_reads._watching.clear()


def watched(time: Time) -> HostReads:
    reads = HostReads(time)
    reads.watch()
    return reads


def late() -> torch.Tensor:
    return torch.ones(1).as_subclass(OnDevice)


def test_reads_and_the_line_of_the_longest_are_counted(time: Time) -> None:
    reads = watched(time)
    assert late().item() == 1.0
    for _ in range(2):
        late().tolist()
    count, seconds, place = reads.most()
    assert (count, seconds) == (3, 6.0)
    line = test_reads_and_the_line_of_the_longest_are_counted.__code__.co_firstlineno + 4
    assert place == f"test_host_reads.py line {line}"


def test_tensors_in_main_memory_are_not_counted(time: Time) -> None:
    reads = watched(time)
    assert (torch.ones(1).item(), float(torch.ones(1)), torch.ones(1).tolist()) == (1.0, 1.0, [1.0])
    assert reads.most() == (0, 0.0, "")


def test_reads_of_other_threads_are_not_counted(time: Time) -> None:
    reads = watched(time)
    thread = threading.Thread(target=lambda: late().item())
    thread.start()
    thread.join()
    assert reads.most() == (0, 0.0, "")


def test_an_error_in_a_read_reaches_the_script(time: Time) -> None:
    reads = watched(time)
    with pytest.raises(RuntimeError, match="2 elements"):
        torch.ones(2).as_subclass(OnDevice).item()
    assert reads.most()[:2] == (1, 2.0)


def test_the_newest_loop_counts_alone_and_methods_are_wrapped_once(time: Time) -> None:
    first, second = watched(time), watched(time)
    late().item()
    assert (first.most()[0], second.most()[0]) == (0, 1)


def test_lines_are_bounded(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_reads, "_MOST_PLACES", 3)
    reads = watched(time)
    for line in range(9):
        code = compile("\n" * line + "tensor.item()", "many.py", "exec")
        exec(code, {"tensor": late(), "__name__": "__main__"})
    assert (reads.most()[:2], len(reads._places)) == ((9, 18.0), 3)


def test_training_by_torch_itself_is_unchanged(time: Time) -> None:
    watched(time)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert float(model.weight.detach().sum()) == model.weight.detach().sum().item()
