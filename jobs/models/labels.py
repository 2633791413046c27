"""What people write on a job: its tags."""

from django.db import models
from django.db.models import Q

from jobs.models.jobs import Job

__all__ = ["JobTag"]


class JobTag(models.Model):
    """One tag of a job: a word that the list is filtered by."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="tags", db_index=False)
    #: As `jobs.tags.parsed_tag` writes it: without large letters.
    name = models.CharField(max_length=40)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["job", "name"], name="job_tag_once"),
            models.CheckConstraint(condition=~Q(name="") & ~Q(name__contains=","), name="job_tag_is_a_word"),
        ]
        indexes = [models.Index(fields=["name", "job"], name="job_tag_by_name")]

    def __str__(self) -> str:
        return self.name
