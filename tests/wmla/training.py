"""A training with ranks, GPUs, readings and logs, as a host reports it."""

from datetime import timedelta

from django.contrib.auth.models import User
from django.utils import timezone

from jobs.files.job_folder import job_folder
from jobs.models import Generation, InstanceGroup, Job, Rank
from jobs.states import GenerationState, JobState, RankState
from tests.factories import JobFactory, SlotClaimFactory, set_job
from wmla.identifiers import identities, submitted
from workers.models import GpuReading, Slot

__all__ = ["driver_id", "end", "rank_on", "reads", "running_job", "sig_id", "write_log"]

MEBIBYTE = 1024**2


def running_job(owner: User, group: InstanceGroup, slots: list[Slot], **values: object) -> Job:
    """Return a job that has run on these GPUs for three minutes."""
    begun = timezone.now() - timedelta(minutes=3)
    job = JobFactory(
        **{
            "owner": owner,
            "instance_group": group,
            "state": JobState.RUNNING,
            "attempt": 1,
            "generation": 1,
            "slots": len(slots),
            "lead_host": slots[0].host.name if slots else "",
            "submitted_at": begun,
            "started_at": begun,
            **values,
        }
    )
    ranks = [rank_on(job, slot, number) for number, slot in enumerate(slots)]
    for slot in slots:
        SlotClaimFactory(slot=slot, job=job)
    Generation.objects.create(
        job=job,
        attempt=1,
        number=1,
        state=GenerationState.ACTIVE,
        world_size=len(slots),
        members=[
            {"member_id": each.member_id, "rank": each.rank, "host": each.host, "slot": each.slot} for each in ranks
        ],
    )
    return job


def rank_on(job: Job, slot: Slot, number: int, attempt: int = 1) -> Rank:
    return Rank.objects.create(
        job=job,
        attempt=attempt,
        member_id=f"{slot.host.name}.{slot.index}.{number}",
        host=slot.host.name,
        slot=slot.index,
        pid=100 + number,
        started_at=1.0,
        state=RankState.RUNNING,
        rank=number,
        generation=1,
    )


def reads(slot: Slot, percent: float | None, mebibytes: int | None) -> None:
    used = None if mebibytes is None else mebibytes * MEBIBYTE
    GpuReading.objects.create(slot=slot, at=timezone.now(), utilisation_percent=percent, memory_used_bytes=used)


def end(job: Job, state: JobState = JobState.SUCCEEDED, code: int = 0) -> None:
    """End it as after its last report: no GPU is held, and ranks have no number any more."""
    now = timezone.now()
    job.claims.update(released_at=now)
    job.ranks.update(rank=None, state=RankState.EXITED, exit={"code": code, "signal": None, "error": None})
    set_job(job, state=state, finished_at=now, slots=0)
    job.refresh_from_db()


def write_log(job: Job, rank: Rank, text: str, stream: str = "stdout") -> None:
    folder = job_folder(job).attempt(rank.attempt) / "log" / f"{rank.member_id}.{rank.host}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / stream).write_text(text)


def driver_id(job: Job) -> str:
    return identities().driver_id(submitted(job))


def sig_id(group: InstanceGroup) -> str:
    return identities().group_id(group.pk)
