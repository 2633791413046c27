"""flame, trace."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import click

from tidepool.cli.context import Context, columns, job_argument, json_option, show_json
from tidepool.client.errors import TidepoolError
from tidepool.client.recording_rows import Flame, StepTrace

__all__ = ["flame", "trace"]

_PAUSE_SECONDS = 0.5
#: Number of functions that are printed.
_MOST_FUNCTIONS = 20

Row = TypeVar("Row", Flame, StepTrace)
_rank_option = click.option("--rank", type=click.IntRange(0), default=0, show_default=True, help="Rank to record.")
_last_option = click.option("--last", is_flag=True, help="Show what was recorded last, and record nothing.")


def _out_option(what: str) -> Callable[..., Callable[..., None]]:
    return click.option(
        "-o", "--out", type=click.Path(dir_okay=False, path_type=Path), default=None, help=f"File for {what}."
    )


@dataclass(frozen=True)
class _Kind(Generic[Row]):
    """A kind of recording, and how it is printed."""

    name: str
    command: str
    #: Program that opens its file.
    opener: str
    heads: Sequence[str]
    #: Columns that are aligned to the right.
    right: range
    rows: Callable[[Row], list[list[str]]]

    def show(self, found: Row, job: int, save: Callable[[Path], object], out: Path | None, as_json: bool) -> None:
        """Print the recording, and write its file. Raises TidepoolError if there is none, for the site's cause."""
        again = f"`tidepool {self.command} {job}` records"
        if found.state == "failed":
            raise TidepoolError(f"{found.text} ({again} it again.)")
        if out is not None:
            save(out)
        if as_json:
            show_json(found)
            return
        click.echo(found.text or f"No {self.name} was recorded: {again} one.", err=not found.text)
        if rows := self.rows(found):
            click.echo()
            columns(self.heads, rows, right=self.right)
        if out is not None:
            click.echo(f"\nWritten to {out}: {self.opener} opens it, and sends it nowhere.", err=True)


def _functions(found: Flame) -> list[list[str]]:
    return [
        [each.name, f"{each.self_share:.1%}", f"{each.total_share:.1%}", each.place]
        for each in found.functions[:_MOST_FUNCTIONS]
    ]


def _operators(found: StepTrace) -> list[list[str]]:
    return [
        [
            "GPU" if each.is_on_gpu else "CPU",
            str(each.calls),
            f"{each.milliseconds:.1f} ms",
            f"{each.share:.1%}",
            each.name,
        ]
        for each in found.operators
    ]


_FLAMES = _Kind(
    "flame graph",
    "flame",
    "https://www.speedscope.app",
    ["FUNCTION", "ITSELF", "WITH CALLEES", "PLACE"],
    range(1, 3),
    _functions,
)
_TRACES = _Kind(
    "trace",
    "trace",
    "Perfetto (https://ui.perfetto.dev)",
    ["WHERE", "CALLS", "TIME", "SHARE", "OPERATOR"],
    range(1, 4),
    _operators,
)


@click.command()
@job_argument
@_rank_option
@click.option("--seconds", type=click.IntRange(5, 60), default=10, show_default=True, help="Time of recording.")
@click.option("--native", is_flag=True, help="Record functions of C, too, by py-spy, where it is installed.")
@_out_option("the flame graph, in speedscope's form")
@_last_option
@json_option
@click.pass_obj
def flame(
    context: Context, job: int, rank: int, seconds: int, native: bool, out: Path | None, last: bool, as_json: bool
) -> None:
    """Record a flame graph of a rank: the functions in which it is, 50 times a second, or 10 with those of C.

    The training goes on meanwhile.

    \b
    tidepool flame 412
    tidepool flame 412 --rank 3 --seconds 30 --out rank3.speedscope.json
    """
    handle = context.client.job(job)
    if last:
        found = handle.flame()
    else:
        found = _awaited(handle.record_flame(rank=rank, seconds=seconds, native=native), handle.flame)
    _FLAMES.show(found, job, handle.save_flame, out, as_json)


@click.command()
@job_argument
@_rank_option
@click.option("--steps", type=click.IntRange(1, 20), default=3, show_default=True, help="Optimizer steps to record.")
@_out_option("the trace")
@_last_option
@json_option
@click.pass_obj
def trace(context: Context, job: int, rank: int, steps: int, out: Path | None, last: bool, as_json: bool) -> None:
    """Record the operators of a rank's next optimizer steps by torch.profiler.

    The steps are slower while they are recorded. It ends by itself.

    \b
    tidepool trace 412
    tidepool trace 412 --rank 3 --steps 5 --out rank3.trace.json.gz
    """
    handle = context.client.job(job)
    found = handle.trace() if last else _awaited(handle.record_trace(rank=rank, steps=steps), handle.trace)
    _TRACES.show(found, job, handle.save_trace, out, as_json)


def _awaited(found: Row, look: Callable[[], Row]) -> Row:
    """Return the answer once it is there. The site says so at the latest when the rank's time is over."""
    while found.state == "recording":
        time.sleep(_PAUSE_SECONDS)
        found = look()
    return found
