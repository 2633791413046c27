"""Kinds of alerts, and kinds of channels that carry them."""

from django.db.models import TextChoices

__all__ = ["DEFAULT_MINUTES", "ChannelKind", "Kind"]


class Kind(TextChoices):
    FAILED = "training_failed", "A training failed"
    DONE = "training_done", "A training is done"
    WAITS = "training_waits", "A training waits long"
    TAKEN = "gpus_taken", "A training is shrunk, preempted or loses a host"
    LOSS = "loss", "The loss is not a number, rises or is flat"
    IDLE = "gpus_idle", "All GPUs of a training are idle"
    QUOTA = "quota_used", "An instance group uses all of its quota"


class ChannelKind(TextChoices):
    EMAIL = "email", "E-mail"
    SLACK = "slack", "Slack"
    WEBHOOK = "webhook", "Webhook"


#: Default minutes for which a condition must last before an alert; a rule may set another value.
DEFAULT_MINUTES: dict[str, int] = {Kind.WAITS: 30, Kind.IDLE: 15}
