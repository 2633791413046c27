"""What has filled the memory of this process's GPU, for the record of its end by a lack of memory."""

from typing import Final

__all__ = ["memory_record", "note_shortage"]

#: Name of torch's error about a GPU without memory.
_GPU_IS_FULL: Final = "OutOfMemoryError"

#: Sentences on the newest lack of memory; "": there was none.
_words = ""


def note_shortage(words: str) -> None:
    """Remember sentences on what has filled the GPU's memory."""
    global _words
    _words = words


def memory_record(kind: str) -> dict[str, str]:
    """Return the part about memory of the record of an error of this kind; {}: there is nothing to say."""
    return {"memory": _words} if _words and kind == _GPU_IS_FULL else {}
