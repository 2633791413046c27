"""Topics of live events about the cluster, and of the newest readings of a host's GPUs."""

__all__ = ["CLUSTER", "is_readings_topic", "readings_topic"]

_READINGS_PREFIX = "readings."

#: Topic of slots and their jobs' ids. Every user may read it, so events never contain names or owners.
CLUSTER = "cluster"


def readings_topic(host: str) -> str:
    """Return the topic of a host's readings: slot -> utilization in percent. Every user may read it."""
    return f"{_READINGS_PREFIX}{host}"


def is_readings_topic(topic: str) -> bool:
    return topic.startswith(_READINGS_PREFIX)
