"""why-slow, stacks."""

import time

import click

from tidepool.cli.context import Context, columns, job_argument, json_option, show_json
from tidepool.client.recording_rows import StackGroup, Stacks
from tidepool.client.slow_rows import RankUse
from tidepool.client.training import Job
from tidepool.units import size_words

__all__ = ["stacks", "why_slow"]

#: Seconds for all hosts, and between two questions.
_PATIENCE_SECONDS, _PAUSE_SECONDS = 10.0, 0.2
#: Largest number of ranks that get a column.
_MOST_RANKS = 8
#: Largest number of ranks that get a line.
_MOST_LINES = 64


@click.command()
@job_argument
@json_option
@click.pass_obj
def why_slow(context: Context, job: int, as_json: bool) -> None:
    """Divide the time of a training by cause, for all ranks and for each, and say what would make it faster.

    \b
    tidepool why-slow 412
    tidepool why-slow 412 --json | jq .shares
    """
    found = context.client.job(job).why_slow()
    if as_json:
        show_json(found)
        return
    click.echo(found.text)
    if not found.shares:
        _print_processes(found.process_ranks)
        return
    ranks = [rank for rank in found.ranks if rank.rank is not None]
    heads = ["PART", "NOW", "ALL", *(f"RANK {rank.rank}" for rank in ranks[:_MOST_RANKS])]
    rows = [
        [
            part,
            *(
                f"{shares.get(part, 0.0):.1%}"
                for shares in (found.recent, found.shares, *(rank.shares for rank in ranks[:_MOST_RANKS]))
            ),
        ]
        for part in sorted(found.shares, key=lambda part: -found.shares[part])
    ]
    click.echo()
    columns(heads, rows, right=range(1, len(heads)))
    if found.advice:
        click.echo("\nWhat would make it faster:")
        for advice in found.advice:
            click.echo(f"  {advice.text}")
    if found.cores:
        click.echo(f"\n{found.cores}")
    if found.memory:
        click.echo("\n" + " ".join(filter(None, (found.memory, found.memory_warning))))
    if found.outcomes:
        click.echo("\nWhat came of earlier advice:")
        for outcome in found.outcomes:
            click.echo(f"  {outcome.text}")
    if found.processes:
        click.echo(f"\n{found.processes}")
        _print_processes(found.process_ranks)


def _print_processes(uses: tuple[RankUse, ...]) -> None:
    """Print what the processes of each rank use of their host."""
    if not uses:
        return
    heads = ["RANK", "HOST", "CORES", "DISK READ", "DISK WRITTEN", "RECEIVED", "SENT", "GPU"]
    rows = [
        [
            "-" if use.rank is None else str(use.rank),
            use.host,
            "-" if use.cores is None else f"{use.cores:.1f}",
            *(
                "-" if rate is None else f"{size_words(rate)}/s"
                for rate in (use.read_rate, use.written_rate, use.received_rate, use.sent_rate)
            ),
            "-" if use.gpu_busy is None else f"{use.gpu_busy:.0%}",
        ]
        for use in uses[:_MOST_LINES]
    ]
    click.echo()
    columns(heads, rows, right=range(2, len(heads)))
    if len(uses) > _MOST_LINES:
        click.echo(f"... and {len(uses) - _MOST_LINES} more ranks: --json lists all")


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
