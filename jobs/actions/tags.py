"""Tags of jobs: added and removed by owners and administrators."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import prefetch_related_objects

from core import live
from core.audit.entries import Audited, audit_all
from core.errors import field_error
from jobs.control.transition import lock_jobs
from jobs.models import Job, JobTag
from jobs.tags import MOST_TAGS, parsed_tags
from jobs.topics import JOBS, job_topic, jobs_topic_of

__all__ = ["TagChange", "change_tags", "change_tags_locked", "check_tags", "parsed_tag_change"]


@dataclass(frozen=True)
class TagChange:
    add: list[str]
    remove: list[str]

    def of(self, job: Job) -> list[str]:
        """Return the job's tags after the change. Adding a present tag or removing a missing one has no effect."""
        return sorted({tag.name for tag in job.tags.all()} - set(self.remove) | set(self.add))


def parsed_tag_change(add: Sequence[str] = (), remove: Sequence[str] = ()) -> TagChange:
    """Return the parsed tags. Raises UserError for invalid tags, or if there is nothing to change."""
    change = TagChange(parsed_tags(add, "add"), parsed_tags(remove, "remove"))
    if not (change.add or change.remove):
        raise field_error("add", "Give a tag to add, or one to remove.")
    return change


@transaction.atomic
def change_tags(job_id: int, wanted: TagChange, actor: str) -> None:
    [job] = lock_jobs([job_id])
    check_tags(job, wanted)
    change_tags_locked([job], wanted, actor)


def check_tags(job: Job, wanted: TagChange) -> Job:
    """Return the job. Raises UserError if it would have too many tags."""
    if len(wanted.of(job)) > MOST_TAGS:
        raise field_error("add", f"A training has at most {MOST_TAGS} tags: remove one of them first.")
    return job


def change_tags_locked(jobs: Sequence[Job], wanted: TagChange, actor: str) -> None:
    """Change the tags of locked jobs that passed `check_tags`, in the number of queries of one."""
    prefetch_related_objects(jobs, "tags")
    before = {job.pk: [tag.name for tag in job.tags.all()] for job in jobs}
    changed = [job for job in jobs if wanted.of(job) != before[job.pk]]
    JobTag.objects.filter(job__in=changed, name__in=set(wanted.remove) - set(wanted.add)).delete()
    new = [JobTag(job=job, name=name) for job in changed for name in wanted.add if name not in before[job.pk]]
    JobTag.objects.bulk_create(new)
    live.publish_all("state", {job_topic(job.pk): {"tags": wanted.of(job)} for job in changed})
    _tell_lists(changed)
    others = [job for job in changed if job.owner.get_username() != actor]
    values = [({"tags": before[job.pk]}, {"tags": wanted.of(job)}) for job in others]
    audit_all(actor, "changed", "job", [Audited(job.pk, job.name, *of) for job, of in zip(others, values, strict=True)])


def _tell_lists(changed: Sequence[Job]) -> None:
    """Notify the lists in which these jobs may appear or disappear."""
    news: dict[str, dict[str, list[int]]] = defaultdict(lambda: {"jobs": []})
    for job in changed:
        for topic in (JOBS, jobs_topic_of(job.owner_id)):
            news[topic]["jobs"].append(job.pk)
    live.publish_all("append", news)
