"""Hosts without processes, for `benchmarks.control_plane`: they send real, signed reports to a running control plane.

    python -m benchmarks.simulated_hosts FILE SECONDS

FILE: JSON, a list of {"name", "key", "job"}. Each host has 8 GPUs and leads a training of its own with 8 ranks, which
makes 10 steps of 3 metrics a second; the metric `sent` is the time at which the report was made. When a report is due,
what it carries and how it is signed is decided by the executor's own code (`workers.executor`). At the end, writes a
line of JSON: {"sent", "refused", "steps", "seconds", "cpu"}.
"""

import json
import os
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import redis
from tidepool.protocol import DeviceReading, HostFacts, JournalEntry, RankStatus, Report

from core.broker import redis_url
from core.task_messages import task_message
from workers.executor.app import REPORT_QUEUE, REPORT_TASK
from workers.executor.config import ExecutorConfig
from workers.executor.reporting import Delivery, Reporter
from workers.executor.signing import Signer
from workers.executor.supervisor import Observation

SLOTS = 8
STEPS_PER_SECOND = 10
METRICS = ("loss", "accuracy")
#: Revision of each host's desired state, which it has carried out.
REVISION = 1
_TICK_SECONDS = 0.05
_RESEND_SECONDS = 5.0


@dataclass
class Counts:
    sent: int = 0
    refused: int = 0
    steps: int = 0


class Steps:
    """The journal of a training's steps, in place of `workers.executor.journals.Journals`: steps that have not been
    acknowledged hold back later ones."""

    def __init__(self, job: int, begun: float) -> None:
        self._job, self._begun = job, begun
        self._name = f"{job}.1.metrics"
        self.acknowledged = self._sent = 0
        self._sent_at = 0.0

    def has_unsent(self) -> bool:
        if self._sent > self.acknowledged and time.monotonic() - self._sent_at > _RESEND_SECONDS:
            self._sent = self.acknowledged
        return self._sent == self.acknowledged and self._made() > self._sent

    def has_urgent(self) -> bool:
        return False

    def take(self, limit: int) -> list[JournalEntry]:
        if not self.has_unsent():
            return []
        first, last = self._sent + 1, min(self._made(), self._sent + limit)
        self._sent, self._sent_at = last, time.monotonic()
        return [JournalEntry(self._name, number, "step", self._step(number)) for number in range(first, last + 1)]

    def put_back(self, entries: list[JournalEntry]) -> None:
        self._sent = self.acknowledged

    def acknowledge(self, numbers: dict[str, int]) -> None:
        self.acknowledged = max(self.acknowledged, numbers.get(self._name, 0))

    def _made(self) -> int:
        return int((time.monotonic() - self._begun) * STEPS_PER_SECOND)

    def _step(self, number: int) -> dict[str, Any]:
        place = {"cursor": number * 64, "samples": 64, "world_size": SLOTS, "generation": 1, "attempt": 1}
        metrics = {name: random.random() for name in METRICS}
        now = time.time()
        return {"step": number, "epoch": 0, **place, "at": now, "progress": None, **metrics, "sent": now}


class SimulatedProbe:
    def facts(self) -> HostFacts:
        return HostFacts("127.0.0.1", 8, SLOTS, 16 * 1024**3, True, handshake=True)

    def devices(self, ranks: list[RankStatus]) -> list[DeviceReading]:
        return [
            DeviceReading(
                *(slot, "virtual GPU (CPU)", True),
                *(round(random.uniform(60, 100), 1), random.randrange(2**30), None),
            )
            for slot in range(SLOTS)
        ]


class SimulatedHost:
    def __init__(self, given: dict[str, Any], broker: redis.Redis, counts: Counts, begun: float) -> None:
        name, job = given["name"], given["job"]
        self.queue = f"host.{name}"
        self.steps = Steps(job, begun)
        self._broker, self._counts = broker, counts
        self._signer = Signer(name, given["key"], boot=1)
        ranks = [RankStatus(job, 1, slot, f"{name}.{slot}.1", 1000 + slot, 1.0, "RUNNING") for slot in range(SLOTS)]
        self._observation = Observation(REVISION, ranks)
        config = ExecutorConfig(Path(), name, "", SLOTS, "127.0.0.1", None)
        self._reporter = Reporter(
            config,
            cast(Any, SimulatedProbe()),
            cast(Any, self.steps),
            observe=lambda: self._observation,
            send=self._send,
            clock=time.time,
        )

    def turn(self) -> None:
        self._reporter.turn()

    def take(self, message: bytes) -> None:
        """Take an acknowledgement, or a whole desired state, which changes nothing."""
        sync = self._signer.opened(_argument(message))
        self.steps.acknowledge(sync.acknowledged)
        self._observation = Observation(REVISION, self._observation.ranks, hosts=sync.hosts)

    def _send(self, report: Report, most_waiting: int) -> Delivery:
        """Send a report as the executor's `_ReportSender` does, without Celery."""
        waiting = cast(int, self._broker.llen(REPORT_QUEUE))
        if waiting >= most_waiting:
            self._counts.refused += 1
            return Delivery(sent=False, waiting=waiting)
        message = task_message(REPORT_TASK, [self._signer.sealed(report)], REPORT_QUEUE)
        self._broker.lpush(REPORT_QUEUE, message)
        self._counts.sent += 1
        self._counts.steps += len(report.entries)
        return Delivery(sent=True, waiting=waiting)


def _argument(message: bytes) -> dict[str, Any]:
    from base64 import b64decode

    body: list[Any] = json.loads(b64decode(json.loads(message)["body"]))
    values: dict[str, Any] = body[0][0]
    return values


def run(given: list[dict[str, Any]], seconds: float) -> dict[str, float]:
    broker = redis.Redis.from_url(redis_url(os.environ["TIDEPOOL_BROKER_URL"]))
    counts, begun = Counts(), time.monotonic()
    # Trainings that began at different times report at different ones.
    hosts = [SimulatedHost(one, broker, counts, begun + number / len(given)) for number, one in enumerate(given)]
    while time.monotonic() < begun + seconds:
        turn_at = time.monotonic()
        for host in hosts:
            host.turn()
        _take_answers(broker, hosts)
        time.sleep(max(0.0, turn_at + _TICK_SECONDS - time.monotonic()))
    used = time.process_time()
    return {**vars(counts), "seconds": time.monotonic() - begun, "cpu": used}


def _take_answers(broker: redis.Redis, hosts: list[SimulatedHost]) -> None:
    waiting = [host for host in hosts if host.steps._sent > host.steps.acknowledged]
    with broker.pipeline(transaction=False) as pipeline:
        for host in waiting:
            pipeline.rpop(host.queue, 10)
        for host, messages in zip(waiting, pipeline.execute(), strict=True):
            for message in messages or ():
                host.take(message)


if __name__ == "__main__":
    print(json.dumps(run(json.loads(Path(sys.argv[1]).read_text()), float(sys.argv[2]))), flush=True)
