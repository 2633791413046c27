"""Models of what exactly ran: commit and command of a job's submission, and the software of each attempt."""

from django.db import models
from django.db.models import Q

from jobs.models.jobs import Job

__all__ = ["AttemptSoftware", "Environment", "JobSource"]


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


class Environment(models.Model):
    """A list of Python's version and the versions of all distributions. Equal lists share a row."""

    #: sha256 of the other columns, see `jobs.control.software`.
    digest = models.CharField(max_length=64, unique=True)
    python = models.CharField(max_length=200)
    #: Platform, such as `linux-x86_64`.
    platform = models.CharField(max_length=200)
    #: Distribution -> version.
    packages = models.JSONField()
    #: Distribution that is not from an index -> address that it was installed from.
    origins = models.JSONField(default=dict)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(digest="") & ~Q(python=""), name="environment_is_named"),
        ]

    def __str__(self) -> str:
        return self.digest[:12]


class AttemptSoftware(models.Model):
    """The software of a job's ranks on a host in one attempt, as the host's executor reported it."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="software")
    attempt = models.PositiveIntegerField()
    host = models.CharField(max_length=64)
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="used_by")
    #: Version of CUDA that torch is built for, of its NCCL, and of the GPUs' driver; "": there is none.
    cuda = models.CharField(max_length=200, blank=True, default="")
    nccl = models.CharField(max_length=200, blank=True, default="")
    driver = models.CharField(max_length=200, blank=True, default="")

    class Meta:
        ordering = ["job", "attempt", "host"]
        constraints = [
            models.UniqueConstraint(fields=["job", "attempt", "host"], name="software_of_host_once"),
            models.CheckConstraint(condition=Q(attempt__gte=1), name="software_of_attempt"),
        ]
