"""cancel, suspend, resume, keep-gpus, priority, scale, tag, undo, clone."""

from collections.abc import Callable
from functools import partial

import click

from tidepool.cli.context import Context, Exit, code_of, job_argument, json_option, show_json, state_colour
from tidepool.cli.submission_options import key_option
from tidepool.client.errors import TidepoolError
from tidepool.client.rows import JobInfo
from tidepool.client.training import Job

__all__ = ["cancel", "clone", "keep_gpus", "priority", "resume", "scale", "suspend", "tag", "undo"]

_jobs = partial(job_argument, many=True)
_yes = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


@click.command()
@_jobs
@_yes
@json_option
@click.pass_obj
def cancel(context: Context, jobs: tuple[int, ...], yes: bool, as_json: bool) -> int:
    """Stop trainings for good. Their results are kept.

    \b
    tidepool cancel 412
    tidepool cancel -y $(tidepool ps -q --state PENDING)
    """
    return _each(context, jobs, "Cancel", Job.cancel, yes, as_json)


@click.command()
@_jobs
@_yes
@json_option
@click.pass_obj
def suspend(context: Context, jobs: tuple[int, ...], yes: bool, as_json: bool) -> int:
    """Suspend trainings after their current step. They continue there when they are resumed.

    \b
    tidepool suspend 412
    """
    return _each(context, jobs, "Suspend", Job.suspend, yes, as_json)


@click.command("keep-gpus")
@_jobs
@_yes
@json_option
@click.pass_obj
def keep_gpus(context: Context, jobs: tuple[int, ...], yes: bool, as_json: bool) -> int:
    """Keep GPUs that trainings do not use for an hour, after the warning. Three times for each start.

    \b
    tidepool keep-gpus 412
    """
    return _each(context, jobs, "Keep the GPUs of", Job.keep_gpus, yes, as_json)


@click.command()
@_jobs
@_yes
@json_option
@click.pass_obj
def resume(context: Context, jobs: tuple[int, ...], yes: bool, as_json: bool) -> int:
    """Resume suspended trainings: they wait for GPUs again.

    \b
    tidepool resume 412
    """
    return _each(context, jobs, "Resume", Job.resume, yes, as_json)


@click.command()
@click.argument("arguments", nargs=-1, required=True, type=int, metavar="JOB... PRIORITY")
@_yes
@json_option
@click.pass_obj
def priority(context: Context, arguments: tuple[int, ...], yes: bool, as_json: bool) -> int:
    """Change the priority of trainings: 1 to 10,000. Under fair share, twice the priority means twice the GPUs.

    \b
    tidepool priority 412 8000
    tidepool priority 412 413 414 2000
    """
    *jobs, value = arguments
    if not jobs or min(arguments) < 1:
        raise click.UsageError("Give a training and its priority: tidepool priority 412 8000")
    return _each(context, tuple(jobs), f"Give priority {value} to", lambda job: job.set_priority(value), yes, as_json)


@click.command()
@job_argument
@click.option("--max", "max_slots", type=click.IntRange(min=1), metavar="GPUS", help="Largest number of GPUs.")
@click.option(
    "--min",
    "min_slots",
    type=click.IntRange(min=1),
    metavar="GPUS",
    help="Smallest number of GPUs, while the training waits.",
)
@click.option("--time", "max_seconds", type=click.IntRange(min=0), metavar="SECONDS", help="Time limit; 0: none.")
@json_option
@click.pass_obj
def scale(
    context: Context, job: int, max_slots: int | None, min_slots: int | None, max_seconds: int | None, as_json: bool
) -> None:
    """Change the limits of a training: its GPUs, and its time from each start. Elastic trainings resize while they run.

    \b
    tidepool scale 412 --max 2
    """
    if max_slots is None and min_slots is None and max_seconds is None:
        raise click.UsageError("Give --max, --min or --time: tidepool scale 412 --max 4")
    training = context.client.job(job)
    if max_seconds is not None:
        training.set_limit(max_seconds)
    if max_slots is not None or min_slots is not None:
        training.resize(max_slots=max_slots, min_slots=min_slots)
    info = training.info
    if as_json:
        show_json(info)
        return
    if max_seconds is not None:
        limit = f"{max_seconds} s" if max_seconds else "as long as it takes"
        click.echo(f"Training {job} may hold GPUs for {limit} from each start.", err=True)
    if max_slots is not None or min_slots is not None:
        click.echo(f"Training {job} has {info.min_slots} to {info.max_slots} GPUs from now on.", err=True)


