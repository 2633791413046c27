"""Kinds of alerts, and kinds of channels that carry them."""

from django.db.models import TextChoices

__all__ = ["DEFAULT_MINUTES", "NOT_OF_TRIALS", "OF_STUDIES", "ChannelKind", "Kind"]


class Kind(TextChoices):
    FAILED = "training_failed", "A training failed"
    DONE = "training_done", "A training is done"
    WAITS = "training_waits", "A training waits long"
    TAKEN = "gpus_taken", "A training is shrunk, preempted or loses a host"
    LOSS = "loss", "The loss is not a number, rises or is flat"
    IDLE = "gpus_idle", "All GPUs of a training are idle"
    STUDY_DONE = "study_done", "A study is done"
    STUDY_PAUSED = "study_paused", "A study pauses by itself"
    QUOTA = "quota_used", "An instance group uses all of its quota"


class ChannelKind(TextChoices):
    EMAIL = "email", "E-mail"
    SLACK = "slack", "Slack"
    WEBHOOK = "webhook", "Webhook"


#: Kinds of alerts about studies.
OF_STUDIES = frozenset({Kind.STUDY_DONE, Kind.STUDY_PAUSED})
#: Kinds that are no alerts about a trial: trials end and change size all the time while their study searches.
NOT_OF_TRIALS = frozenset({Kind.DONE, Kind.TAKEN})
#: Default minutes for which a condition must last before an alert; a rule may set another value.
DEFAULT_MINUTES: dict[str, int] = {Kind.WAITS: 30, Kind.IDLE: 15}
