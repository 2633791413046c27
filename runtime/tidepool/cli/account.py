"""login, logout, whoami."""

import platform
import shlex
import sys
import time
from datetime import datetime
from typing import Any

import click

from tidepool.cli.context import Context, facts, json_option, show_json
from tidepool.client.api import Client
from tidepool.client.config import DEFAULT, Profile, checked_url, config_file, profiles, resolve
from tidepool.client.errors import NotFound, NotLoggedIn, TidepoolError
from tidepool.client.http import Connection

__all__ = ["login", "logout", "whoami"]


@click.command()
@click.argument("url", required=False)
@click.option("--scope", default="submit", show_default=True, type=click.Choice(["read", "submit", "full"]),
              help="Scope of the token. `admin` needs full.")  # fmt: skip
@click.option("--token-stdin", is_flag=True, help="Read a token from standard input, for CI.")
@click.option("--ca-file", type=click.Path(exists=True, dir_okay=False), help="CA certificates of the site.")
@click.option("--mlflow", is_flag=True, help="Print the environment of MLflow's client, also for an existing login.")
@click.option("--instance-group", default="", help="Default instance group of `run` and `submit`.")
@json_option
@click.pass_obj
def login(
    context: Context,
    url: str | None,
    scope: str,
    token_stdin: bool,
    ca_file: str | None,
    mlflow: bool,
    instance_group: str,
    as_json: bool,
) -> None:
    """Log in to a site.

    The command shows a code and an address. Open the address in a browser where you are logged in, compare the code,
    and confirm. The token is stored in ~/.config/tidepool/config.toml, which only you can read. It expires in 90 days.

    \b
    tidepool login https://gpus.example.org
    tidepool login https://gpus.example.org --scope full     # for `tidepool admin`
    echo "$TOKEN" | tidepool login https://gpus.example.org --token-stdin
    tidepool --profile work login https://gpus.work.example.org
    eval "$(tidepool login --mlflow)"                        # for MLflow's client, if you are logged in
    """
    if url is None:
        if not mlflow:
            raise click.UsageError("Give the site's address: tidepool login https://gpus.example.org")
        kept = resolve(None, None, context.profile)
        _show_mlflow(kept, Connection(kept).get("me/"), as_json)
        return
    profile = Profile(checked_url(url), "", ca_file or "", instance_group)
    token = read_line() if token_stdin else _by_code(profile, scope)
    if not token:
        raise click.UsageError('Standard input has no token: echo "$TOKEN" | tidepool login URL --token-stdin')
    kept = Profile(profile.url, token, profile.ca_file, instance_group)
    me = Connection(kept, tries_for=0.0).get("me/")
    profiles().keep(context.profile or DEFAULT, kept)
    if not as_json:
        click.echo(f"Logged in as {me['username']} at {kept.url}. The token is in {config_file()}.", err=True)
    if mlflow:
        _show_mlflow(kept, me, as_json)
    elif as_json:
        show_json({"user": me["username"], "site": kept.url, "config_file": str(config_file())})


def _show_mlflow(kept: Profile, me: dict[str, Any], as_json: bool) -> None:
    """Print the variables by which MLflow's client finds the site, for a shell to take."""
    if not me.get("has_mlflow"):
        raise NotFound(f"{kept.url} has no MLflow: an administrator sets it up (`make setup-mlflow`).")
    variables = {"MLFLOW_TRACKING_URI": f"{kept.url}/mlflow", "MLFLOW_TRACKING_TOKEN": kept.token}
    if kept.ca_file:
        variables["MLFLOW_TRACKING_SERVER_CERT_PATH"] = kept.ca_file
    if as_json:
        show_json(variables)
    else:
        click.echo("export " + " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items()))


def read_line() -> str:
    return sys.stdin.readline().strip()


def show_code(address: str, code: str) -> None:
    click.echo(f"Open {address}\nand confirm the code {click.style(code, bold=True)}", err=True)


def _by_code(profile: Profile, scope: str) -> str:
    machine = platform.node()[:40].replace("/", "-") or "a machine"
    # Once: an address may be mistyped.
    authorization = Connection(profile, tries_for=0.0).json(
        "POST", "device/", json={"machine": machine, "scope": scope}
    )
    show_code(authorization["address"], authorization["code"])
    connection = Connection(profile)
    while True:
        time.sleep(authorization["poll_seconds"])
        try:
            answer: dict[str, Any] | None = connection.json(
                "POST", "device/token/", json={"device": authorization["device"]}
            )
        except NotFound as error:
            raise NotLoggedIn(error.message) from error
        if answer is not None:
            return str(answer["token"])


@click.command()
@json_option
@click.pass_obj
def logout(context: Context, as_json: bool) -> None:
    """Revoke the token of the login, and delete the login."""
    name = context.profile or DEFAULT
    kept = profiles().by_name.get(name)
    if kept is None:
        raise NotLoggedIn("You are not logged in.")
    try:
        Connection(kept).json("DELETE", "me/tokens/current/")
    except NotLoggedIn:
        was_over, ended = True, "The token was no longer valid."
    except TidepoolError as error:
        raise TidepoolError(f"{error} The login is kept: revoke its token on your account page.") from error
    else:
        was_over, ended = False, "The token is revoked."
    profiles().keep(name, None)
    if as_json:
        show_json({"site": kept.url, "was_over": was_over})
    else:
        click.echo(f"Logged out of {kept.url}. {ended}", err=True)


@click.command()
@json_option
@click.pass_obj
def whoami(context: Context, as_json: bool) -> None:
    """Show the user, the site and the token's scope."""
    client: Client = context.client
    user, token = client.whoami(), client.connection.get("me/tokens/current/")
    values = {"user": user["username"], "role": user["role"], "site": client.url, "scope": token["scope"]}
    values |= {"token ends": token["expires_at"]}
    if as_json:
        show_json(values)
        return
    ends = token["expires_at"]
    until = f"{datetime.fromisoformat(ends).astimezone():%Y-%m-%d %H:%M}" if ends else "never"
    facts({**values, "role": values["role"].replace("_", " "), "token ends": until})
