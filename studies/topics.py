"""Topics of live events about studies."""

__all__ = ["STUDY_PREFIX", "study_of_topic", "study_topic"]

#: A study's topic is the prefix and the number of the study.
STUDY_PREFIX = "study."


def study_topic(study: int) -> str:
    return f"{STUDY_PREFIX}{study}"


def study_of_topic(topic: str) -> int | None:
    """Return the number of the topic's study; None for other topics."""
    number = topic.removeprefix(STUDY_PREFIX)
    is_study = number.isascii() and number.isdecimal() and len(number) < 19 and topic == study_topic(int(number))
    return int(number) if is_study else None
