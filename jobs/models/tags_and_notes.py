"""What people write on a job: its tags and its note."""

from django.db import models
from django.db.models import Q

from jobs.models.jobs import Job

__all__ = ["JobTag", "Note"]


class JobTag(models.Model):
    """One tag of a job: a word that the list is filtered by."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="tags", db_index=False)
    #: As `jobs.tags.parsed_tags` writes it: without large letters.
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
    """One text of a job's note, append-only: the one with the highest number is shown, the others are its history."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="notes")
    #: From 1 on.
    number = models.PositiveIntegerField()
    #: Markdown; "": the note was taken away.
    text = models.TextField(blank=True)
    #: User name.
    author = models.CharField(max_length=150)
    at = models.DateTimeField()

    class Meta:
        ordering = ["job", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="note_once"),
            models.CheckConstraint(condition=Q(number__gte=1), name="note_number"),
        ]
