"""Models of what exactly ran: the commit and the command of a job's submission."""

from django.db import models
from django.db.models import Q

from jobs.models.jobs import Job

__all__ = ["JobSource"]


class JobSource(models.Model):
    """Origin of a job's code, and the command that submitted it, as the client told them. Jobs without have no row."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="source")
    #: Address of the repository, without credentials; "": unknown.
    repository = models.CharField(max_length=2000, blank=True, default="")
    #: "": the code is not from a repository, or that had no commit.
    commit = models.CharField(max_length=64, blank=True, default="")
    #: "": no branch was checked out.
    branch = models.CharField(max_length=255, blank=True, default="")
    #: Whether the folder of the code differed from the commit.
    is_dirty = models.BooleanField(default=False)
    #: Difference of the folder from the commit, which `git apply` takes.
    diff = models.TextField(blank=True, default="")
    #: Files that differ and are not in `diff`: [{"path", "why"}].
    left_out = models.JSONField(default=list)
    #: Sentence why a part is missing; "": none is.
    problem = models.CharField(max_length=500, blank=True, default="")
    #: The command as it was typed, with secret words replaced; "": the job was not submitted by a command.
    command = models.TextField(blank=True, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(diff="") | (Q(is_dirty=True) & ~Q(commit="")), name="source_diff_of_commit"
            ),
            models.CheckConstraint(
                condition=~Q(repository="") | ~Q(commit="") | ~Q(branch="") | ~Q(problem="") | ~Q(command=""),
                name="source_says_something",
            ),
        ]

    def __str__(self) -> str:
        return f"source of {self.job_id}"