@click.command()
@_jobs
@click.option("--add", "-a", multiple=True, metavar="TAG", help="Tag to add.")
@click.option("--remove", "-r", multiple=True, metavar="TAG", help="Tag to remove.")
@json_option
@click.pass_obj
def tag(context: Context, jobs: tuple[int, ...], add: tuple[str, ...], remove: tuple[str, ...], as_json: bool) -> int:
    """Add tags to trainings, or remove them. `tidepool ps --tag` and the list of trainings filter by tags.

    \b
    tidepool tag 412 413 --add baseline
    tidepool tag 412 --remove baseline
    """
    if not (add or remove):
        raise click.UsageError("Give --add or --remove: tidepool tag 412 --add baseline")
    return _each(context, jobs, "Tag", lambda job: job.tag(*add, remove=remove), True, as_json)


@click.command()
@job_argument
@click.option("--event", type=click.IntRange(min=1), help="Number of the event to undo instead of the newest change.")
@json_option
@click.pass_obj
def undo(context: Context, job: int, event: int | None, as_json: bool) -> None:
    """Undo the newest change of a training's priority or limits. Refused if the value has changed again since.

    \b
    tidepool undo 412
    tidepool undo 412 --event 7
    """
    info = context.client.job(job).undo(event)
    if as_json:
        show_json(info)
    else:
        limits = f"{info.min_slots} to {info.max_slots} GPUs"
        click.echo(f"Training {job} has priority {info.priority} and {limits} again.", err=True)


@click.command()
@job_argument
@key_option
@click.option(
    "--exactly",
    is_flag=True,
    help="Run with the versions of Python and all packages that the newest attempt had. What is no longer available is "
    "named.",
)
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Print only the number.")
@click.pass_obj
def clone(context: Context, job: int, key: str | None, exactly: bool, as_json: bool, quiet: bool) -> None:
    """Submit a training again with the same code and options.

    \b
    tidepool clone 412
    tidepool clone 412 --exactly
    """
    copy = context.client.job(job).clone(exactly=exactly, key=key)
    if as_json:
        show_json(copy.info)
    elif quiet:
        click.echo(copy.id)
    else:
        click.echo(f"Training {copy.id}, {copy.info.name}: {copy.url}", err=True)


def _each(
    context: Context, jobs: tuple[int, ...], verb: str, act: Callable[[Job], JobInfo], yes: bool, as_json: bool
) -> int:
    """One that refuses does not hold up the others; the exit code is that of the last one that did."""
    numbers = list(dict.fromkeys(jobs))
    if len(numbers) > 1 and not yes:
        click.confirm(f"{verb} {len(numbers)} trainings: {', '.join(map(str, numbers))}?", abort=True, err=True)
    code: int = Exit.DONE
    changed: list[JobInfo] = []
    for number in numbers:
        try:
            info = act(context.client.job(number))
        except TidepoolError as error:
            found = code_of(error) or Exit.REFUSED
            if found in (Exit.NOT_LOGGED_IN, Exit.UNREACHABLE):
                raise
            click.echo(f"tidepool: {number}: {error}", err=True)
            code = found
        else:
            changed.append(info)
            if not as_json:
                click.echo(f"{number}  {state_colour(info.state)}  {info.reason.text}")
    if as_json:
        show_json(changed)
    return code
