"""Lines about files that a training may need and does not get."""

import shlex

import click

from tidepool.client.pack import Package

__all__ = ["tell_left_out"]


def tell_left_out(code: Package) -> None:
    """Name on stderr what is not sent, and the option that sends it."""
    for each in code.left_out:
        click.echo(f"{each.sentence}. To send it: --include {shlex.quote(each.path.as_posix())}", err=True)
