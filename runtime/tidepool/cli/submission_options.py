"""Options that several commands have which submit trainings."""

import click

from tidepool.cli.completion import names_of

__all__ = ["dataset_option", "group_option", "include_option", "key_option", "model_option"]

model_option = click.option("--model", help="Registered model instead of a script.", shell_complete=names_of("models"))
dataset_option = click.option(
    "--dataset", help="Dataset, if the script reads one.", shell_complete=names_of("datasets")
)
group_option = click.option(
    "--instance-group",
    "-g",
    help="Instance group. Default: that of the login, or the only one.",
    shell_complete=names_of("instance-groups"),
)
include_option = click.option(
    "--include",
    multiple=True,
    metavar="PATH",
    help="File or folder below the script's that is sent besides; of a link, its content. May be repeated.",
)
key_option = click.option("--key", help="Idempotency key: a repeated command with the same key submits nothing.")
