"""Shell completion: the scripts for shells, and the offered numbers and names.

Names come from the site and are cached for ten seconds, because a shell requests them at each key press. Those of a
slow site are offered at the next key press.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from tidepool.client.config import Profile, config_file, resolve
from tidepool.client.errors import Unreachable

__all__ = ["completion", "job_numbers", "names_of", "refresh"]

_KEPT_SECONDS = 10.0
#: Timeout, chosen so that a key press is answered within 300 ms, including Python's start.
_PATIENCE_SECONDS, _LONG_PATIENCE_SECONDS = 0.1, 10.0
_LINES = {
    "bash": 'eval "$(tidepool completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(tidepool completion zsh)"    # in ~/.zshrc',
    "fish": "tidepool completion fish | source    # in ~/.config/fish/config.fish",
}
#: Number of newest rows that are offered.
_MOST = 200

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@click.command()
@click.argument("shell", type=click.Choice(list(_LINES)))
def completion(shell: str) -> None:
    """Print the completion script of a shell: it completes commands, trainings, datasets and models.

    \b
    eval "$(tidepool completion bash)"     # in ~/.bashrc
    eval "$(tidepool completion zsh)"      # in ~/.zshrc
    tidepool completion fish | source      # in ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    program = click.get_current_context().find_root().command
    click.echo(found(program, {}, "tidepool", "_TIDEPOOL_COMPLETE").source())


def names_of(what: str) -> Complete:
    """Complete names of a list of the site's, such as "datasets"."""

    def complete(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        return _offered(ctx, what, begun)

    return complete


def job_numbers(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    taken = {str(value) for value in ctx.params.get("jobs") or ()}
    return [item for item in _offered(ctx, "jobs", begun) if item.value not in taken]


def _offered(ctx: click.Context, what: str, begun: str) -> list[CompletionItem]:
    try:
        found = _rows(ctx.find_root().params.get("profile"), what)
    except Exception:  # a shell shows no errors, and the command will say what is wrong
        return []
    return [CompletionItem(name, help=words) for name, words in found if name.startswith(begun)]


def _rows(profile: str | None, what: str) -> list[tuple[str, str]]:
    """Return cached names if they are fresh, otherwise the site's; if the site is slow, cached names of any age."""
    kept = _kept().get(_place(resolve(None, None, profile), what), {"at": 0.0, "rows": []})
    if time.time() - kept["at"] < _KEPT_SECONDS:
        return [tuple(row) for row in kept["rows"]]
    try:
        return refresh(profile, what, _PATIENCE_SECONDS)
    except Unreachable:
        _refresh_meanwhile(profile, what)
        return [tuple(row) for row in kept["rows"]]


def refresh(profile: str | None, what: str, seconds: float) -> list[tuple[str, str]]:
    """Fetch names from the site and cache them. seconds: timeout."""
    from tidepool.client.http import Connection

    login = resolve(None, None, profile)
    connection = Connection(login, tries_for=0.0, timeout=seconds)
    rows = [_item_of(what, row) for row in connection.rows(f"{what}/", most=_MOST)]
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump({**_kept(), _place(login, what): {"at": time.time(), "rows": rows}}, stream)
    fresh.replace(file)
    return rows


def _refresh_meanwhile(profile: str | None, what: str) -> None:
    """Fetch from a slow site in a separate process, for the next key press."""
    code = (
        "import sys; from tidepool.cli.completion import refresh; "
        f"refresh(sys.argv[1] or None, sys.argv[2], {_LONG_PATIENCE_SECONDS})"
    )
    nothing = subprocess.DEVNULL
    words = [sys.executable, "-c", code, profile or "", what]
    subprocess.Popen(words, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)


def _item_of(what: str, row: dict[str, Any]) -> tuple[str, str]:
    if what == "jobs":
        return str(row["id"]), f"{row['name']} {row['state'].lower()}"
    return row["name"], row.get("description") or ""


def _place(profile: Profile, what: str) -> str:
    return f"{profile.url} {what}"


def _file() -> Path:
    return config_file().with_name("completion.json")


def _kept() -> dict[str, Any]:
    try:
        found = json.loads(_file().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
