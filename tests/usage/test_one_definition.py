"""Overview, Cluster and Usage count the same GPUs as held, training and starting or releasing, in random histories."""

import random
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from core.errors import Conflict
from jobs import actions
from jobs.models import Job
from jobs.states import HOLDING, JobState
from tests.jobs import cluster as fake
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.actions import drain_host, resume_host

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
WINDOW = timedelta(minutes=15)


class Clock:
    """The only clock of the test; it advances only when the test moves it."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def moment(self) -> float:
        self.now += timedelta(milliseconds=1)
        return self.now.timestamp()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timezone, "now", clock)
    monkeypatch.setattr(fake, "moment", clock.moment)
    return clock


@dataclass(frozen=True)
class Counted:
    """GPUs now, and GPU-seconds within the window."""

    held: float
    training: float
    held_seconds: float
    training_seconds: float

    @property
    def changing(self) -> float:
        return self.held - self.training


def area(trace: dict[str, Any], end: datetime) -> float:
    edges = [max(datetime.fromisoformat(at), end - WINDOW) for at in trace["x"]]
    steps = zip(pairwise([*edges, end]), trace["y"], strict=True)
    return float(sum(height * (until - at).total_seconds() for (at, until), height in steps))


def of_chart(figure: dict[str, Any], counts: dict[str, int], end: datetime) -> Counted:
    bands = [trace for trace in figure["data"] if trace["meta"]["kind"] == "band"]
    [held] = [trace for trace in figure["data"] if trace["meta"]["kind"] == "changing"]
    assert held["y"][-1] == counts["held"], "the chart ends at what the tiles show"
    assert sum(band["y"][-1] for band in bands) == counts["training"]
    return Counted(counts["held"], counts["training"], area(held, end), sum(area(band, end) for band in bands))


def counts_of_pages(client: Client, now: datetime) -> dict[str, Counted]:
    """Return the counts that each page shows for the last quarter of an hour."""
    overview = client.get("/").context
    cluster = client.get("/cluster/").context
    figure = client.get("/cluster/trace.json?minutes=15").json()
    usage = client.get("/api/v1/usage/?range=15m&by=host").json()
    times, total = usage["timeline"], usage["total"]
    counts = {name: count for name, _, count in cluster["counts"]}
    assert overview["cluster"].totals.present == counts["held"] + counts["free"] + counts["draining"]
    return {
        "overview": of_chart(figure, overview["cluster"].totals.counts, now),
        "cluster": of_chart(figure, counts, now),
        "usage": Counted(
            times["allocated"][-1], times["training"][-1], total["allocated_seconds"], total["training_seconds"]
        ),
    }


class History:
    """Random sequence of events of a cluster."""

    def __init__(self, cluster: Cluster, submit: Submit, clock: Clock, seed: int) -> None:
        self.cluster, self.submit, self.clock, self.dice = cluster, submit, clock, random.Random(seed)

    def step(self) -> None:
        self.clock.now += timedelta(seconds=self.dice.randint(0, 20))
        self.dice.choice(
            [self.comes, self.turn, self.turn, self.trains, self.trains, self.ends, self.host, self.asks]
        )()

    def comes(self) -> None:
        least = self.dice.randint(1, 4)
        self.submit(min_slots=least, max_slots=self.dice.randint(least, 8), priority=self.dice.randint(1, 9) * 1000)

    def turn(self) -> None:
        self.cluster.turn(self.dice.randint(1, 3))

    def trains(self) -> None:
        for job in self._some(JobState.STARTING, JobState.RUNNING):
            if len(self.cluster.ranks(job)) >= job.run.target_slots:
                self.cluster.train(job, step=job.run.step + 1)

    def ends(self) -> None:
        for job in self._some(JobState.RUNNING):
            self.cluster.finish(job)

    def host(self) -> None:
        with suppress(Conflict):  # the host is in service already, or drained
            self.dice.choice([drain_host, resume_host])(self.dice.choice([*self.cluster.hosts]), "carol")

    def asks(self) -> None:
        for job in self._some(*HOLDING, JobState.PENDING):
            with suppress(Conflict):  # the job is ending already
                if self.dice.random() < 0.5:
                    change = actions.JobChange(priority=self.dice.randint(1, 9) * 1000)
                    actions.change_job(job.pk, change, "alice")
                else:
                    self.dice.choice([actions.cancel, actions.suspend])(job.pk, "alice")

    def _some(self, *states: str) -> list[Job]:
        jobs = list(Job.objects.select_related("run").filter(state__in=states).order_by("pk"))
        return self.dice.sample(jobs, min(1, len(jobs)))


@pytest.mark.parametrize("seed", range(3))
def test_all_pages_count_the_same(
    seed: int, clock: Clock, cluster: Cluster, submit: Submit, carol: User, client: Client
) -> None:
    client.force_login(carol)
    history, in_transition = History(cluster, submit, clock, seed), 0.0
    history.comes()
    history.turn()
    for number in range(36):
        history.step()
        if number % 6 == 5:
            clock.now += timedelta(seconds=1)
            counts = counts_of_pages(client, clock.now)
            usage, cluster_page = counts["usage"], counts["cluster"]
            assert counts["overview"] == cluster_page
            assert (cluster_page.held, cluster_page.training) == (usage.held, usage.training)
            assert cluster_page.held_seconds == pytest.approx(usage.held_seconds, abs=0.1)
            assert cluster_page.training_seconds == pytest.approx(usage.training_seconds, abs=0.1)
            assert 0 <= usage.training <= usage.held
            in_transition += usage.held_seconds - usage.training_seconds
    assert in_transition > 0, "the test must cover GPUs that are held but not training"
