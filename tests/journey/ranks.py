"""Watches ranks from outside while something else happens: what the API says, compared with the operating system."""

import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType

import httpx
import psutil

__all__ = ["RankSeen", "RankWatch", "is_alive"]

_INTERVAL_SECONDS = 0.3
#: /proc counts starts in hundredths of a second.
_START_TOLERANCE_SECONDS = 0.05


@dataclass(frozen=True)
class RankSeen:
    member_id: str
    pid: int
    started_at: float


@dataclass
class RankWatch:
    """A context in which a thread notes, again and again, which ranks of each job are alive as processes."""

    api: httpx.Client
    #: Job name -> [(Unix time, ranks alive)]
    alive: dict[str, list[tuple[float, frozenset[RankSeen]]]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def __enter__(self) -> "RankWatch":
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(30)

    def between(self, job: str, start: float, end: float) -> list[frozenset[RankSeen]]:
        return [ranks for at, ranks in self.alive.get(job, []) if start < at < end]

    def times(self, job: str, start: float, end: float) -> list[float]:
        """When somebody looked, Unix seconds."""
        return [at for at, _ in self.alive.get(job, []) if start < at < end]

    def lives(self, job: str) -> dict[str, tuple[float, float]]:
        """Rank -> when its process started and when it was last seen alive, Unix seconds."""
        return {rank.member_id: (rank.started_at, at) for at, ranks in self.alive.get(job, []) for rank in ranks}

    def _watch(self) -> None:
        while not self._over.wait(_INTERVAL_SECONDS):
            try:
                # Ended jobs have no ranks.
                for job in self.api.get("jobs/", params={"state": "active"}).raise_for_status().json()["results"]:
                    self._note(job)
            except httpx.HTTPError as error:
                self.problems.append(str(error))

    def _note(self, job: dict[str, object]) -> None:
        at = time.time()
        answer = self.api.get(f"jobs/{job['id']}/ranks/").raise_for_status().json()
        listed = answer["results"] if isinstance(answer, dict) else answer
        seen = {RankSeen(rank["member_id"], rank["pid"], _unix(rank["started_at"])) for rank in listed}
        living = frozenset(rank for rank in seen if is_alive(rank))
        self.alive.setdefault(str(job["name"]), []).append((at, living))


def is_alive(rank: RankSeen) -> bool:
    """Return whether the operating system runs that very process."""
    try:
        process = psutil.Process(rank.pid)
        same = abs(process.create_time() - rank.started_at) < _START_TOLERANCE_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
