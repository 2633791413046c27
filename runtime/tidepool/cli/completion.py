"""Completion: the lines that a shell needs, and the numbers and names that it offers.

These come from the site, and are kept for ten seconds: a shell asks at each press of the key.
"""

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from tidepool.client.config import config_file

__all__ = ["completion", "job_numbers", "names_of"]

_KEPT_SECONDS = 10.0
_PATIENCE_SECONDS = 0.3
_LINES = {
    "bash": 'eval "$(tidepool completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(tidepool completion zsh)"    # in ~/.zshrc',
    "fish": "tidepool completion fish | source    # in ~/.config/fish/config.fish",
}
#: The newest of a list are offered.
_MOST = 200

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@click.command()
@click.argument("shell", type=click.Choice(list(_LINES)))
def completion(shell: str) -> None:
    """Print what a shell needs to complete commands, trainings, datasets and models.

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
        return _offered(ctx, what, lambda row: (row["name"], row.get("description") or ""), begun)

    return complete


def job_numbers(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    taken = {str(value) for value in ctx.params.get("jobs") or ()}
    offered = _offered(ctx, "jobs", lambda row: (str(row["id"]), f"{row['name']} {row['state'].lower()}"), begun)
    return [item for item in offered if item.value not in taken]


def _offered(
    ctx: click.Context, what: str, read: Callable[[dict[str, Any]], tuple[str, str]], begun: str
) -> list[CompletionItem]:
    try:
        found = _rows(ctx, what, read)
    except Exception:  # a shell shows no errors, and the command will say what is wrong
        return []
    return [CompletionItem(name, help=words) for name, words in found if name.startswith(begun)]


def _rows(
    ctx: click.Context, what: str, read: Callable[[dict[str, Any]], tuple[str, str]]
) -> Iterable[tuple[str, str]]:
    from tidepool.client.config import resolve
    from tidepool.client.http import Connection

    profile = resolve(None, None, ctx.find_root().params.get("profile"))
    kept = config_file().with_name("completion.json")
    where = f"{profile.url} {what}"
    try:
        known = json.loads(kept.read_text())
    except (OSError, ValueError):
        known = {}
    if where in known and time.time() - known[where]["at"] < _KEPT_SECONDS:
        rows: list[tuple[str, str]] = [tuple(row) for row in known[where]["rows"]]
        return rows
    connection = Connection(profile, tries_for=0.0, timeout=_PATIENCE_SECONDS)
    rows = [read(row) for row in connection.rows(f"{what}/", most=_MOST)]
    kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept.write_text(json.dumps({where: {"at": time.time(), "rows": rows}}))
    kept.chmod(0o600)
    return rows
