"""stacks."""

import time

import click

from tidepool.cli.context import Context, job_argument, json_option, show_json
from tidepool.client.rows import StackGroup, Stacks
from tidepool.client.training import Job

__all__ = ["stacks"]

#: Seconds for all hosts, and between two questions.
_PATIENCE_SECONDS, _PAUSE_SECONDS = 10.0, 0.2


@click.command()
@job_argument
@click.option("--last", is_flag=True, help="Show those that were taken last, and take none.")
@click.option("--threads", is_flag=True, help="Print all threads of all processes.")
@json_option
@click.pass_obj
def stacks(context: Context, job: int, last: bool, threads: bool, as_json: bool) -> None:
    """Show where each rank of a training is: the function, and the line of its script, also of ranks that hang.

    Equal stacks are shown once. The training goes on meanwhile.

    \b
    tidepool stacks 412
    tidepool stacks 412 --threads
    tidepool stacks 412 --json | jq .text
    """
    handle = context.client.job(job)
    found = handle.stacks() if last else _taken(handle)
    if as_json:
        show_json(found)
        return
    if found.state == "none" and not found.stalled:
        click.echo(f"No stacks were taken: `tidepool stacks {job}` takes them.", err=True)
    if found.text:
        click.echo(found.text)
    if threads:
        _print_threads(found)
    else:
        _print_groups(found.groups)
    if found.stalled:
        click.echo(f"\nWhen attempt {found.stalled.attempt} made no step: {found.stalled.text}")
        _print_groups(found.stalled.groups)


def _taken(handle: Job) -> Stacks:
    found = handle.take_stacks()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while found.state == "taking" and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        found = handle.stacks()
    return found


def _print_groups(groups: tuple[StackGroup, ...]) -> None:
    for group in groups:
        click.echo(f"\n{'rank' if len(group.ranks) == 1 else 'ranks'} {', '.join(group.ranks)}: {group.text}")
        for frame in group.stack:
            click.echo(f"  {frame}")


def _print_threads(found: Stacks) -> None:
    for process in found.processes:
        rank = process.member_id if process.rank is None else process.rank
        what = f"process {process.pid}, started by rank {rank}" if process.is_worker else f"rank {rank}"
        click.echo(f"\n{what} on {process.host}: {process.text or process.state}")
        for number, frames in enumerate(process.threads):
            click.echo("  main thread" if number == 0 else "  thread")
            for frame in frames:
                click.echo(f"    {frame}")
