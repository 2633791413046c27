"""admin: hosts, groups, users. The site refuses what a role or a token's scope does not allow."""

from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import click

from tidepool.cli.completion import names_of
from tidepool.cli.context import Context, json_option, listing_options, show_json, show_rows
from tidepool.cli.texts import ago, duration

__all__ = ["admin"]


@click.group()
def admin() -> None:
    """Administer hosts, instance groups and users. Needs a login with --scope full.

    \b
    tidepool login https://gpus.example.org --scope full
    tidepool admin hosts
    tidepool admin drain gpu-host-3
    tidepool admin invite ada.lovelace
    """


@admin.command()
@listing_options
@click.pass_obj
def hosts(context: Context, as_json: bool, quiet: bool) -> None:
    """List the hosts."""
    heads = ("NAME", "STATE", "GPUS", "CPUS", "ADDRESS", "LAST REPORT")
    show_rows(context.client.hosts(), as_json, quiet, itemgetter("name"), heads, _host, right=(2, 3))


def _host(row: dict[str, Any]) -> tuple[Any, ...]:
    reported = ago(datetime.fromisoformat(row["last_report_at"])) if row["last_report_at"] else "never"
    return row["name"], _state(row), len(row["slots"]), row["ncpus"], row["address"], reported


def _state(row: dict[str, Any]) -> str:
    """Return the host's state, and when its machine will be gone, as a notice says."""
    if not row.get("leaving_at"):  # a site of an earlier release does not tell
        return str(row["state"])
    left = (datetime.fromisoformat(row["leaving_at"]) - datetime.now(UTC)).total_seconds()
    return f"{row['state']}, gone {f'in {duration(left)}' if left > 0 else 'by now'}"


def _host_command(name: str, help: str) -> None:
    @admin.command(name, help=help)
    @click.argument("host", shell_complete=names_of("hosts"))
    @json_option
    @click.pass_obj
    def command(context: Context, host: str, as_json: bool) -> None:
        _tell(context.client.connection.json("POST", f"hosts/{host}/{name}/"), as_json, "name")


_host_command("drain", "Drain a host: elastic trainings move to other hosts, others finish, and none starts there.")
_host_command("resume", "Return a draining host to service.")


@admin.command()
@listing_options
@click.pass_obj
def groups(context: Context, as_json: bool, quiet: bool) -> None:
    """List the instance groups."""
    rows = list(context.client.connection.rows("instance-groups/"))
    heads = ("NAME", "STATE", "POLICY", "QUOTA", "PRIORITY", "MEMBERS")
    show_rows(rows, as_json, quiet, itemgetter("name"), heads, _group, right=(3, 4))


def _group(row: dict[str, Any]) -> tuple[Any, ...]:
    terms = itemgetter("name", "state", "policy", "quota", "default_priority")(row)
    return *terms, ", ".join(row["members"]) or "everybody"


@admin.command()
@click.argument("group", shell_complete=names_of("instance-groups"))
@click.argument("state", type=click.Choice(["start", "stop"]))
@json_option
@click.pass_obj
def group(context: Context, group: str, state: str, as_json: bool) -> None:
    """Start or stop an instance group."""
    _tell(context.client.connection.json("POST", f"instance-groups/{group}/{state}/"), as_json, "name")


@admin.command()
@click.option("--search", help="Part of a name.")
@listing_options
@click.pass_obj
def users(context: Context, search: str | None, as_json: bool, quiet: bool) -> None:
    """List the users."""
    rows = list(context.client.connection.rows("users/", search=search))
    name = itemgetter("username")
    cells = itemgetter("username", "role", "state", "tokens", "last_login")
    show_rows(rows, as_json, quiet, name, ("NAME", "ROLE", "STATE", "TOKENS", "LAST LOGIN"), cells, right=(3,))


@admin.command()
@click.argument("username")
@click.option("--role", default="data_scientist", show_default=True,
              type=click.Choice(["viewer", "data_scientist", "cluster_admin"]))  # fmt: skip
@json_option
@click.pass_obj
def invite(context: Context, username: str, role: str, as_json: bool) -> None:
    """Invite a user, and print the one-time link to send to them."""
    made = context.client.connection.json("POST", "users/", json={"username": username, "role": role})
    if as_json:
        show_json(made)
    else:
        click.echo(made["link"])


@admin.command()
@click.argument("username")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def deactivate(context: Context, username: str, yes: bool, as_json: bool) -> None:
    """End a user's sessions, tokens and password at once. Trainings continue."""
    if not yes:
        click.confirm(f"Deactivate {username}?", abort=True, err=True)
    _tell(context.client.connection.json("POST", f"users/{username}/deactivate/"), as_json, "username")


def _tell(row: dict[str, Any], as_json: bool, name: str) -> None:
    """Print the row's name and new state."""
    if as_json:
        show_json(row)
    else:
        click.echo(f"{row[name]}  {row['state']}")
