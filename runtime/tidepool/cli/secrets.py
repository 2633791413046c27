"""secret."""

import sys
from typing import Any

import click

from tidepool.cli.completion import names_of
from tidepool.cli.context import Context, json_option, listing_options, show_json, show_rows
from tidepool.client.errors import InvalidRequest, NotFound

__all__ = ["secret"]


@click.group()
def secret() -> None:
    """Add, replace and delete the secrets that trainings can get. Values are never shown, nor taken as arguments.

    \b
    tidepool secret set HF_TOKEN                       # asks for the value
    tidepool secret set WANDB_API_KEY < key.txt
    tidepool secret set GCS_KEY --file < key.json      # trainings get the path of a file
    tidepool run train.py --secret HF_TOKEN
    """


@secret.command("ls")
@listing_options
@click.pass_obj
def list_secrets(context: Context, as_json: bool, quiet: bool) -> None:
    """List the secrets that your trainings can get with --secret."""
    show_rows(_rows(context), as_json, quiet, lambda row: row["name"],
              ("NAME", "OF", "GIVEN AS", "TRAININGS", "ENTERED"), _cells, right=(3,),
              none="There are no secrets that your trainings can get.")  # fmt: skip


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    given_as = "file" if row["is_file"] else "variable"
    return row["name"], row["instance_group"] or "you", given_as, row["trainings"], row["changed_at"][:10]


@secret.command("set")
@click.argument("name")
@click.option("--group", "-g", default=None, help="Instance group whose trainings may use it, for its administrators. "
              "Default: your own trainings.", shell_complete=names_of("instance-groups"))  # fmt: skip
@click.option("--file", "is_file", is_flag=True, help="Trainings get the path of a file with the value.")
@json_option
@click.pass_obj
def set_secret(context: Context, name: str, group: str | None, is_file: bool, as_json: bool) -> None:
    """Add a secret, or replace its value. The value is read from stdin; a terminal asks for it."""
    value = click.prompt("Value", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.read().rstrip("\n")
    connection, known = context.client.connection, _find(context, name, group)
    if known is None:
        given = {"name": name, "value": value, "instance_group": group, "is_file": is_file}
        row = connection.json("POST", "secrets/", json=given)
    elif is_file != known["is_file"] and is_file:
        raise InvalidRequest(f"{name} is given as a variable: delete it and add it again to give it as a file.")
    else:
        row = connection.json("PATCH", f"secrets/{known['id']}/", json={"value": value})
    if as_json:
        show_json(row)
    else:
        click.echo(f"Secret {name}: {'added' if known is None else 'replaced'}.", err=True)


@secret.command("rm")
@click.argument("name")
@click.option("--group", "-g", default=None, help="Instance group whose secret it is. Default: your own.",
              shell_complete=names_of("instance-groups"))  # fmt: skip
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def delete_secret(context: Context, name: str, group: str | None, yes: bool, as_json: bool) -> None:
    """Delete a secret. Refused while trainings wait or run that get it."""
    row = _find(context, name, group)
    if row is None:
        raise NotFound(f"There is no secret {name}: `tidepool secret ls` lists them.")
    if not yes:
        click.confirm(f"Delete the secret {name}?", abort=True, err=True)
    context.client.connection.json("DELETE", f"secrets/{row['id']}/")
    if as_json:
        show_json({"name": name, "deleted": True})


def _find(context: Context, name: str, group: str | None) -> dict[str, Any] | None:
    found = [row for row in _rows(context) if (row["name"], row["instance_group"]) == (name, group)]
    return found[0] if found else None


def _rows(context: Context) -> list[dict[str, Any]]:
    return list(context.client.connection.rows("secrets/"))
