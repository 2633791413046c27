"""Return value or error of a function in rank 0, from the files and rows of its job."""

import hashlib
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidepool.client.errors import JobFailed, NotFound, TidepoolError, with_site
from tidepool.client.rows import JobInfo
from tidepool.function_payload import VALUE_FACTS, VALUE_FILE, ValueFacts

__all__ = ["failure_of", "loaded", "value_bytes"]


def value_bytes(job: int, sha256: str | None, fetch: Callable[[str], bytes]) -> bytes | None:
    """Return the pickle, after verifying its digest; None: rank 0 wrote none. fetch: returns the content of a result
    file.

    sha256: as the site has it since the training succeeded; "": there is no value; None: the site has no record, for
    the training succeeded under an earlier release, and the digest beside the value has to do.

    Raises TidepoolError if it was changed after the training's end.
    """
    if sha256 == "":
        return None
    try:
        expected = sha256 or ValueFacts.from_text(fetch(VALUE_FACTS).decode()).sha256
        content = fetch(VALUE_FILE)
    except NotFound:
        if sha256 is None:
            return None
        raise
    if hashlib.sha256(content).hexdigest() != expected:
        raise TidepoolError(f"The value of training {job} was changed after its rank wrote it: run the training again.")
    return content


def loaded(job: int, content: bytes) -> Any:
    """Return the object. Only for the user's own jobs, because unpickling can execute its author's code."""
    try:
        return pickle.loads(content)  # noqa: S301 - the user's own
    except ModuleNotFoundError as error:
        raise TidepoolError(
            f"The value of training {job} needs the module {error.name}, which is not here: install it, or take the "
            "bytes by job.value(raw=True)."
        ) from error


def failure_of(info: JobInfo, ranks: Iterable[Mapping[str, Any]], site: str) -> JobFailed:
    """Return why the job failed: rank and error, and the script's traceback last. ranks: rows of its ranks."""
    error = info.error or {}
    kind, words = str(error.get("kind") or ""), with_site(str(error.get("message") or info.reason.text), site)
    traceback = str(error.get("traceback") or "").strip()
    rank = _failed_rank(info, ranks, kind)
    place = "" if rank is None else f"rank {rank}: "
    shown = f"{kind}: {words}" if kind and not words.startswith(kind) else words
    message = f"Job {info.id} is {info.state}: {place}{shown}" + (f"\n\n{traceback}" if traceback else "")
    return JobFailed(message, job=info.id, state=info.state, traceback=traceback, rank=rank, kind=kind)


def _failed_rank(info: JobInfo, ranks: Iterable[Mapping[str, Any]], kind: str) -> int | None:
    """Return the first rank of the newest attempt that ended by this kind of error."""
    for row in ranks:
        end = (row["exit"] or {}).get("error") or {}
        if row["attempt"] == info.attempt and kind and end.get("kind") == kind and "rank" in end:
            return int(end["rank"])
    return None
