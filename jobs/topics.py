"""Topics of live events about jobs and instance groups, and who may subscribe to them."""

from django.db.models import CharField, OuterRef, Subquery, Value
from django.db.models.functions import Cast, Coalesce, Concat

from core.models import Topic

__all__ = ["GROUPS", "JOBS", "JOB_PREFIX", "job_of_topic", "job_topic", "jobs_topic_of", "newest_of_job"]

#: Topic for every user: instance group number -> revision, None once the group is deleted.
GROUPS = "groups"
#: Topic for staff: the number of each new job. Other users subscribe to `jobs_topic_of`.
JOBS = "jobs"
#: A job's topic is the prefix and the number of the job.
JOB_PREFIX = "job."


def job_topic(job: int) -> str:
    return f"{JOB_PREFIX}{job}"


def job_of_topic(topic: str) -> int | None:
    """Return the number of the topic's job; None for other topics."""
    number = topic.removeprefix(JOB_PREFIX)
    is_job = number.isascii() and number.isdecimal() and len(number) < 19 and topic == job_topic(int(number))
    return int(number) if is_job else None


def jobs_topic_of(user: int) -> str:
    """Return the topic of one user's new jobs, by number."""
    return f"{JOBS}.{user}"


def newest_of_job() -> Coalesce:
    """Return the newest sequence number of each job's topic, as a column of a query of jobs."""
    topic = Topic.objects.filter(name=Concat(Value(JOB_PREFIX), Cast(OuterRef("pk"), CharField())))
    return Coalesce(Subquery(topic.values("seq")), 0)
