"""datasets and models."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from tidepool.cli.completion import names_of
from tidepool.cli.context import Context, facts, json_option, listing_options, show_json, show_rows
from tidepool.cli.left_out import tell_left_out
from tidepool.cli.progress import bar
from tidepool.cli.submission_options import include_option
from tidepool.client.pack import package
from tidepool.client.rows import Dataset, Model
from tidepool.client.training import Progress
from tidepool.units import size_words

__all__ = ["datasets", "models"]


@click.group()
def datasets() -> None:
    """List, add and delete datasets.

    \b
    tidepool datasets ls
    tidepool datasets add digits ./digits.csv
    tidepool datasets add images ./images/            # a folder, sent in pieces
    tidepool datasets add scans --server /data/scans  # a folder on the server
    """


@datasets.command("ls")
@listing_options
@click.pass_obj
def list_datasets(context: Context, as_json: bool, quiet: bool) -> None:
    """List all datasets."""
    show_rows(context.client.datasets(), as_json, quiet, _name,
              ("NAME", "KIND", "OWNER", "VERSION", "STATE", "FILES", "SIZE"), _dataset_cells,
              right=(3, 5, 6))  # fmt: skip


def _dataset_cells(row: Dataset) -> tuple[Any, ...]:
    latest = row.latest
    counts = latest["number"], latest["state"], latest["file_count"], size_words(latest["size_bytes"] or 0)
    return row.name, row.kind, row.owner, *counts


@datasets.command("show")
@click.argument("name", shell_complete=names_of("datasets"))
@json_option
@click.pass_obj
def show_dataset(context: Context, name: str, as_json: bool) -> None:
    """Show one dataset."""
    _show(context.client.dataset(name), as_json)


@datasets.command("add")
@click.argument("name")
@click.argument("path", required=False, type=click.Path(exists=True))
@click.option("--server", "server_path", metavar="PATH", help="Folder on the server instead of a local path.")
@click.option("--kind", help="Kind, such as images or csv. Default: detected from the files.")
@click.option("--description", default="")
@json_option
@click.pass_obj
def add_dataset(
    context: Context, name: str, path: str | None, server_path: str | None, kind: str | None, description: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Add a dataset, or the next version of one of yours, from a local file or folder or one on the server.

    Local files are sent in pieces. After a lost connection or Ctrl-C, the same command continues the upload.
    """
    with _sending(name, is_shown=not as_json, is_local=path is not None) as progress:
        row = context.client.add_dataset(
            name, path, server_path=server_path, kind=kind, description=description, progress=progress
        )
    if as_json:
        show_json(row)
    else:
        click.echo(f"Dataset {row.name}, version {row.latest['number']}: {row.latest['state']}", err=True)


@contextmanager
def _sending(name: str, *, is_shown: bool, is_local: bool = True) -> Iterator[Progress | None]:
    """Show a progress bar of an upload, and a hint if the user interrupts it."""
    try:
        with bar(name, is_shown=is_shown and is_local) as progress:
            yield progress
    except KeyboardInterrupt:
        if is_local:
            click.echo("The uploaded part is kept for two days: the same command continues the upload.", err=True)
        raise


@datasets.command("rm")
@click.argument("name", shell_complete=names_of("datasets"))
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def delete_dataset(context: Context, name: str, yes: bool, as_json: bool) -> None:
    """Delete a dataset with all its versions. Refused if a training has used it."""
    if not yes:
        click.confirm(f"Delete the dataset {name} with all its versions?", abort=True, err=True)
    context.client.delete_dataset(name)
    if as_json:
        show_json({"name": name, "deleted": True})


@click.group()
def models() -> None:
    """List, add and delete models.

    \b
    tidepool models ls
    tidepool models add digits-cnn ./digits-cnn/ --entry-point main.py
    tidepool run --model digits-cnn --dataset digits
    """


@models.command("ls")
@listing_options
@click.pass_obj
def list_models(context: Context, as_json: bool, quiet: bool) -> None:
    """List all models."""
    show_rows(context.client.models(), as_json, quiet, _name,
              ("NAME", "OWNER", "VERSION", "ENGINE", "ENTRY POINT", "DATASET"), _model_cells, right=(2,))  # fmt: skip


def _model_cells(row: Model) -> tuple[Any, ...]:
    return row.name, row.owner, *(row.latest[name] for name in ("number", "engine", "entry_point", "dataset"))


@models.command("show")
@click.argument("name", shell_complete=names_of("models"))
@json_option
@click.pass_obj
def show_model(context: Context, name: str, as_json: bool) -> None:
    """Show one model."""
    _show(context.client.model(name), as_json)


@models.command("add")
@click.argument("name")
@click.argument("path", type=click.Path(exists=True))
@click.option("--engine", type=click.Choice(["elastic", "fixed", "single"]), default="",
              help="Training engine. By default it is detected from the code.")  # fmt: skip
@click.option("--entry-point", help="Script in the folder that trains, or its module: train.py, package.train.")
@include_option
@click.option("--dataset", help="Default dataset of the model's trainings.", shell_complete=names_of("datasets"))
@click.option("--description", default="")
@json_option
@click.pass_obj
def add_model(
    context: Context, name: str, path: str, engine: str, entry_point: str | None, include: tuple[str, ...],
    dataset: str | None, description: str, as_json: bool,
) -> None:  # fmt: skip
    """Add a model, or the next version of one of yours, from a script or folder.

    The files are sent in pieces. After a lost connection or Ctrl-C, the same command continues the upload.
    """
    given = {"engine": engine, "entry_point": entry_point, "dataset": dataset, "description": description}
    code = package(path, include)
    tell_left_out(code)
    with _sending(name, is_shown=not as_json) as progress:
        values = {name: value for name, value in given.items() if value}
        row = context.client.add_model(name, code, progress=progress, **values)
    if as_json:
        show_json(row)
    else:
        click.echo(f"Model {row.name}, version {row.latest['number']}, {row.latest['engine']}", err=True)


@models.command("rm")
@click.argument("name", shell_complete=names_of("models"))
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def delete_model(context: Context, name: str, yes: bool, as_json: bool) -> None:
    """Delete a model with all its versions. Refused if a training has used one."""
    if not yes:
        click.confirm(f"Delete the model {name} with all its versions?", abort=True, err=True)
    context.client.delete_model(name)
    if as_json:
        show_json({"name": name, "deleted": True})


def _name(row: Dataset | Model) -> str:
    return row.name


def _show(row: Dataset | Model, as_json: bool) -> None:
    if as_json:
        show_json(row)
        return
    values = {**asdict(row), "created_at": row.created_at.isoformat()}
    latest = values.pop("latest")
    facts({**values, **{f"  {name}": value for name, value in latest.items() if not isinstance(value, dict | list)}})
