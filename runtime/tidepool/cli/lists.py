"""ps, queue, gpus, capacity."""

from typing import Any

import click

from tidepool.cli.context import (
    STATE_COLOURS,
    Context,
    columns,
    json_option,
    listing_options,
    show_json,
    show_rows,
    state_colour,
)
from tidepool.cli.texts import ago, expected, share
from tidepool.client.rows import JobInfo
from tidepool.units import size_words

__all__ = ["capacity", "gpus", "ps", "queue"]

_HEADS = ("ID", "NAME", "OWNER", "STATE", "GPUS", "STEP", "DONE", "PRIORITY", "AGE")


def _states(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    return [state for state in STATE_COLOURS if state.startswith(begun.upper())]


@click.command()
@click.option("--all", "-a", "everything", is_flag=True, help="Also finished trainings.")
@click.option("--state", help="Only trainings in this state, such as FAILED.", shell_complete=_states)
@click.option("--owner", help="Only trainings of this user, for administrators.")
@click.option("--search", help="Part of the name.")
@click.option("--tag", multiple=True, help="Only trainings with this tag; if repeated, with all of them.")
@click.option(
    "--most", "-n", default=50, show_default=True, type=click.IntRange(min=1), help="Largest number of trainings."
)
@listing_options
@click.pass_obj
def ps(
    context: Context, everything: bool, state: str | None, owner: str | None, search: str | None, tag: tuple[str, ...],
    most: int, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """List active trainings, newest first.

    \b
    tidepool ps
    tidepool ps -a --search digits
    tidepool ps -a --tag baseline
    tidepool ps --state FAILED -n 5 --json
    tidepool cancel $(tidepool ps -q --state PENDING)
    """
    wanted = state.upper() if state else None if everything or search else "active"
    tags = ",".join(tag) or None
    found = context.client.jobs(state=wanted, owner=owner, search=search, tag=tags, most=most)
    rows = [job.info for job in found]
    none = "No trainings. `tidepool ps -a` also lists ended ones, `tidepool run train.py` starts one."
    show_rows(rows, as_json, quiet, _number, _HEADS, _line, right=(0, 4, 5, 6, 7), none=none)


def _number(row: JobInfo) -> int:
    return row.id


def _line(row: JobInfo) -> tuple[Any, ...]:
    gpus = str(row.slots) if row.slots == row.target_slots else f"{row.slots}>{row.target_slots}"
    shown = gpus if not row.is_over else ""
    return (
        row.id, row.name, row.owner, state_colour(row.state), f"{shown}/{row.max_slots}" if shown else "",
        row.step or "", share(row.progress), row.priority, ago(row.submitted_at),
    )  # fmt: skip


@click.command()
@listing_options
@click.pass_obj
def queue(context: Context, as_json: bool, quiet: bool) -> None:
    """List waiting trainings in the order of their queue positions.

    \b
    tidepool queue
    tidepool why $(tidepool queue -q | head -1)
    """
    heads = ("PLACE", "ID", "NAME", "OWNER", "GROUP", "WANTS", "PRIORITY", "STARTS", "WHY")
    rows = context.client.queue()
    show_rows(rows, as_json, quiet, _number, heads, _waiting, right=(0, 1, 6), none="No training is waiting.")


def _waiting(row: JobInfo) -> tuple[Any, ...]:
    wants = f"{row.min_slots} to {row.max_slots}" if row.min_slots != row.max_slots else row.max_slots
    starts = expected(row.expected_start)
    return (
        row.queue_position, row.id, row.name, row.owner, row.instance_group, wants, row.priority, starts,
        row.reason.text,
    )  # fmt: skip


@click.command()
@listing_options
@click.pass_obj
def gpus(context: Context, as_json: bool, quiet: bool) -> None:
    """List the GPUs by host, with the training that holds each and its utilization.

    \b
    tidepool gpus
    tidepool gpus --json | jq '.counts'
    """
    found = context.client.cluster()
    if as_json:
        show_json(found)
        return
    slots = [(host["host"], slot) for host in found["hosts"] for slot in host["slots"]]
    if quiet:
        for _, slot in slots:
            click.echo(slot["key"])
        return
    columns(("GPU", "MODEL", "STATUS", "JOB", "NAME", "OWNER", "BUSY", "MEMORY"), [_slot(slot) for _, slot in slots],
            right=(3, 6))  # fmt: skip
    click.echo(f"{found['counts']['held']} of {len(slots)} GPUs are held.", err=True)


def _slot(slot: dict[str, Any]) -> tuple[Any, ...]:
    busy, used, total = slot["utilisation_percent"], slot["memory_used_bytes"], slot["memory_total_bytes"]
    memory = "" if used is None else size_words(used) + (f" of {size_words(total)}" if total else "")
    busy_text = "" if busy is None else f"{busy:.0f}%"
    return slot["key"], slot["model"], slot["status"], slot["job"], slot["label"], slot["owner"], busy_text, memory


@click.command()
@json_option
@click.pass_obj
def capacity(context: Context, as_json: bool) -> None:
    """List the GPUs that waiting trainings would take now, and further ones that would pay, with the reason.

    Fleets, where the site has some, follow with their newest decision.

    \b
    tidepool capacity
    tidepool capacity --json | jq '.wanted[].hosts'
    """
    found = context.client.connection.get("capacity/wanted/")
    if as_json:
        show_json(found)
        return
    heads = ("RESOURCE GROUP", "MODEL", "OFFERED", "FREE", "WAITING", "WOULD PAY", "HOSTS", "WHY")
    columns(heads, [_wanted(row) for row in found["wanted"]], right=range(2, 7))
    if found["fleets"]:
        click.echo()
        columns(
            ("FLEET", "HOSTS", "COMING", "MOST", "DECISION"), [_fleet(row) for row in found["fleets"]],
            right=range(1, 4),
        )  # fmt: skip


def _wanted(row: dict[str, Any]) -> tuple[Any, ...]:
    hosts = f"{row['hosts']} of {row['slots_per_host']}" if row["hosts"] else ""
    return (
        row["resource_group"], row["kind"], row["offered"], row["free"], row["waiting_slots"], row["paying_slots"],
        hosts, row["why"],
    )  # fmt: skip


def _fleet(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["name"], row["hosts"], row["coming"], row["most"], row["sentence"]
