"""admin: hosts, groups, users. The site refuses what a role or a token's scope does not allow."""

from typing import Any

import click

from tidepool.cli.context import Context, columns, json_option, listing_options, show_json

__all__ = ["admin"]


@click.group()
def admin() -> None:
    """For administrators: hosts, instance groups, users. Needs a login with --scope full.

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
    rows = context.client.hosts()
    if not _is_told(rows, as_json, quiet, "name"):
        columns(("NAME", "STATE", "GPUS", "CPUS", "ADDRESS", "LAST REPORT"),
                [(row["name"], row["state"], len(row["slots"]), row["ncpus"], row["address"], row["last_report_at"])
                 for row in rows], right=(2, 3))  # fmt: skip


def _host_command(name: str, help: str) -> None:
    @admin.command(name, help=help)
    @click.argument("host")
    @json_option
    @click.pass_obj
    def command(context: Context, host: str, as_json: bool) -> None:
        _tell(context.client.connection.json("POST", f"hosts/{host}/{name}/"), as_json, "name")


_host_command("drain", "Offer nothing new on a host: elastic trainings move off, others finish.")
_host_command("resume", "Take a draining host back into service.")


@admin.command()
@listing_options
@click.pass_obj
def groups(context: Context, as_json: bool, quiet: bool) -> None:
    """List the instance groups."""
    rows = list(context.client.connection.rows("instance-groups/"))
    if not _is_told(rows, as_json, quiet, "name"):
        columns(("NAME", "STATE", "POLICY", "QUOTA", "PRIORITY", "MEMBERS"),
                [(row["name"], row["state"], row["policy"], row["quota"], row["default_priority"],
                  ", ".join(row["members"]) or "everybody") for row in rows], right=(3, 4))  # fmt: skip


@admin.command()
@click.argument("group")
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
    if not _is_told(rows, as_json, quiet, "username"):
        columns(("NAME", "ROLE", "STATE", "TOKENS", "LAST LOG-IN"),
                [(row["username"], row["role"], row["state"], row["tokens"], row["last_login"]) for row in rows],
                right=(3,))  # fmt: skip


@admin.command()
@click.argument("username")
@click.option("--role", default="data_scientist", show_default=True,
              type=click.Choice(["viewer", "data_scientist", "cluster_admin"]))  # fmt: skip
@json_option
@click.pass_obj
def invite(context: Context, username: str, role: str, as_json: bool) -> None:
    """Invite somebody: prints the one-time link to hand on."""
    made = context.client.connection.json("POST", "users/", json={"username": username, "role": role})
    if as_json:
        show_json(made)
    else:
        click.echo(made["link"])


@admin.command()
@click.argument("username")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def deactivate(context: Context, username: str, yes: bool, as_json: bool) -> None:
    """End a user's sessions, tokens and password at once. Trainings go on."""
    if not yes:
        click.confirm(f"Deactivate {username}?", abort=True, err=True)
    _tell(context.client.connection.json("POST", f"users/{username}/deactivate/"), as_json, "username")


def _tell(row: dict[str, Any], as_json: bool, name: str) -> None:
    """What became of it."""
    if as_json:
        show_json(row)
    else:
        click.echo(f"{row[name]}  {row['state']}")


def _is_told(rows: list[dict[str, Any]], as_json: bool, quiet: bool, name: str) -> bool:
    if as_json:
        show_json(rows)
    elif quiet:
        for row in rows:
            click.echo(row[name])
    return as_json or quiet
