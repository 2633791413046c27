"""describe, why, logs, events, metrics."""

from collections import deque
from collections.abc import Iterable

import click

from tidepool.cli.context import Context, columns, facts, job_argument, json_option, show_json, state_colour
from tidepool.cli.follow import follow
from tidepool.cli.texts import ago, duration, expected, share
from tidepool.client.errors import NotFound, with_site
from tidepool.client.rows import Remedy
from tidepool.terminal_text import without_commands

__all__ = ["describe", "events", "freeze", "logs", "metrics", "why"]


@click.command()
@job_argument
@json_option
@click.pass_obj
def describe(context: Context, job: int, as_json: bool) -> None:
    """Show everything about one training.

    \b
    tidepool describe 412
    tidepool describe 412 --json | jq .final_metrics
    """
    handle = context.client.job(job)
    info = handle.refresh()
    if as_json:
        show_json(info)
        return
    facts({
        "training": f"{info.id}  {info.name}",
        "page": handle.url,
        "owner": info.owner,
        "state": state_colour(info.state),
        "because": info.reason.text,
        "GPUs": f"{info.slots} of {info.min_slots} to {info.max_slots}",
        "priority": info.priority,
        "group": info.instance_group,
        "tags": " ".join(info.tags) or None,
        "queue position": info.queue_position,
        "starts": expected(info.expected_start),
        "model": info.model,
        "dataset": info.dataset,
        "step": f"{info.step} (epoch {info.epoch})" if info.step else None,
        "done": share(info.progress),
        "attempt": info.attempt,
        "submitted": f"{ago(info.submitted_at)} ago",
        "ran for": duration((info.finished_at - info.started_at).total_seconds())
        if info.started_at and info.finished_at else None,
        **{f"  {name}": f"{value:.6g}" for name, value in info.final_metrics.items() if isinstance(value, int | float)},
    })  # fmt: skip
    if info.error:
        message = with_site(str(info.error.get("message", "")), context.client.url)
        click.echo(without_commands(f"\n{message}\n{info.error.get('traceback', '')}".rstrip()))


@click.command()
@job_argument
@json_option
@click.pass_obj
def freeze(context: Context, job: int, as_json: bool) -> None:
    """Print the packages of a training as a requirements file, with hashes where its requirements have them.

    --json prints what exactly ran: commit, difference, command, and the versions of each attempt.

    \b
    tidepool freeze 412 > requirements.txt
    tidepool freeze 412 --json | jq -r .diff | git apply
    """
    handle = context.client.job(job)
    if as_json:
        show_json(handle.provenance())
    else:
        click.echo(handle.freeze(), nl=False)


@click.command()
@job_argument
@json_option
@click.pass_obj
def why(context: Context, job: int, as_json: bool) -> None:
    """Explain with numbers why a training has its GPUs or none, and what would change that.

    \b
    tidepool why 412
    """
    found = context.client.job(job).why()
    if as_json:
        show_json(found)
        return
    click.echo(found.text)
    if found.terms:
        click.echo()
        facts({term.name: term.value for term in found.terms})
    if found.remedies:
        click.echo("\nWhat would change it:")
        for remedy in found.remedies:
            click.echo(f"  {remedy.text}\n    {_command(job, remedy)}")


def _command(job: int, remedy: Remedy) -> str:
    """Return the command that carries the remedy out."""
    options = {"min_slots": "--min", "max_slots": "--max"}
    if remedy.kind in options:
        return f"tidepool scale {job} {options[remedy.kind]} {remedy.value}"
    return f"tidepool priority {job} {remedy.value}" if remedy.kind == "priority" else f"tidepool cancel {remedy.value}"


@click.command()
@job_argument
@click.option("--follow", "-f", "is_followed", is_flag=True, help="Follow to the end. The exit code is the training's.")
@click.option("--rank", help="Number or member id of the rank. Default: rank 0.")
@click.option("--stderr", is_flag=True, help="Print stderr instead of stdout.")
@click.option("--grep", help="Only lines with this text.")
@click.option("--tail", "-n", type=click.IntRange(min=0), help="Number of last lines to start with.")
@click.pass_obj
def logs(
    context: Context, job: int, is_followed: bool, rank: str | None, stderr: bool, grep: str | None, tail: int | None
) -> int:
    """Print the log of a training's rank 0.

    With --follow, the output continues when the training is preempted or restarts, and after a lost connection. Ctrl-C
    stops the output, not the training.

    \b
    tidepool logs 412
    tidepool logs -f 412
    tidepool logs -f 412 -n 20 --grep loss
    tidepool logs 412 --rank 3 --stderr -n 50
    """
    handle, stream = context.client.job(job), "stderr" if stderr else "stdout"
    if is_followed:
        return follow(handle, rank=rank, stream=stream, tail=tail, grep=grep or "")
    # The last of the lines that have the text, wherever they are.
    lines: Iterable[str] = handle.logs(rank=rank, stream=stream, tail=None if grep else tail)
    if grep:
        lines = (line for line in lines if grep in line)
    for line in lines if tail is None else deque(lines, maxlen=tail):
        click.echo(without_commands(line))
    return 0


@click.command()
@job_argument
@json_option
@click.pass_obj
def events(context: Context, job: int, as_json: bool) -> None:
    """List the events of a training.

    \b
    tidepool events 412
    """
    found = context.client.job(job).events()
    if as_json:
        show_json(found)
        return
    rows = [(f"{event.at:%Y-%m-%d %H:%M:%S}", event.new, event.actor, event.reason.text) for event in found]
    columns(("AT", "STATE", "WHO", "WHAT"), rows)


@click.command()
@job_argument
@click.argument("names", nargs=-1)
@click.option("--every", type=click.IntRange(min=1), help="Only every n-th step.")
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, a line for each point.")
@click.pass_obj
def metrics(context: Context, job: int, names: tuple[str, ...], every: int | None, as_json: bool, as_csv: bool) -> None:
    """Print the newest value of each metric, or all points.

    \b
    tidepool metrics 412
    tidepool metrics 412 loss accuracy --csv > curve.csv
    """
    points = context.client.job(job).points(names or None, every=every)
    if names and not points:
        raise NotFound(f"Training {job} has no {', '.join(names)}: `tidepool metrics {job}` lists what it has.")
    if as_json:
        show_json(points)
    elif as_csv:
        click.echo("name,step,epoch,value,at")
        for point in points:
            value = "" if point.value is None else repr(point.value)
            click.echo(f"{point.name},{point.step},{point.epoch},{value},{point.at.isoformat()}")
    elif not points:
        click.echo(f"Training {job} has no metrics yet.", err=True)
    else:
        newest = {point.name: point for point in points}
        columns(("METRIC", "VALUE", "STEP"),
                [(name, "" if point.value is None else f"{point.value:.6g}", point.step)
                 for name, point in newest.items()], right=(1, 2))  # fmt: skip
