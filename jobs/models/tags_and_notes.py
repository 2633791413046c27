"""Tags and notes that users attach to jobs."""

from django.db import models
from django.db.models import Q

from jobs.models.jobs import Job

__all__ = ["JobTag", "Note"]


class JobTag(models.Model):
    """A tag of a job, by which the list can be filtered."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="tags", db_index=False)
    #: Tag as normalized by `jobs.tags.parsed_tags`, in lower case.
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


class Note(models.Model):
    """A version of a job's note, append-only. Pages show the highest number; lower numbers are its history."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="notes")
    #: Version, starting at 1.
    number = models.PositiveIntegerField()
    #: Text in Markdown; "": the note was deleted.
    text = models.TextField(blank=True)
    #: User name of the author.
    author = models.CharField(max_length=150)
    at = models.DateTimeField()

    class Meta:
        ordering = ["job", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="note_once"),
            models.CheckConstraint(condition=Q(number__gte=1), name="note_number"),
        ]
