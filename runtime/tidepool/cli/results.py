"""results and checkpoints."""

from pathlib import Path
from typing import Any

import click

from tidepool.cli.context import Context, job_argument, json_option, listing_options, show_json, show_rows
from tidepool.cli.progress import bar
from tidepool.client.rows import Checkpoint
from tidepool.units import size_words

__all__ = ["checkpoints", "results"]


@click.group()
def results() -> None:
    """List and download the files of a training: model, logs, metrics, checkpoints and its own files.

    \b
    tidepool results ls 412
    tidepool results get 412 out/
    tidepool results get 412 out/ scores.csv
    """


@results.command("ls")
@job_argument
@listing_options
@click.pass_obj
def ls(context: Context, job: int, as_json: bool, quiet: bool) -> None:
    """List the files that a training has written."""
    show_rows(context.client.job(job).files(), as_json, quiet, lambda file: file.path, ("SIZE", "ATTEMPT", "PATH"),
              lambda file: (size_words(file.size_bytes), file.attempt, file.path), right=(0, 1),
              none="The training has written no file yet.")  # fmt: skip


@results.command()
@job_argument
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("paths", nargs=-1)
@json_option
@click.option("--quiet", "-q", is_flag=True, help="Print only the written paths.")
@click.pass_obj
def get(context: Context, job: int, folder: Path, paths: tuple[str, ...], quiet: bool, as_json: bool) -> None:
    """Download all files, or those with the given paths, into a folder, which is created."""
    with bar(f"training {job}", is_shown=not (quiet or as_json)) as progress:
        written = context.client.job(job).download(folder, paths or None, progress=progress)
    if as_json:
        show_json([{"path": str(file), "size_bytes": file.stat().st_size} for file in written])
    elif quiet:
        for file in written:
            click.echo(file)
    else:
        total = sum(file.stat().st_size for file in written)
        click.echo(f"{len(written)} files, {size_words(total)}, in {folder}", err=True)


@click.command()
@job_argument
@click.option(
    "--keep", type=click.IntRange(min=1), metavar="ID", help="Checkpoint to keep, even when newer ones are written."
)
@click.option(
    "--let-go",
    type=click.IntRange(min=1),
    metavar="ID",
    help="Kept checkpoint to release: it is deleted with the oldest ones.",
)
@click.option(
    "--make-version", type=click.IntRange(min=1), metavar="ID", help="Checkpoint to publish as a model version."
)
@click.option("--as", "name", default="", metavar="MODEL", help="Model of the version; created if it does not exist.")
@listing_options
@click.pass_obj
def checkpoints(
    context: Context,
    job: int,
    keep: int | None,
    let_go: int | None,
    make_version: int | None,
    name: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """List the checkpoints of a training. Options keep one, release one, or publish one as a model version first.

    \b
    tidepool checkpoints 412
    tidepool checkpoints 412 --keep 77
    tidepool checkpoints 412 --make-version 77 --as digits-best
    tidepool submit --model digits-cnn --dataset digits --option checkpoint=$(tidepool checkpoints -q 412 | head -1)
    """
    if name and make_version is None:
        raise click.UsageError("--as names the model of --make-version: give both.")
    training = context.client.job(job)
    for number, kept in ((keep, True), (let_go, False)):
        if number is not None:
            training.keep_checkpoint(number, kept)
    if make_version is not None:
        made = training.make_version(make_version, name)
        if not (as_json or quiet):
            click.echo(f"{made} was created with the weights of checkpoint {make_version}.", err=True)
    points = training.checkpoints()
    heads = ("ID", "ATTEMPT", "STEP", "EPOCH", "SIZE", "AT", "KEPT", "VERSIONS", "PROBLEM")
    show_rows(points, as_json, quiet, lambda point: point.id, heads, _point, right=(0, 1, 2, 3, 4),
              none=f"Training {job} has no checkpoints yet.")  # fmt: skip


def _point(point: Checkpoint) -> tuple[Any, ...]:
    place = point.id, point.attempt, point.step, point.epoch
    return (
        *place,
        size_words(point.size_bytes),
        f"{point.created_at:%Y-%m-%d %H:%M:%S}",
        "kept" if point.kept else "",
        ", ".join(point.versions),
        point.problem,
    )
