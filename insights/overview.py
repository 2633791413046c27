"""The contents of the overview: everybody's GPUs, and the viewer's own trainings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q

from core.keyset import KeysetPage
from core.live import current_seqs
from core.roles import Asking
from insights.cluster import PoolTotals, page_of_hosts, pool_totals, present_hosts, slots_of_hosts
from jobs.models import Job
from jobs.queries.jobs import visible_jobs
from jobs.states import HOLDING, JobState
from jobs.topics import job_topic
from workers.models import Host
from workers.topics import CLUSTER

__all__ = ["ActiveJob", "ClusterPage", "cluster_page"]

#: Number of the viewer's trainings that are listed; further ones are only counted.
MAX_ACTIVE_JOBS = 30


@dataclass(frozen=True)
class ActiveJob:
    job: Job
    #: Sequence number of the job's topic before the job was read.
    seq: int


@dataclass(frozen=True)
class ClusterPage:
    """The contents of the overview: everybody's GPUs, and the viewer's own trainings."""

    #: Sequence number of the cluster's topic before the hosts were read.
    seq: int
    hosts: Sequence[dict[str, Any]]
    #: The page of hosts that `hosts` shows.
    page: KeysetPage[Host]
    #: Sums over all hosts.
    totals: PoolTotals
    running_count: int
    waiting_count: int
    #: The viewer's trainings that hold GPUs, then the waiting ones in the order of the queue.
    active: Sequence[ActiveJob]
    #: Number of the viewer's trainings that are not listed.
    more: int

    @property
    def counts_words(self) -> str:
        """Return what the held GPUs do, and why others are not offered; "" if all are free."""
        counts = self.totals.counts
        shown = {"training": "training", "vacating": "starting or releasing"} if counts["held"] else {}
        kept = {"silent": "without a report", "draining": "draining", "offline": "offline"}
        texts = [f"{counts[name]} {words}" for name, words in shown.items()]
        return ", ".join([*texts, *(f"{counts[name]} {words}" for name, words in kept.items() if counts[name])])

    @property
    def utilisation_words(self) -> str:
        mean = self.totals.utilisation_percent
        return "–" if mean is None else f"{mean:.0f} %"


def cluster_page(user: Asking, given: Mapping[str, str]) -> ClusterPage:
    """Return the contents of the overview. given: what the address selects of the hosts."""
    # Read the sequence numbers first: a change published meanwhile arrives again and has no further effect.
    seq = current_seqs([CLUSTER])[CLUSTER]
    queue = Job.objects.filter(finished_at__isnull=True, owner=user.pk).order_by("-priority", "submitted_at", "id")
    states = dict(queue.values_list("pk", "state"))
    numbers = sorted(states, key=lambda number: states[number] not in HOLDING)[:MAX_ACTIVE_JOBS]
    seqs = current_seqs(map(job_topic, numbers))
    rows = {job.pk: job for job in visible_jobs(user).filter(pk__in=numbers)}
    active = [ActiveJob(rows[number], seqs[job_topic(number)]) for number in numbers if number in rows]
    counts = Job.objects.filter(finished_at__isnull=True).aggregate(
        running=Count("pk", filter=Q(state=JobState.RUNNING)), waiting=Count("pk", filter=Q(state=JobState.PENDING))
    )
    page = page_of_hosts(present_hosts(), given)
    return ClusterPage(
        seq=seq,
        hosts=slots_of_hosts(user, page.rows),
        page=page,
        totals=pool_totals(),
        running_count=counts["running"],
        waiting_count=counts["waiting"],
        active=active,
        more=len(states) - len(numbers),
    )
