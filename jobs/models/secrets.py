"""Secrets of users and instance groups, and the trainings that get them."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from jobs.models.jobs import InstanceGroup, Job

__all__ = ["Secret", "SecretUse"]


class Secret(models.Model):
    """A value that trainings get under a name, and that nobody is shown again: of a user or of an instance group."""

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="training_secrets"
    )
    group = models.ForeignKey(
        InstanceGroup, null=True, blank=True, on_delete=models.PROTECT, related_name="training_secrets"
    )
    #: Variable of the environment that a training gets.
    name = models.CharField(max_length=128)
    #: The value, encrypted by `core.sealing`.
    sealed = models.TextField()
    #: Whether the variable has the path of a file with the value.
    is_file = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    #: Time at which the value was last entered.
    changed_at = models.DateTimeField()

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(owner=None, group__isnull=False) | Q(owner__isnull=False, group=None),
                name="secret_of_user_or_group",
            ),
            models.CheckConstraint(condition=~Q(name="") & ~Q(sealed=""), name="secret_has_name_and_value"),
            models.UniqueConstraint(fields=["owner", "name"], name="one_secret_of_a_name_and_user"),
            models.UniqueConstraint(fields=["group", "name"], name="one_secret_of_a_name_and_group"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})"

    @property
    def row_name(self) -> str:
        """Name of the row that the sealed value is bound to."""
        of = f"user {self.owner_id}" if self.owner_id else f"group {self.group_id}"
        return f"secret {self.name} of {of}"


class SecretUse(models.Model):
    """A secret that a training gets at each start. Once a training is over, its secrets can be deleted."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="secret_uses")
    secret = models.ForeignKey(Secret, on_delete=models.CASCADE, related_name="uses")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "secret"], name="secret_of_job_once")]

    def __str__(self) -> str:
        return f"secret {self.secret_id} of training {self.job_id}"
