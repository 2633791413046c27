"""top: the cluster's GPUs with their owners, and a bar for each training; keys cancel and change.

`view` renders the site's response and the marked row; the rest reads keys and draws.
"""

import os
import re
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import click

from tidepool.cli.context import Context, columns
from tidepool.cli.texts import expected, share
from tidepool.client.api import Client
from tidepool.client.config import wants_colour
from tidepool.client.errors import TidepoolError
from tidepool.client.rows import JobInfo

__all__ = ["top"]

_BAR = 24
_INKS = ("cyan", "green", "magenta", "yellow", "blue", "red", "bright_cyan", "bright_green", "bright_magenta")
_KEYS = "up/down choose   c cancel   s suspend or resume   p priority   + - maximum GPUs   q quit"
#: Heads, their sides, and widths; 0: as much as there is.
_COLUMNS: tuple[tuple[str, Literal["left", "right"], int], ...] = (
    ("ID", "right", 6),
    ("NAME", "left", 0),
    ("OWNER", "left", 10),
    ("STATE", "left", 10),
    ("GPUS", "right", 7),
    ("", "left", _BAR + 5),
    ("PRIORITY", "right", 8),
    ("WHY", "left", 0),
)
_KEY = re.compile(rb"\x1b[\[O][A-Z]|.", re.DOTALL)
_NAMED = {b"\r": "enter", b"\n": "enter", b"\x1b": "esc", b"\x7f": "back", b"\x08": "back"}
_ARROWS = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down", b"k": "up", b"j": "down"}


@dataclass(frozen=True)
class Overview:
    """Answer of the site."""

    hosts: list[dict[str, Any]]
    jobs: list[JobInfo]


@dataclass(frozen=True)
class Screen:
    """State of the screen and typed input."""

    #: Number of the training that is marked; 0: the first.
    marked: int = 0
    #: A question that is being answered: "priority", "cancel" or "".
    asking: str = ""
    typed: str = ""
    #: Answer to the last command.
    said: str = ""


@click.command()
@click.option(
    "--interval", default=2.0, show_default=True, type=click.FloatRange(0.5, 60), help="Seconds between updates."
)
@click.option("--once", is_flag=True, help="Print a table once. Default if stdout is not a terminal.")
@click.pass_obj
def top(context: Context, interval: float, once: bool) -> None:
    """Show the cluster live: the GPUs and their trainings, and the progress of each training.

    Keys select a training, cancel, suspend or resume it, and change its priority or its largest number of GPUs.

    \b
    tidepool top
    tidepool top --once
    """
    client = context.client
    if once or not (sys.stdout.isatty() and sys.stdin.isatty()):
        _plain(look(client))
    else:
        _live(client, interval)


def look(client: Client) -> Overview:
    jobs = [job.info for job in client.jobs(state="active", most=200)]
    jobs.sort(key=lambda job: (-job.slots, job.queue_position or 0, job.id))
    return Overview(client.cluster()["hosts"], jobs)


def marked_job(overview: Overview, screen: Screen) -> JobInfo | None:
    found = next((job for job in overview.jobs if job.id == screen.marked), None)
    return found or (overview.jobs[0] if overview.jobs else None)


def after_key(overview: Overview, screen: Screen, key: str) -> tuple[Screen, tuple[str, int, int | None] | None]:
    """Return the screen after a key, and the resulting command: verb, training, value."""
    job = marked_job(overview, screen)
    if screen.asking:
        return _after_answer(screen, job, key)
    if job is None:
        return screen, None
    if key in ("up", "down"):
        numbers = [each.id for each in overview.jobs]
        place = numbers.index(job.id) + (1 if key == "down" else -1)
        return replace(screen, marked=numbers[max(0, min(place, len(numbers) - 1))], said=""), None
    if key in ("c", "p"):
        return replace(screen, marked=job.id, asking="cancel" if key == "c" else "priority", typed="", said=""), None
    if key == "s":
        return screen, ("resume" if job.state == "SUSPENDED" else "suspend", job.id, None)
    if key in ("+", "-") and (most := job.max_slots + (1 if key == "+" else -1)) >= 1:
        return screen, ("scale", job.id, most)
    return screen, None


def _after_answer(screen: Screen, job: JobInfo | None, key: str) -> tuple[Screen, tuple[str, int, int | None] | None]:
    done = replace(screen, asking="", typed="")
    if job is None or key == "esc":
        return done, None
    if screen.asking == "cancel":
        return done, ("cancel", job.id, None) if key == "y" else None
    if key == "enter":
        return done, ("priority", job.id, int(screen.typed)) if screen.typed else None
    if key == "back":
        return replace(screen, typed=screen.typed[:-1]), None
    return (replace(screen, typed=screen.typed + key) if key.isdecimal() and len(screen.typed) < 5 else screen), None


