"""Actions on the curves of a plain script: its owner may set the pattern that parses its logs."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from django.db import transaction
from tidepool.protocol import ObservedStep

from core.audit.entries import Audited, audit_all
from core.errors import Conflict
from jobs.actions.submission_checks import Problems, check_pattern
from jobs.control.metrics import store_read_again
from jobs.control.observed_curves import set_log_pattern
from jobs.control.transition import lock_job
from jobs.files.job_folder import job_folder
from jobs.files.logs import STREAMS, first_rank_logs, read_log
from jobs.models import Job
from jobs.options import OPTIONS
from jobs.states import TERMINAL
from workers.executor.curves.growing_files import complete_lines
from workers.executor.curves.log_parser import LineReader
from workers.executor.curves.pattern import compiled
from workers.executor.curves.reader import read_again

__all__ = ["PATTERN_HELP", "change_log_pattern", "try_log_pattern"]

PATTERN_HELP: Final = OPTIONS["log_pattern"].help_with("Empty")

_SHOWN_LINES = 20


def change_log_pattern(job_id: int, pattern: str, actor: str) -> Job:
    """Parse the logs again with this pattern; "": with the default patterns. Their curves start anew.

    Logs of a finished job are parsed here at once, those of other jobs by their executor.
    """
    job = Job.objects.select_related("run", "owner", "model__model").get(pk=job_id)
    _check(job, pattern)
    # Before the row is locked: parsing may take seconds.
    steps = _read_again(job, pattern) if job.state in TERMINAL else None
    with transaction.atomic():
        job = lock_job(job_id)
        before, is_over = job.log_pattern, job.state in TERMINAL
        if is_over and steps is None:
            raise Conflict("The training has just ended: submit the pattern again, and its log is parsed again.")
        job = store_read_again(job_id, pattern, steps or ()) if is_over else set_log_pattern(job_id, pattern)
        if actor != job.owner.get_username() and pattern != before:
            values = ({"log_pattern": before}, {"log_pattern": pattern})
            audit_all(actor, "changed", "job", [Audited(job.pk, job.name, *values)])
    return job


def _read_again(job: Job, pattern: str) -> list[ObservedStep]:
    """Parse the logs of each attempt's rank 0 with the pattern."""
    assert job.finished_at is not None
    folder, logs = job_folder(job), [log for stream in STREAMS for log in first_rank_logs(job, stream)]
    steps: list[ObservedStep] = []
    for attempt in sorted({log.attempt for log in logs}):
        top = folder.attempt(attempt)
        places = [(log.path.relative_to(top).as_posix(), log.stream) for log in logs if log.attempt == attempt]
        revision, moment = job.log_pattern_revision + 1, job.finished_at.timestamp()
        steps += read_again(top, folder.code, places, pattern, revision, moment)
    return steps


def try_log_pattern(job: Job, pattern: str) -> list[dict[str, Any]]:
    """Apply the pattern to the last lines of rank 0's logs: `{line, step, epoch, metrics}`, the newest last."""
    _check(job, pattern)
    found = [each for stream in STREAMS for each in _read(read_log(job, "", stream, None).text, pattern)]
    return found[-_SHOWN_LINES:]


def _read(text: str, pattern: str) -> Iterator[dict[str, Any]]:
    reader, expression = LineReader(), compiled(pattern) if pattern else None
    lines, _ = complete_lines(text.encode(), is_last=True, most=10_000)
    for line in _last(lines):
        if point := reader.point(line, expression):
            yield {"line": line[:200], "step": point.step, "epoch": point.epoch, "metrics": point.metrics}


def _last(lines: list[str]) -> Iterable[str]:
    return lines[-200:]


def _check(job: Job, pattern: str) -> None:
    problems = Problems()
    if job.elastic:
        raise Conflict("The script has a session, which reports its metrics: its log is not parsed.")
    check_pattern(problems, "pattern", pattern)
    problems.raise_if_any()
