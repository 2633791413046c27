"""Parts of every command: the client of the login, common options, and output."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidepool.client.config import wants_colour
from tidepool.terminal_text import without_commands

if TYPE_CHECKING:
    from tidepool.client.api import Client

__all__ = [
    "STATE_COLOURS",
    "Context",
    "Exit",
    "code_of",
    "columns",
    "facts",
    "job_argument",
    "json_option",
    "listing_options",
    "show_json",
    "show_rows",
    "state_colour",
]

Command = TypeVar("Command", bound=Callable[..., Any])

STATE_COLOURS = {
    "RUNNING": "green", "STARTING": "green", "SUCCEEDED": "blue", "FAILED": "red", "CANCELLED": "bright_black",
    "PENDING": "yellow", "SUSPENDED": "yellow", "PREEMPTING": "magenta", "CANCELLING": "magenta",
}  # fmt: skip


class Exit(IntEnum):
    DONE = 0
    JOB_FAILED = 1
    USAGE = 2
    NOT_LOGGED_IN = 3
    NOT_FOUND = 4
    REFUSED = 5
    UNREACHABLE = 6
    INTERRUPTED = 130


def code_of(error: Exception) -> Exit | None:
    """Return the exit code for an error of the client; None for a bug."""
    from tidepool.client import errors

    codes: dict[type[Exception], Exit] = {
        errors.NotLoggedIn: Exit.NOT_LOGGED_IN,
        errors.NotFound: Exit.NOT_FOUND,
        errors.NotAllowed: Exit.REFUSED,
        errors.Conflict: Exit.REFUSED,
        errors.InvalidRequest: Exit.USAGE,
        errors.Unreachable: Exit.UNREACHABLE,
        errors.JobFailed: Exit.JOB_FAILED,
        errors.TidepoolError: Exit.REFUSED,
    }
    return next((code for kind, code in codes.items() if isinstance(error, kind)), None)


class Context:
    """State of one call of the program."""

    def __init__(self, profile: str | None) -> None:
        self.profile = profile
        self._client: Client | None = None

    @property
    def client(self) -> "Client":
        """The client of the login, created on first use: help and completion need none."""
        if self._client is None:
            from tidepool.client.api import Client

            self._client = Client(profile=self.profile)
        return self._client


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def listing_options(command: Command) -> Command:
    """Add `--json` and `-q` to a command that prints rows."""
    command = click.option("-q", "--quiet", is_flag=True, help="Print only numbers or names.")(command)
    return json_option(command)


class _JobNumber(click.IntRange):
    """Number of a training. Click's own message speaks of an integer range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not the number of a training: `tidepool ps` lists them.", param, ctx)


def job_argument(command: Command, *, many: bool = False) -> Command:
    from tidepool.cli.completion import job_numbers

    kind = {"nargs": -1, "required": True} if many else {}
    name = "jobs" if many else "job"
    return click.argument(name, type=_JobNumber(min=1), metavar="JOB" + ("..." if many else ""),
                          shell_complete=job_numbers, **kind)(command)  # type: ignore[arg-type]  # fmt: skip


def show_json(value: Any) -> None:
    """Print JSON in the REST format: dataclasses as objects, times in ISO 8601."""
    click.echo(json.dumps(value, default=_plain, indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def show_rows(
    rows: Sequence[Any], as_json: bool, quiet: bool, key: Callable[[Any], object], heads: Sequence[str],
    cells: Callable[[Any], Sequence[Any]], *, right: Iterable[int] = (), none: str = "There are none.",
) -> None:  # fmt: skip
    """Print a listing according to its options: JSON, only keys, or columns; `none` if it is empty."""
    if as_json:
        show_json(rows)
    elif quiet:
        for row in rows:
            click.echo(key(row))
    elif rows:
        columns(heads, [cells(row) for row in rows], right=right)
    else:
        click.echo(none, err=True)


def state_colour(state: str) -> str:
    return click.style(state, fg=STATE_COLOURS.get(state)) if sys.stdout.isatty() and wants_colour() else state


def columns(heads: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Iterable[int] = ()) -> None:
    """Print rows below their heads, each column as wide as it needs. right: columns of numbers."""
    texts = [list(heads), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(click.unstyle(row[place])) for row in texts) for place in range(len(heads))]
    aligned = set(right)
    is_shown = sys.stdout.isatty() and wants_colour()
    for number, row in enumerate(texts):
        cells = [_padded(cell, widths[place], place in aligned) for place, cell in enumerate(row)]
        line = "  ".join(cells).rstrip()
        click.echo(click.style(line, bold=True) if number == 0 and is_shown else line)


def _padded(cell: str, width: int, is_right: bool) -> str:
    blanks = " " * (width - len(click.unstyle(cell)))
    return blanks + cell if is_right else cell + blanks


def _text(cell: Any) -> str:
    return "" if cell is None else without_commands(str(cell)).replace("\n", " ")


def facts(values: Mapping[str, Any]) -> None:
    """Print names with values, one per line."""
    width = max(len(name) for name in values)
    for name, value in values.items():
        if value not in (None, ""):
            click.echo(f"{name:<{width}}  {_text(value)}")
