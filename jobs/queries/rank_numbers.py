"""Numbers of a job's ranks, also of an attempt that is over."""

from jobs.models import Job

__all__ = ["rank_numbers"]


def rank_numbers(job: Job, attempt: int) -> dict[str, int]:
    """Return member id -> rank in the attempt's newest generation that has trained; {} if none has."""
    trained = job.generations.filter(attempt=attempt, active_at__isnull=False).order_by("-number").first()
    return {} if trained is None else {member["member_id"]: member["rank"] for member in trained.members}
