"""Plays the tutorial: submits, watches the allocation series, and notes when each moment came."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from webapp.tutorial import moments

__all__ = ["Api", "ApiError", "MomentMissed", "Tutorial"]

_ANSWER_SECONDS = 30.0


class ApiError(RuntimeError):
    """The server refused, or was not there; the sentence is what it said."""


class Api:
    """JSON over `<site>/api/v1/`."""

    def __init__(self, site: str, authorization: str) -> None:
        if urllib.parse.urlsplit(site).scheme not in ("http", "https"):
            raise ApiError(f"{site!r} is not the address of a site: give one such as http://127.0.0.1:8000.")
        self.site = site.rstrip("/")
        self._root = f"{self.site}/api/v1/"
        self._authorization = authorization
        # A proxy set for downloads has no business between us and this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str, **query: str | int) -> Any:
        return self._send("GET", f"{path}?{urllib.parse.urlencode(query)}" if query else path)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._send("POST", path, body or {})

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        return self._send("PATCH", path, body)

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 (the scheme was checked)
            self._root + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": self._authorization, "Content-Type": "application/json"},
        )
        try:
            with self._opener.open(request, timeout=_ANSWER_SECONDS) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise ApiError(f"{method} {path}: {_sentence(error)}") from None
        except OSError as error:
            raise ApiError(f"{self._root} does not answer ({error}): is Tidepool running there?") from None
        return json.loads(text) if text else None


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        said = json.loads(error.read())
        fields = [sentence for sentences in said.get("fields", {}).values() for sentence in sentences]
        return " ".join([said["error"], *fields])
    except (ValueError, KeyError, AttributeError, TypeError):
        return f"status {error.code}"


_POLL_SECONDS = 0.25
_CALIBRATION_SECONDS = 2.0
#: With fewer, the shares of the two trainings could not be told apart.
_LEAST_SLOTS = 4
_ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
#: Plays with longer and longer trainings, where they end before every moment was seen.
_PLAYS = 3
_NAMES = ("tutorial-calibration", "tutorial-1", "tutorial-2")
_Found = TypeVar("_Found")


class MomentMissed(RuntimeError):
    """A moment did not come in time; the sentence says what was seen instead."""


class TrainingTooShort(MomentMissed):
    """A training ended before a moment in which it should train: the machine became faster than it was measured."""


@dataclass
class Tutorial:
    api: Api
    say: Callable[[str], None]
    #: Seconds to wait for each moment.
    deadline_seconds: float
    #: Seconds to leave each moment for people to look at.
    look_seconds: float
    model: str = "digits-cnn"
    dataset: str = "digits"
    instance_group: str = "sig-elastic"
    seen: list[moments.Seen] = field(default_factory=list)

    #: GPUs of the cluster, once it plays.
    slots: int = 0
    #: Ids of T1 and T2 once they are submitted.
    _jobs: list[int] = field(default_factory=list)
    _begun: datetime | None = None
    _last: datetime | None = None

    def play(self) -> None:
        """Raises MomentMissed, or ApiError; `seen` holds what was seen until then."""
        slots = self.slots = self._clear_the_stage()
        length = self._calibrate(slots)
        for _ in range(_PLAYS - 1):
            try:
                return self._play(slots, length)
            except TrainingTooShort as error:
                length = moments.Length(2 * length.first, 2 * length.second)
                self.say(
                    f"{error} This machine is faster now than when it was measured: both play again, twice as long."
                )
                self._clear_the_stage()
                self._jobs, self.seen[:], self._begun, self._last = [], [], None, None
        return self._play(slots, length)

    def _play(self, slots: int, length: moments.Length) -> None:
        self.say(f"T1 trains {length.first} epochs, T2 {length.second}.")
        start, full, shared, changed, handed_over = moments.moments(slots)
        self._jobs.append(self._submit("tutorial-1", slots, length.first))
        self._expect(start)
        self._expect(full)
        time.sleep(self.look_seconds)
        self._jobs.append(self._submit("tutorial-2", slots, length.second))
        self._expect(shared)
        time.sleep(self.look_seconds)
        self.api.patch(f"jobs/{self._jobs[1]}/", {"priority": 10000})
        self._expect(changed)
        self.say("T1 continues to its end on its remaining GPUs.")
        self._await_end(self._jobs[0])
        self._expect(handed_over)
        self._check_undisturbed()

    # --- before ---

    def _clear_the_stage(self) -> int:
        """Cancel what an earlier play has left; returns how many GPUs the cluster has."""
        for job in self.api.get("jobs/", state="active")["results"]:
            if job["name"] in _NAMES:
                self.say(f"Cancelling training {job['id']} of an earlier play.")
                self.api.post(f"jobs/{job['id']}/cancel/")
                self._await_end(job["id"])
        hosts = self.api.get("hosts/")["results"]
        slots = sum(host["ngpus"] for host in hosts if host["state"] == "ONLINE")
        if slots < _LEAST_SLOTS:
            raise MomentMissed(f"The cluster has {slots} GPUs: the tutorial needs at least {_LEAST_SLOTS}.")
        return int(slots)

    def _calibrate(self, slots: int) -> moments.Length:
        """Train for two seconds on every slot, to learn how fast this machine is."""
        self.say(f"Measuring this machine with a short training on {slots} GPUs.")
        job = self._submit("tutorial-calibration", slots, 100_000)

        def enough() -> bool:
            points = self._steps_at(job, slots)
            return bool(points) and (points[-1].at - points[0].at).total_seconds() >= _CALIBRATION_SECONDS

        def epoch_complete() -> bool:
            points = self._steps(job)
            return points[-1].epoch > points[0].epoch

        def has_failed() -> bool:
            return self._state(job) == "FAILED"

        if not (self._until(enough, has_failed) and self._until(epoch_complete, has_failed)):
            raise MomentMissed(
                f"The short training did not come to speed on {slots} GPUs, which the tutorial needs all: "
                f"{self._describe(job)}"
            )
        rate = moments.measured_rate(self._steps_at(job, slots))
        epoch_steps = moments.steps_per_epoch(self._steps(job))
        self.api.post(f"jobs/{job}/cancel/")
        self._await_end(job)
        self.say(f"It makes {rate:.0f} steps per second; an epoch is {epoch_steps} steps.")
        return moments.choose_lengths(rate, epoch_steps, self.look_seconds)

    # --- moments ---

    def _submit(self, name: str, slots: int, epochs: int) -> int:
        body = {
            "name": name,
            "model": self.model,
            "dataset": self.dataset,
            "instance_group": self.instance_group,
            "min_slots": 1,
            "max_slots": slots,
            "priority": 5000,
            "parameters": {"epochs": epochs},
        }
        job = self.api.post("jobs/", body)
        self.say(f"Submitted {name} as training {job['id']}.")
        return int(job["id"])

    def _expect(self, expected: moments.Expected) -> None:
        """Wait for a moment that comes after the one before, and note when it came."""
        training = [job for job, size in zip(self._jobs, (expected.first, expected.second), strict=False) if size]

        def has_ended() -> bool:
            return any(self._state(job) in _ENDED for job in training)

        at = self._until(lambda: self._find(expected), has_ended)
        if at is None:
            is_short = any(self._state(job) == "SUCCEEDED" for job in training)
            problem = f"Not seen: {expected.title}. {self._sizes()}."
            raise TrainingTooShort(problem) if is_short else MomentMissed(problem)
        self._last = at
        self._begun = self._begun or at
        pauses = [moments.pause_at(self._series(job), at) for job in self._jobs]
        seconds = (at - self._begun).total_seconds()
        self.seen.append(moments.Seen(expected, seconds, (pauses[0], pauses[1] if len(pauses) > 1 else None)))
        self.say(f"{expected.title}: {self._sizes()}")

    def _find(self, expected: moments.Expected) -> datetime | None:
        first, *others = [self._series(job) for job in self._jobs]
        if not first:
            return None
        return moments.find(expected, first, others[0] if others else [], self._last or first[0].at)

    def _check_undisturbed(self) -> None:
        found = [
            sentence
            for name, job in zip(("T1", "T2"), self._jobs, strict=True)
            for sentence in moments.violations(name, self._series(job))
        ]
        if found:
            raise MomentMissed(" ".join(found))

    def _await_end(self, job: int) -> None:
        """Wait for the end; as long as it makes steps, its deadline moves."""
        step, deadline = -1, time.monotonic() + self.deadline_seconds
        while (state := self.api.get(f"jobs/{job}/"))["state"] not in _ENDED:
            if state["step"] != step:
                step, deadline = state["step"], time.monotonic() + self.deadline_seconds
            if time.monotonic() > deadline:
                raise MomentMissed(f"Training {job} did not end: {self._describe(job)}")
            time.sleep(_POLL_SECONDS)
        if state["state"] == "FAILED":
            raise MomentMissed(f"Training {job} failed: {self._describe(job)}")

    # --- reading ---

    def _series(self, job: int) -> list[moments.Point]:
        return [
            moments.Point(datetime.fromisoformat(line["at"]), line["slots"], line["attempt"], line["pause_ms"])
            for line in self.api.get(f"jobs/{job}/allocation/")
        ]

    def _steps(self, job: int) -> list[moments.StepPoint]:
        points = self.api.get(f"jobs/{job}/metrics/", name="loss", every=1)["results"]
        return [
            moments.StepPoint(point["step"], point["epoch"], datetime.fromisoformat(point["at"])) for point in points
        ]

    def _steps_at(self, job: int, slots: int) -> Sequence[moments.StepPoint]:
        """Return the steps made since it trains on so many slots; none while it does not."""
        series = self._series(job)
        if not series or series[-1].slots != slots:
            return []
        return [point for point in self._steps(job) if point.at >= series[-1].at]

    def _state(self, job: int) -> str:
        return str(self.api.get(f"jobs/{job}/")["state"])

    def _sizes(self) -> str:
        parts = []
        for name, job in zip(("T1", "T2"), self._jobs, strict=False):
            sizes = [str(point.slots) for point in self._series(job)]
            parts.append(f"{name} {' -> '.join(sizes) or 'has no GPU yet'}")
        return ", ".join(parts)

    def _describe(self, job: int) -> str:
        facts: dict[str, Any] = self.api.get(f"jobs/{job}/")
        reason = facts["reason"] or {}
        error = facts["error"] or {}
        sentences = [facts["state"], str(reason.get("text", "")), str(error.get("message", ""))]
        return " - ".join(sentence for sentence in sentences if sentence)

    # --- waiting ---

    def _until(self, found: Callable[[], _Found | None], is_hopeless: Callable[[], bool]) -> _Found | None:
        """Wait for a result until the deadline, or until there is no hope of one. Return None without a result."""
        deadline = time.monotonic() + self.deadline_seconds
        while not (result := found()):
            if time.monotonic() > deadline or is_hopeless():
                return found()
            time.sleep(_POLL_SECONDS)
        return result
