"""Follow a training's log to its end, showing the reason while it waits."""

import sys
from typing import Any

import click

from tidepool.cli.context import Exit
from tidepool.client.errors import Unreachable
from tidepool.client.rows import JobInfo
from tidepool.client.training import Job
from tidepool.terminal_text import without_commands

__all__ = ["follow", "told_end"]


def follow(
    job: Job,
    *,
    may_cancel: bool = False,
    rank: str | None = None,
    stream: str = "stdout",
    tail: int | None = None,
    grep: str = "",
) -> int:
    """Print its lines until it is over; the exit code is the training's.

    tail: only so many of the lines that are there. grep: only lines with this text.

    may_cancel: Ctrl-C asks whether to cancel it; else it leaves it running.
    """
    try:
        return _follow(job, grep, rank=rank, stream=stream, tail=tail)
    except KeyboardInterrupt:
        if may_cancel and sys.stdin.isatty() and _wants_cancel(job):
            job.cancel()
            click.echo(f"Training {job.id} is being cancelled.", err=True)
        else:
            click.echo(f"Training {job.id} continues. `tidepool logs -f {job.id}`", err=True)
        return Exit.INTERRUPTED
    except Unreachable as error:
        click.echo(f"tidepool: {error}\nTraining {job.id} continues anyway. `tidepool logs -f {job.id}`", err=True)
        return Exit.UNREACHABLE


def _follow(job: Job, grep: str, **which: Any) -> int:
    place: tuple[int, str] | None = None
    shown: set[tuple[int, str]] = set()

    def say_why(info: JobInfo) -> None:
        if info.hold_up and (info.attempt, info.hold_up) not in shown:
            shown.add((info.attempt, info.hold_up))
            click.echo(f"{info.state.lower()}: {info.hold_up}", err=True)

    for line in job.log_lines(follow=True, watch=say_why, **which):
        if place is not None and place != (line.attempt, line.member):
            click.echo(f"--- attempt {line.attempt}, {line.member} ---", err=True)
        place = (line.attempt, line.member)
        if grep in line.text:
            click.echo(without_commands(line.text))
    return told_end(job)


def told_end(job: Job) -> int:
    """Print its end and the reason; return the training's exit code."""
    info = job.info
    if info.state == "SUCCEEDED":
        # Without its figures: what a script printed last may still be on its way.
        click.echo(f"Training {job.id} succeeded.", err=True)
        return Exit.DONE
    error = info.error or {}
    if traceback := error.get("traceback"):
        click.echo(without_commands(traceback.rstrip()), err=True)
    if memory := error.get("memory"):
        click.echo(memory, err=True)
    ended = "failed" if info.state == "FAILED" else f"is {info.state.lower()}"
    why = without_commands(error.get("message") or info.reason.text)
    click.echo(f"Training {job.id} {ended}: {why}", err=True)
    return Exit.JOB_FAILED


def _wants_cancel(job: Job) -> bool:
    try:
        return click.confirm(f"\nCancel training {job.id}? (No leaves it running)", default=False, err=True)
    except click.Abort:
        return False
