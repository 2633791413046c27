"""Jobs that a user chose by their numbers."""

from collections.abc import Iterable

from core.errors import field_error
from core.roles import Asking
from jobs.models import Job
from jobs.queries.jobs import unknown_job, visible_jobs

__all__ = ["MIN_CHOSEN", "chosen_jobs", "job_numbers", "jobs_in_order"]

MIN_CHOSEN = 2


def job_numbers(text: str) -> list[int]:
    """Return the job ids in `1,2,3` without duplicates; other words are ignored."""
    words = [word.strip() for word in text.split(",")]
    return list(dict.fromkeys(int(word) for word in words if word.isascii() and word.isdecimal() and len(word) < 19))


def chosen_jobs(user: Asking, text: str, *, most: int) -> list[Job]:
    """Return the jobs in `1,2,3`, in this order. Raises UserError for too few or many, NotFound for unknown ones."""
    numbers = job_numbers(text)
    if not MIN_CHOSEN <= len(numbers) <= most:
        raise field_error("jobs", f"Give {MIN_CHOSEN} to {most} trainings as 1,2,3, not {len(numbers)}.")
    return jobs_in_order(user, numbers)


def jobs_in_order(user: Asking, numbers: Iterable[int]) -> list[Job]:
    """Return the jobs in this order. Raises NotFound for the first one that the user may not see."""
    numbers = list(numbers)
    found = {job.pk: job for job in visible_jobs(user).filter(pk__in=numbers)}
    for number in numbers:
        if number not in found:
            raise unknown_job(number)
    return [found[number] for number in numbers]