def obey(client: Client, command: tuple[str, int, int | None]) -> str:
    """Execute the command; return the message."""
    what, number, value = command
    job = client.job(number)
    try:
        if what == "priority":
            job.set_priority(value or 0)
        elif what == "scale":
            job.resize(max_slots=value)
        else:
            {"cancel": job.cancel, "suspend": job.suspend, "resume": job.resume}[what]()
    except TidepoolError as error:
        return str(error)
    return f"{number}: {job.info.reason.text}"


def bar(progress: float | None, width: int = _BAR) -> str:
    full = round((progress or 0.0) * width)
    return "█" * full + "·" * (width - full)


def _plain(overview: Overview) -> None:
    slots = [slot for host in overview.hosts for slot in host["slots"]]
    rows = [(slot["key"], slot["status"], slot["job"], slot["owner"]) for slot in slots]
    columns(("GPU", "STATUS", "JOB", "OWNER"), rows, right=(2,))
    click.echo()
    columns(("ID", "NAME", "OWNER", "STATE", "GPUS", "DONE", "PRIORITY", "STARTS"),
            [(job.id, job.name, job.owner, job.state, f"{job.slots}/{job.max_slots}", share(job.progress), job.priority,
              expected(job.expected_start)) for job in overview.jobs], right=(0, 4, 5, 6))  # fmt: skip


def view(overview: Overview, screen: Screen, *, height: int) -> Any:
    """Build the view that rich draws."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    inks = {job.id: _INKS[place % len(_INKS)] for place, job in enumerate(overview.jobs)}
    hosts = Text()
    for host in overview.hosts:
        hosts.append(f"{host['host']:<20} ")
        for slot in host["slots"]:
            number = slot["job"]
            hosts.append(f"[{number or ' ':>4}]", style=inks.get(number, "white" if number else "bright_black"))
        hosts.append("\n")
    table = Table(box=None, expand=True, pad_edge=False, header_style="bold")
    for name, kind, width in _COLUMNS:
        # Columns without a width share the rest of the line.
        table.add_column(
            name, justify=kind, no_wrap=True, overflow="ellipsis", width=width or None, ratio=None if width else 1
        )
    marked = marked_job(overview, screen)
    room = max(3, height - len(overview.hosts) - 6)
    for job in _around(overview.jobs, marked, room):
        table.add_row(
            str(job.id), Text(job.name), job.owner, job.state, f"{job.slots}/{job.max_slots}",
            Text(f"{bar(job.progress)} {share(job.progress)}", style=inks[job.id]), str(job.priority),
            Text(job.reason.text), style="reverse" if job == marked else "",
        )  # fmt: skip
    return Group(hosts, table, Text(""), Text(_bottom(screen, marked)))


def _around(jobs: list[JobInfo], marked: JobInfo | None, room: int) -> list[JobInfo]:
    """Return the rows around the marked one that fit."""
    place = jobs.index(marked) if marked is not None else 0
    start = max(0, min(place - room // 2, len(jobs) - room))
    return jobs[start : start + room]


def _bottom(screen: Screen, marked: JobInfo | None) -> str:
    if screen.asking == "cancel" and marked is not None:
        return f"Cancel {marked.id}, {marked.name}? y: yes, esc: no"
    if screen.asking and marked is not None:
        return f"Priority of {marked.id}, 1 to 10,000: {screen.typed}_   enter: set it, esc: keep it"
    return screen.said or (_KEYS if marked is not None else "No training is running or waiting.   q quit")


def _live(client: Client, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(no_color=not wants_colour())
    screen, overview, looked = Screen(), look(client), time.monotonic()
    with _keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(view(overview, screen, height=console.height), refresh=True)
            key = keys(max(0.0, looked + interval - time.monotonic()))
            if key == "q" and not screen.asking:
                return
            if key:
                screen, command = after_key(overview, screen, key)
                if command is not None:
                    screen = replace(screen, said=obey(client, command))
                    looked = 0.0
            if time.monotonic() - looked >= interval:
                try:
                    overview = look(client)
                except TidepoolError as error:
                    screen = replace(screen, said=str(error))
                looked = time.monotonic()


def keys_of(given: bytes) -> list[str]:
    """Return the names of the keys in a terminal's input, which has several after fast typing."""
    return [
        _ARROWS.get(key) or _NAMED.get(key) or key.decode("ascii", "ignore") or "other" for key in _KEY.findall(given)
    ]


@contextmanager
def _keys() -> Iterator[Any]:
    """Return a function that waits for a key for some seconds, and returns its name or ""."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    waiting: list[str] = []

    def read(seconds: float) -> str:
        if not waiting:
            if not select.select([descriptor], [], [], seconds)[0]:
                return ""
            # Nothing to read: the terminal was closed.
            waiting.extend(keys_of(os.read(descriptor, 1024)) or ["q"])
        return waiting.pop(0)

    tty.setcbreak(descriptor)
    try:
        yield read
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
