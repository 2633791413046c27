"""adaptdl: the commands of AdaptDL's own program, on this cluster."""

import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import click

from tidepool.cli.completion import names_of
from tidepool.cli.context import Context, show_rows
from tidepool.cli.follow import follow
from tidepool.cli.submission_options import group_option
from tidepool.cli.submit import script_of, tell_of
from tidepool.client.api import Client
from tidepool.client.errors import InvalidRequest, NotFound
from tidepool.client.pack import package
from tidepool.client.rows import JobInfo
from tidepool.client.training import Job
from tidepool.units import size_words

__all__ = ["adaptdl"]

_MANIFEST = "adaptdljob.yaml"
_MOST = 1000
_HEADS = ("Name", "Status", "Start(UTC)", "Runtime", "Rplc", "Rtrt")
#: State -> its word in AdaptDL, where that is another one.
_STATUS = {"PREEMPTING": "Stopping", "CANCELLING": "Stopping"}
#: Folder as AdaptDL names it -> first parts of a path among the results; None: any name.
_FOLDERS: dict[str, tuple[str | None, ...]] = {
    "/adaptdl/share": ("_submitted_code", None),
    "/adaptdl/checkpoint": ("checkpoint",),
    "/adaptdl/tensorboard": ("tensorboard",),
}
_BOARD = "`tidepool adaptdl cp JOB:/adaptdl/tensorboard out` copies what a script has written for TensorBoard"
_NO_VOLUME = "checkpoints are kept with the training and need no volume: leave it out"
#: Option without a counterpart -> the reason, and what to do.
_ABSENT = {
    "--dockerfile": "no image is built here: leave it out, and name the packages that the image installs in a "
    "requirements.txt of the project",
    "--tensorboard": f"there are no TensorBoard instances: leave it out; {_BOARD}",
    "--checkpoint-storage-size": _NO_VOLUME,
    "--checkpoint-storage-class": _NO_VOLUME,
    "--proxy-port": "no image is pushed: leave it out",
}


@click.group()
def adaptdl() -> None:
    """Use the commands of AdaptDL's program `adaptdl` on this cluster.

    \b
    alias adaptdl='tidepool adaptdl'
    adaptdl submit hello_world
    adaptdl ls
    adaptdl logs hello-world-412
    adaptdl cp hello-world-412:/adaptdl/share/foo.txt foo.txt
    """


def _refuses(name: str, *spellings: str) -> Callable[[Any], Any]:
    def refuse(ctx: click.Context, parameter: click.Parameter, given: str | None) -> None:
        if given is not None:
            raise InvalidRequest(f"{name} is not supported: {_ABSENT[name]}.")

    return click.option(name, *spellings, expose_value=False, callback=refuse, help="Not supported here.")


@adaptdl.command()
@click.argument("project", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--jobfile",
    "-f",
    type=click.Path(path_type=Path),
    metavar="JOB.yaml",
    help=f"AdaptDLJob. Default: {_MANIFEST} in the project.",
)
@click.option("--name", "-n", default="", help="Name of the training. Default: that of the AdaptDLJob.")
@click.option(
    "--dataset", help="Dataset, if the script reads one. AdaptDL has none.", shell_complete=names_of("datasets")
)
@group_option
@click.option("--quiet", "-q", is_flag=True, help="Print only the number.")
@_refuses("--dockerfile", "-d")
@_refuses("--tensorboard")
@_refuses("--checkpoint-storage-size")
@_refuses("--checkpoint-storage-class")
@_refuses("--proxy-port")
@click.pass_obj
def submit(
    context: Context, project: Path, arguments: Sequence[str], jobfile: Path | None, name: str, dataset: str | None,
    instance_group: str | None, quiet: bool,
) -> None:  # fmt: skip
    """Submit a project with its AdaptDLJob.

    The files of the project are sent, and no image is built. Words after -- replace the `args` of the AdaptDLJob.

    \b
    tidepool adaptdl submit hello_world
    tidepool adaptdl submit . -f tutorial/adaptdljob.yaml -n mnist -- --epochs 5
    """
    file = jobfile or project / _MANIFEST
    if not file.is_file():
        raise InvalidRequest(f"There is no {file}: write an AdaptDLJob there, or name its file with --jobfile.")
    manifest, code = file.read_text(errors="replace"), package(project)
    tell_of(code, tell=not quiet)
    job = context.client.submit_manifest(
        manifest,
        code,
        dataset=dataset,
        instance_group=instance_group,
        entry_point=script_of(manifest, code),
        name=name,
        arguments=list(arguments) or None,
    )
    if quiet:
        click.echo(job.id)
    else:
        click.echo(f"Training {_name_of(job.info)}: {job.url}\ntidepool adaptdl logs {_name_of(job.info)}", err=True)


@adaptdl.command()
@click.option("--quiet", "-q", is_flag=True, help="Print only the names.")
@click.pass_obj
def ls(context: Context, quiet: bool) -> None:
    """List trainings, newest last, with the columns of AdaptDL.

    Rplc is the number of GPUs now, and Rtrt how often the training has started again: a resize is no start here.
    """
    rows = [job.info for job in reversed(context.client.jobs(most=_MOST))]
    show_rows(
        rows, as_json=False, quiet=quiet, key=_name_of, heads=_HEADS, cells=_line, right=(4, 5), none="No trainings."
    )


