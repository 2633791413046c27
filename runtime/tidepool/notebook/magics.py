"""The magics: `%%tidepool` runs a cell on the cluster, `%tidepool` a command of the program."""

import shlex
from argparse import Namespace
from typing import Any

import click
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import MagicArgumentParser
from IPython.display import DisplayHandle

from tidepool.client.api import Client
from tidepool.client.errors import InvalidRequest, JobFailed, TidepoolError, Unreachable
from tidepool.client.functions import submit_function
from tidepool.client.rows import JobInfo
from tidepool.client.training import Job
from tidepool.notebook.names import as_function, names_needed, take_over
from tidepool.notebook_cells import Outcome
from tidepool.requirement_files import split_list
from tidepool.stand_ins import OURS, THEIRS, offer

__all__ = ["CellFailed", "TidepoolMagics", "register"]

_BAR_WIDTH = 16


def register(shell: object) -> None:
    """Add the magics to a notebook's shell, and let pyspark's import line mean this cluster where pyspark is absent."""
    assert isinstance(shell, InteractiveShell)
    shell.register_magics(TidepoolMagics(shell))
    click.echo(f"{OURS}: its TorchDistributor trains on this cluster." if offer() else THEIRS)


class CellFailed(JobFailed):
    """A cell failed on the cluster. The notebook shows the traceback of the cell, and not that of this program."""

    def _render_traceback_(self) -> list[str]:
        return self.message.splitlines()


class _Refused(UsageError):
    """A sentence is enough."""


def _options() -> MagicArgumentParser:
    parser = MagicArgumentParser("%%tidepool", description="Run this cell on the cluster; its names come back.")  # type: ignore[no-untyped-call]
    parser.add_argument("-n", "--slots", type=int, default=1, help="GPUs, and processes that run the cell")
    parser.add_argument("--out", default="", help="names that come back, such as model,history; else all it assigns")
    parser.add_argument("--name", help="of the training")
    parser.add_argument("--dataset", help="whose folder the cell finds in DATA_DIR")
    parser.add_argument("-g", "--instance-group", help="the only one, or the login's")
    parser.add_argument("--priority", type=int, help="1 to 10000")
    parser.add_argument("--secret", action="append", default=[], help="that its processes get as a variable")
    parser.add_argument("--requirements", help="packages that the cluster does not have, such as timm,einops")
    parser.add_argument(
        "--skip-unusable-requirements", action="store_true", help="go on without requirements that cannot be used"
    )
    parser.add_argument("--elastic", action="store_true", help="the cell uses a Session: it grows and shrinks")
    parser.add_argument("--min", type=int, default=1, help="the fewest GPUs of an elastic one")
    parser.add_argument("--detach", action="store_true", help="return at once; `%%tidepool fetch 412` takes its names")
    parser.add_argument("-h", "--help", action="store_true", help="show this")
    return parser


