"""Memory of a GPU, by figures that torch would give."""

import pytest
import torch
from tidepool.protocol import GpuMemory
from tidepool.torch.rank.device_memory import DeviceMemory

GIB = 1024**3


@pytest.fixture
def peaks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The peaks that torch tells one after another."""
    found: list[int] = []
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: found.pop(0))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 20 * GIB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 * GIB, 24 * GIB))
    return found


def test_a_rank_on_the_processor_has_no_memory_of_a_gpu() -> None:
    for device in (None, torch.device("cpu")):
        memory = DeviceMemory(device)
        memory.look(1, 0.0)
        assert memory.newest is None


def test_the_peak_and_the_step_of_it(peaks: list[int]) -> None:
    peaks += [5 * GIB, 5 * GIB, 9 * GIB]
    memory, found = DeviceMemory(torch.device("cuda", 0)), []
    for step, now in [(1, 0.0), (2, 0.5), (7, 2.0), (9, 4.5), (10, 5.0)]:
        memory.look(step, now)
        found.append(memory.newest)
    first, second = GpuMemory(5 * GIB, 20 * GIB, 23 * GIB, 1), GpuMemory(9 * GIB, 20 * GIB, 23 * GIB, 9)
    assert found == [first, first, first, second, second]
    assert peaks == [], "it is looked at every two seconds at most"
