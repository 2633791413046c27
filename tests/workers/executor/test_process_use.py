"""Use of processors, disk and network by the processes of ranks: real ones, and readings of the kernel made by hand."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidepool import procfs
from tidepool.protocol import ProcessUse, RankStatus

from workers.executor.process_use import Counters, Moment, ProcessReader, ProcessSums, Sums, network_space, rates

_MEBIBYTE = 2**20
_DEADLINE_SECONDS = 30.0


def rank(pid: int, *, slot: int = 0, member_id: str = "host-a.0.1", job: int = 1) -> RankStatus:
    return RankStatus(job, 1, slot, member_id, pid, 0.0, "RUNNING")


def use_of(reader: ProcessReader, *ranks: RankStatus) -> ProcessUse | None:
    return reader.read(ranks, procfs.trees([each.pid for each in ranks]))[ranks[0].member_id]


@contextmanager
def running(*command: str, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def script(text: str, *words: str) -> tuple[str, ...]:
    return sys.executable, "-c", text, *words


class Clock:
    """Monotonic seconds that pass in leaps where a test does not wait."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


def until(found: Callable[[], ProcessUse | None], holds: Callable[[ProcessUse], bool], clock: Clock) -> ProcessUse:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while time.monotonic() < deadline:
        clock.ahead += 2.0  # a reading is due
        use = found()
        if use is not None and holds(use):
            return use
        time.sleep(0.05)
    raise AssertionError(f"not seen: {found()}")


BURN = "print(flush=True)\nwhile True: pass"
CHILDREN = """
import os, sys
print(flush=True)
sys.stdin.readline()
for _ in range(3):
    if os.fork() == 0:
        while sum(os.times()[:2]) < 0.4: pass
        os._exit(0)
    os.wait()
print(flush=True)
sys.stdin.read()
"""
WRITE = """
import os, sys
with open(sys.argv[1], "wb") as file:
    for _ in range(8):
        file.write(bytes(2**20))
        file.flush()
        os.fsync(file.fileno())
    print(flush=True)
    sys.stdin.read()
"""


def test_a_process_that_computes_uses_a_core() -> None:
    with running(*script(BURN)) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        now = iter([0.0, 2.0])
        reader = ProcessReader(lambda: next(now))
        assert use_of(reader, rank(process.pid)) is None, "one reading says nothing about a rate"
        before = procfs.cpu_seconds(procfs.trees([process.pid])[process.pid])
        while procfs.cpu_seconds(procfs.trees([process.pid])[process.pid]) < before + 0.5:
            time.sleep(0.02)
        use = use_of(reader, rank(process.pid))
    assert use is not None
    assert 0.2 < use.cores < 0.6


def test_children_that_ended_between_two_readings_count() -> None:
    with running(*script(CHILDREN)) as process:
        now = iter([0.0, 2.0])
        reader = ProcessReader(lambda: next(now))
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline()
        use_of(reader, rank(process.pid))
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline()
        use = use_of(reader, rank(process.pid))
    assert use is not None
    assert use.cores == pytest.approx(0.6, abs=0.15)


def test_what_a_process_writes_to_disk_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "written"
    with running(*script("import sys\nsys.stdin.readline()\n" + WRITE, str(file)), cwd=tmp_path) as process:
        now = iter([0.0, 2.0])
        reader = ProcessReader(lambda: next(now))
        use_of(reader, rank(process.pid))
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline()
        use = use_of(reader, rank(process.pid))
        told = ProcessReader()._disk_bytes(process.pid)
    assert use is not None
    if told == (0, 0):
        pytest.skip(f"{tmp_path} is on no disk that the kernel counts")
    assert use.written_rate == pytest.approx(4 * _MEBIBYTE, rel=0.1)
    assert use.received_rate is None, "the host's network is not the training's"