@magics_class
class TidepoolMagics(Magics):
    """Magics of one notebook."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._shell = shell
        self._client: Client | None = None

    @line_cell_magic
    def tidepool(self, line: str, cell: str | None = None) -> Job | None:
        """`%%tidepool -n 2` runs this cell on two GPUs; `%tidepool ps` is the program's `tidepool ps`.

        A cell gets the names of the notebook that it reads, and those come back that it assigns. `%%tidepool --help`
        and `%tidepool --help` list what may be given.
        """
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise _Refused(f"{line!r} cannot be read: {error}.") from None
        if cell is None:
            self._command(words)
            return None
        options = _options()
        given = options.parse_args(words)
        if given.help:
            click.echo(options.format_help())
            return None
        try:
            return self._run(cell, given)
        except TidepoolError as error:
            raise _shown(error) from None

    def _command(self, words: list[str]) -> None:
        if words[:1] == ["fetch"]:
            return self._fetch(words[1:])
        from tidepool.cli.app import run

        if code := run(words or ["--help"]):
            raise _Refused(f"%tidepool {shlex.join(words)} ended with exit code {int(code)}.")
        return None

    def _fetch(self, words: list[str]) -> None:
        if len(words) != 1 or not words[0].isdecimal():
            raise _Refused("Give the number of a cell's training: %tidepool fetch 412")
        try:
            self._take(self._site().job(int(words[0])))
        except TidepoolError as error:
            raise _shown(error) from None

    def _site(self) -> Client:
        if self._client is None:
            self._client = Client()
        return self._client

    def _run(self, cell: str, given: Namespace) -> Job | None:
        names, known = self._shell.user_ns, self._names_of_the_user()
        wanted = [name.strip() for name in given.out.split(",") if name.strip()]
        if given.slots < 1 or given.min < 1:
            raise InvalidRequest("A cell needs at least one GPU: give -n 1 or more.")
        job = submit_function(
            self._site(),
            as_function(names),
            (cell, wanted or None),
            {name: names[name] for name in names_needed(cell, known)},
            processes=given.slots,
            elastic=given.elastic,
            min_processes=given.min,
            name=given.name,
            cell=cell,
            **_for_the_site(given),
        )
        if given.detach:
            click.echo(f"Training {job.id}: {job.url}\n%tidepool fetch {job.id} waits for it, and takes its names.")
            return job
        self._follow(job)
        self._take(job)
        return None

    def _names_of_the_user(self) -> list[str]:
        hidden = self._shell.user_ns_hidden
        return [name for name in self._shell.user_ns if name not in hidden and not name.startswith("_")]

    def _follow(self, job: Job) -> None:
        click.echo(f"Training {job.id}: {job.url}")
        bar, again = _Bar(), f"%tidepool fetch {job.id}"
        patience = job.patience(again=again, say=lambda text: click.echo(text, err=True))
        try:
            for line in job.log_lines(follow=True, watch=bar.show, patience=patience):
                click.echo(line.text)
        except KeyboardInterrupt:
            self._cancel(job, again)
            raise

    def _cancel(self, job: Job, again: str) -> None:
        try:
            job.cancel()
        except Unreachable as error:
            click.echo(
                f"Training {job.id} is not cancelled: {error} `{again}` waits again, and `%tidepool cancel {job.id}` "
                "cancels it.",
                err=True,
            )
        else:
            click.echo(f"Training {job.id} is being cancelled.", err=True)

    def _take(self, job: Job) -> None:
        outcome = job.value()
        if not isinstance(outcome, Outcome):
            raise InvalidRequest(f"Training {job.id} was no cell of a notebook: tidepool.job({job.id}).value()")
        for name, problem in take_over(outcome, self._shell.user_ns).items():
            click.echo(f"{name} stays on the cluster: {problem}", err=True)


class _Bar:
    """A line below the cell: the training's GPUs, and why it waits."""

    def __init__(self) -> None:
        self._text = ""
        self._handle = DisplayHandle()  # type: ignore[no-untyped-call]

    def show(self, info: JobInfo) -> None:
        text = bar_of(info)
        if text != self._text:
            show = self._handle.update if self._text else self._handle.display
            show({"text/plain": text}, raw=True)  # type: ignore[no-untyped-call]
            self._text = text


def bar_of(info: JobInfo) -> str:
    """Return a bar such as "RUNNING ▮▮▯▯ 2 of 4 GPUs, 40%"; of one that waits, why."""
    held = 0 if info.is_over else info.slots
    width = min(info.max_slots, _BAR_WIDTH)
    filled = round(width * held / max(1, info.max_slots))
    parts = [info.state, "▮" * filled + "▯" * (width - filled), f"{held} of {info.max_slots} GPUs"]
    if info.progress is not None:
        parts[-1] += f", {100 * info.progress:.0f}%"
    if info.hold_up:
        parts.append(f"({info.hold_up})")
    return " ".join(parts)


def _for_the_site(given: Namespace) -> dict[str, Any]:
    values = {
        "dataset": given.dataset,
        "instance_group": given.instance_group,
        "priority": given.priority,
        "secrets": " ".join(given.secret) or None,
        "skip_unusable_requirements": given.skip_unusable_requirements or None,
        "requirements": given.requirements and "\n".join(split_list(given.requirements)),
    }
    return {name: value for name, value in values.items() if value is not None}


def _shown(error: TidepoolError) -> Exception:
    """Format an error for the notebook: the cell's own traceback, or a sentence."""
    if isinstance(error, JobFailed):
        return CellFailed(
            error.message, job=error.job, state=error.state, traceback=error.traceback, rank=error.rank, kind=error.kind
        )
    fields = [f"{name}: {each}" for name, all_ in getattr(error, "fields", {}).items() for each in all_]
    return _Refused("\n  ".join([str(error), *(each for each in fields if each not in str(error))]))