def _name_of(row: JobInfo) -> str:
    """Return a name that no other training has, in one word, as AdaptDL makes one of `generateName`."""
    return f"{'-'.join(row.name.split())}-{row.id}"


def _line(row: JobInfo) -> tuple[Any, ...]:
    seconds = ((row.finished_at or datetime.now(UTC)) - row.submitted_at).total_seconds()
    started = f"{row.submitted_at.astimezone(UTC):%b-%d %H:%M}"
    status = _STATUS.get(row.state, row.state.capitalize())
    return _name_of(row), status, started, f"{seconds // 60:.0f} min", row.slots, max(0, row.attempt - 1)


@adaptdl.command()
@click.argument("job", metavar="JOB")
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    expose_value=False,
    help="No effect: the log is always followed.",
)
@click.option("--tail", type=click.IntRange(min=0), help="Number of last lines to start with.")
@click.pass_obj
def logs(context: Context, job: str, tail: int | None) -> int:
    """Print the log of a training's rank 0, to its end. The exit code is the training's.

    \b
    tidepool adaptdl logs hello-world-412
    """
    return follow(_found(context.client, job), tail=tail)


@adaptdl.command()
@click.argument("source", metavar="JOB:PATH")
@click.argument("destination", type=click.Path(path_type=Path))
@click.pass_obj
def cp(context: Context, source: str, destination: Path) -> None:
    """Copy a file or folder that a training has written.

    \b
    tidepool adaptdl cp hello-world-412:/adaptdl/share/foo.txt foo.txt
    tidepool adaptdl cp hello-world-412:/adaptdl/tensorboard runs
    """
    name, separator, path = source.partition(":")
    if not separator or not name or not path.startswith("/"):
        raise InvalidRequest(f"{source!r} names no file of a training: write it as JOB:/adaptdl/share/PATH.")
    folder = next((each for each in _FOLDERS if path == each or path.startswith(f"{each}/")), None)
    if folder is None:
        *others, last = _FOLDERS
        raise InvalidRequest(f"{path} was not found: a training's files are below {', '.join(others)} and {last}.")
    job = _found(context.client, name)
    wanted = PurePosixPath(path).relative_to(folder)
    found = _below(job, _FOLDERS[folder], wanted)
    if not found:
        raise NotFound(f"Training {job.id} has written no file {path}: `tidepool results ls {job.id}` lists its files.")
    target = destination / PurePosixPath(path).name if destination.is_dir() else destination
    total = _copy(job, found, target)
    files = "1 file" if len(found) == 1 else f"{len(found)} files"
    click.echo(f"Copied {files}, {size_words(total)}, to {target}", err=True)


def _below(job: Job, folder: tuple[str | None, ...], wanted: PurePosixPath) -> dict[str, PurePosixPath]:
    """Return path among the results -> path below the wanted file or folder; `.` for the wanted file itself."""
    found = {}
    for file in job.files():
        parts = PurePosixPath(file.path).parts
        first, rest = parts[: len(folder)], PurePosixPath(*parts[len(folder) :])
        is_there = all(part in (None, given) for part, given in zip(folder, first, strict=False)) and rest.parts
        if is_there and rest.is_relative_to(wanted):
            found[file.path] = rest.relative_to(wanted)
    return found


def _copy(job: Job, found: dict[str, PurePosixPath], target: Path) -> int:
    """Copy the files, and return their size in bytes. None is there before it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    total = 0
    with TemporaryDirectory(prefix=".adaptdl-cp-", dir=target.parent) as folder:
        written = job.download(folder, found)
        for file, below in zip(written, found.values(), strict=True):
            total += file.stat().st_size
            place = target / below
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(file, place)
    return total


@adaptdl.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True}, add_help_option=False)
def tensorboard() -> NoReturn:
    """Not supported here: copy what a script has written, or use the curves of the training's page."""
    raise InvalidRequest(
        f"tensorboard is not supported: there are no TensorBoard instances. {_BOARD}, for `tensorboard --logdir out`; "
        "the page of a training shows its curves."
    )


def _found(client: Client, name: str) -> Job:
    """Return the training: by its name and number, as `ls` shows it, by its number, or by a name that only it has."""
    number = name.rpartition("-")[2]
    if number.isascii() and number.isdecimal() and len(number) < 19:
        job = client.job(int(number))
        try:
            if name in (number, _name_of(job.info)):
                return job
        except NotFound:
            pass
    found = [job for job in client.jobs(search=name, most=_MOST) if job.info.name == name]
    if len(found) > 1:
        names = ", ".join(_name_of(job.info) for job in found[:10])
        raise InvalidRequest(f"{len(found)} trainings are named {name}: write one of {names}.")
    if not found:
        raise NotFound(f"There is no training {name}: `tidepool adaptdl ls` lists them.")
    return found[0]