def test_slots_of_one_process_share_its_use() -> None:
    with running(*script(BURN)) as process:
        two = [rank(process.pid, slot=slot) for slot in (0, 1)]
        clock = Clock()
        reader = ProcessReader(clock)
        both = until(lambda: use_of(reader, *two), lambda use: use.cores > 0, clock)
    assert both.cores < 0.6


NAMESPACE = ["unshare", "--net", "--map-root-user"]


def may_unshare() -> bool:
    return subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode == 0


SEND = """
import socket, subprocess, sys
for words in ("link add here type veth peer name there", "link set here up", "link set there up",
              "addr add 10.9.9.1/24 dev here"):
    subprocess.run(["ip", *words.split()], check=True)
print(flush=True)
sys.stdin.readline()
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
for _ in range(1000):
    sender.sendto(bytes(1000), ("10.9.9.255", 9))
print(flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(not may_unshare(), reason="network namespaces cannot be made here")
def test_bytes_of_a_network_namespace_of_its_own_are_counted() -> None:
    with running(*NAMESPACE, *script(SEND)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if not process.stdout.readline():
            pytest.skip("this kernel has no pairs of interfaces")
        now = iter([0.0, 2.0])
        reader = ProcessReader(lambda: next(now))
        use_of(reader, rank(process.pid))
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline()
        use = use_of(reader, rank(process.pid))
    assert use is not None
    assert use.sent_rate is not None
    assert use.sent_rate == pytest.approx(521_000, rel=0.1)


def test_a_rank_that_vanishes_meanwhile_leaves_the_others(tmp_path: Path) -> None:
    clock = Clock()
    reader = ProcessReader(clock)
    with running(*script(BURN)) as process:
        until(lambda: use_of(reader, rank(process.pid)), lambda use: use.cores > 0, clock)
        trees = procfs.trees([process.pid])
    clock.ahead += 2.0
    use = reader.read([rank(process.pid)], trees)["host-a.0.1"]
    assert use is None or use.cores >= 0
    assert reader.read([], {}) == {}


def test_disk_bytes_that_may_not_be_read_are_unknown(tmp_path: Path) -> None:
    for pid in (1, 2):
        (tmp_path / str(pid)).mkdir()
        parent = 0 if pid == 1 else 1
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b) S {parent} 1 1 {'0 ' * 7}700 300 0 0 {'0 ' * 4}99 0\n")
    (tmp_path / "1" / "io").write_text("rchar: 5\nread_bytes: 7\nwrite_bytes: 9\n")
    reader = ProcessReader(proc=tmp_path)
    first, second = (reader._counters(pid, None) for pid in (1, 2))
    assert first is not None
    assert second is not None
    assert (first.started, first.parent, first.sums, first.tells_disk) == (99, 0, Sums(10.0, 7, 9), True)
    assert not second.tells_disk
    assert reader._counters(3, None) is None
    sums = ProcessSums()
    sums.add({1: first, 2: second})
    assert not sums.tells_disk, "a part of the processes is not the whole"


def test_sums_count_a_child_once_before_and_after_the_wait_for_it() -> None:
    sums = ProcessSums()
    sums.add({1: Counters(10, 0, Sums(1.0))})
    sums.add({1: Counters(10, 0, Sums(1.0)), 2: Counters(11, 1, Sums(5.0, 100, 50))})
    assert sums.total == Sums(5.0, 100, 50)
    sums.add({1: Counters(10, 0, Sums(8.0, 130, 50))})
    assert sums.total == Sums(7.0, 130, 50), "2 seconds more, of the child's end or the parent's own"


def test_sums_count_a_wait_that_a_reading_has_missed() -> None:
    sums = ProcessSums()
    sums.add({1: Counters(10, 0, Sums(1.0)), 2: Counters(11, 1, Sums(5.0))})
    sums.add({1: Counters(10, 0, Sums(1.5))})
    sums.add({1: Counters(10, 0, Sums(6.5))})
    assert sums.total.cpu_seconds == pytest.approx(0.5, abs=0.01)


def test_a_pid_that_is_used_again_is_another_process() -> None:
    sums = ProcessSums()
    sums.add({2: Counters(11, 1, Sums(5.0))})
    sums.add({2: Counters(99, 1, Sums(0.25))})
    assert sums.total.cpu_seconds == 0.25


amounts = st.builds(Sums, st.floats(0, 1e6), st.integers(0, 2**50), st.integers(0, 2**50))
readings = st.dictionaries(
    st.integers(1, 5), st.builds(Counters, st.integers(1, 3), st.integers(0, 5), amounts, st.booleans()), max_size=5
)


@given(st.lists(readings, max_size=8))
def test_sums_never_fall(told: list[dict[int, Counters]]) -> None:
    sums, before = ProcessSums(), Sums()
    for reading in told:
        sums.add(reading)
        assert all(after >= former >= 0 for after, former in zip(sums.total, before, strict=True))
        before = sums.total


def test_rates_need_time_and_known_figures() -> None:
    first = Moment(10.0, Sums(1.0, 0, 0), True, (0.0, 0.0))
    assert rates([], 1) is None
    assert rates([first], 1) is None
    assert rates([first, first._replace(at=9.0)], 1) is None
    later = Moment(14.0, Sums(3.0, 4000, 400), True, (40.0, 80.0))
    assert rates([first, later], 2) == ProcessUse(0.25, 500, 50, 5, 10)
    assert rates([first, later._replace(tells_disk=False, network=None)], 1) == ProcessUse(0.5)


@pytest.mark.parametrize(
    ("root", "others", "host", "found"),
    [
        (1, [], 1, None),
        (1, [1, 1], 1, None),
        (7, [7], 1, 7),
        (1, [7, 7], 1, 7),  # a command that the rank has started in a namespace
        (1, [7, 1], 1, None),
        (1, [7, None], 1, None),
        (None, [], 1, None),
        (7, [], None, None),
    ],
)
def test_a_network_is_the_trainings_if_all_of_its_processes_are_in_it(
    root: int | None, others: list[int | None], host: int | None, found: int | None
) -> None:
    assert network_space(root, others, host) == found


def test_a_network_that_two_trainings_share_is_nobodys(tmp_path: Path) -> None:
    def process(pid: int, received: int) -> None:
        (tmp_path / str(pid) / "ns").mkdir(parents=True, exist_ok=True)
        (tmp_path / str(pid) / "net").mkdir(exist_ok=True)
        heads = "Inter-|\n face |\n    lo: 99 0 0 0 0 0 0 0 99 0\n"
        (tmp_path / str(pid) / "net" / "dev").write_text(f"{heads}  eth0: {received} 0 0 0 0 0 0 0 7 0\n")

    for pid in (1, 2):
        process(pid, 0)
    for name, space in (("self", "host"), ("1", "apart"), ("2", "apart")):
        (tmp_path / space).touch()
        (tmp_path / name / "ns").mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "ns" / "net").symlink_to(tmp_path / space)
    trees: Any = {1: [type("P", (), {"pid": 1})], 2: [type("P", (), {"pid": 2})]}

    def read(reader: ProcessReader, job: int) -> list[tuple[float, float]]:
        ranks = [rank(1), rank(2, member_id="host-a.1.1", job=job)]
        reader._networks = reader._read_networks(ranks, trees)
        return [network.so_far for network in reader._networks.values()]

    together, apart = ProcessReader(proc=tmp_path), ProcessReader(proc=tmp_path)
    assert read(together, job=1) == [(0.0, 0.0)] * 2
    assert read(apart, job=2) == []
    for pid in (1, 2):
        process(pid, 500)
    assert read(together, job=1) == [(250.0, 0.0)] * 2, "ranks of one training share what they cannot be told apart by"
    for pid in (1, 2):
        process(pid, 100)
    assert read(together, job=1) == [(250.0, 0.0)] * 2, "a count that fell"
