"""An observer that belongs to nobody: it reads /proc and asks the API, and checks all the while what must never be.

No slot is held by two ranks that live, none beyond what its host has; generation and step of a job only grow. Ranks are
found by the mark in their environment, so also those that neither a shim nor the database knows (any more).
"""

import hashlib
import os
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from types import TracebackType

import httpx
import psutil

from tests.journey.running_stack import RunningStack
from tests.waiting import wait_until

__all__ = ["Marked", "Observer", "lives", "marked"]

_INTERVAL_SECONDS = 0.2


@dataclass(frozen=True)
class Marked:
    """A process of a job. `role` is "rank", "shim" or "coordinator"; `member_id` is a rank's."""

    pid: int
    started_at: float
    host: str
    job: int
    attempt: int
    role: str
    member_id: str = ""

    @property
    def slot(self) -> int:
        return int(self.member_id.split(".")[1])


def marked(stack: RunningStack) -> list[Marked]:
    """The processes of all jobs of `stack`, whoever their parents are."""
    home = hashlib.sha256(os.fsencode(stack.home.resolve())).hexdigest()[:12]
    found = []
    for process in psutil.process_iter():
        try:
            mark = process.environ().get("TIDEPOOL_MARK", "").strip().split(".", 5)
            if len(mark) >= 5 and mark[0] == home and process.status() != psutil.STATUS_ZOMBIE:
                host, job, attempt, role = mark[1], int(mark[2]), int(mark[3]), mark[4]
                member_id = mark[5] if role == "rank" else ""
                found.append(Marked(process.pid, process.create_time(), host, job, attempt, role, member_id))
        except (psutil.Error, OSError):  # the process has ended
            continue
    return found


def lives(one: Marked) -> bool:
    """Return whether that very process still runs."""
    try:
        process = psutil.Process(one.pid)
        return process.create_time() == one.started_at and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass
class Observer:
    """A context in which a thread looks again and again. `slots`: of each host."""

    stack: RunningStack
    slots: int
    violations: list[str] = field(default_factory=list)
    #: Number of times that processes were listed and that the API answered.
    looks: int = 0
    answers: int = 0

    def __enter__(self) -> "Observer":
        self._newest: dict[tuple[int, str], tuple[int, int]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="observer")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(60)

    def assert_all_was_well(self) -> None:
        assert self.violations == []
        assert self.looks > 10
        assert self.answers > 10

    def assert_no_orphan(self, job: int, seconds: float) -> None:
        """`seconds`: two leases, after which nothing of a job that has ended may be left."""
        wait_until(lambda: not [one for one in marked(self.stack) if one.job == job], "no orphan", seconds)

    def _watch(self) -> None:
        with self.stack.api() as api:
            while not self._over.wait(_INTERVAL_SECONDS):
                self._look_at_processes()
                self._ask(api)

    def _look_at_processes(self) -> None:
        holders: dict[tuple[str, int], dict[tuple[int, int, str], list[Marked]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for one in marked(self.stack):
            if one.role == "rank":
                holders[one.host, one.slot][one.job, one.attempt, one.member_id].append(one)
        self.looks += 1
        for (host, slot), ranks in holders.items():
            if slot >= self.slots:
                self._violated(f"{host} has {self.slots} slots, and a rank in slot {slot}: {dict(ranks)}")
            # One may have ended while the others were looked at, and made room for the next.
            left = [member_id for member_id, processes in ranks.items() if any(map(lives, processes))]
            if len(ranks) > 1 and len(left) > 1:
                self._violated(f"slot {slot} of {host} is held by {len(left)} ranks: {dict(ranks)}")

    def _ask(self, api: httpx.Client) -> None:
        try:
            jobs = api.get("jobs/", timeout=5).raise_for_status().json()["results"]
        except (httpx.HTTPError, ValueError):  # the web is down, or overtaxed: it is asked again
            return
        self.answers += 1
        for job in jobs:
            for name in ("generation", "step"):
                newest = (job["attempt"], job[name])
                before = self._newest.get((job["id"], name), (0, 0))
                if newest < before:
                    self._violated(f"{name} of job {job['id']} went back from {before} to {newest}")
                self._newest[job["id"], name] = newest

    def _violated(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)
