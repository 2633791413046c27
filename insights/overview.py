"""The contents of the overview: everybody's GPUs, and the viewer's own trainings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q

from core.live import current_seqs
from core.roles import Asking
from insights.cluster import counts_of, host_slots, mean_utilisation
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
    running_count: int
    waiting_count: int
    #: The viewer's trainings that hold GPUs, then the waiting ones in the order of the queue.
    active: Sequence[ActiveJob]
    #: Number of the viewer's trainings that are not listed.
    more: int

    @property
    def counts(self) -> dict[str, int]:
        return counts_of(self.hosts)

    @property
    def counts_words(self) -> str:
        """Return what the held GPUs do, and why others are not offered; "" if all are free."""
        counts = self.counts
        shown = {"training": "training", "vacating": "starting or releasing"} if counts["held"] else {}
        kept = {"silent": "without a report", "draining": "draining", "offline": "offline"}
        texts = [f"{counts[name]} {words}" for name, words in shown.items()]
        return ", ".join([*texts, *(f"{counts[name]} {words}" for name, words in kept.items() if counts[name])])

    @property
    def capacity(self) -> int:
        """Number of slots of the present hosts."""
        return sum(len(host["slots"]) for host in self.hosts if _is_present(host))

    @property
    def utilisation_words(self) -> str:
        mean = mean_utilisation(self.hosts)
        return "–" if mean is None else f"{mean:.0f} %"


def _is_present(host: dict[str, Any]) -> bool:
    return bool(host["state"] != Host.State.OFFLINE)


def cluster_page(user: Asking) -> ClusterPage:
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
    return ClusterPage(
        seq=seq,
        hosts=[host for host in host_slots(user) if _is_present(host) or any(slot["job"] for slot in host["slots"])],
        running_count=counts["running"],
        waiting_count=counts["waiting"],
        active=active,
        more=len(states) - len(numbers),
    )
