"""The program: its commands, its options, and the exit code of whatever happens."""

import sys
from importlib import import_module
from typing import Any

import click

from tidepool.cli.context import Context, Exit
from tidepool.version import VERSION

__all__ = ["cli", "main"]

#: Name -> module below `tidepool.cli` and the sentence of the list. In the order in which people meet them.
COMMANDS: dict[str, tuple[str, str]] = {
    "login": ("account", "Log in to a site, by a code that you confirm in a browser."),
    "logout": ("account", "Forget the login, and withdraw its token."),
    "whoami": ("account", "Who is logged in, and where."),
    "run": ("submit", "Submit a script, a folder or a model, and follow it to its end."),
    "submit": ("submit", "Submit it, and return at once."),
    "ps": ("lists", "Trainings, the newest first."),
    "top": ("top", "The cluster and its trainings, live."),
    "queue": ("lists", "What waits, in line, and when it is expected to start."),
    "gpus": ("lists", "GPUs, and who holds each."),
    "describe": ("show", "All about one training."),
    "why": ("show", "Why a training has its GPUs or none, and what would change it."),
    "logs": ("show", "The log of a training."),
    "events": ("show", "What has happened to a training."),
    "metrics": ("show", "The metrics of a training."),
    "cancel": ("change", "Stop trainings for good."),
    "suspend": ("change", "Hold trainings back, to be resumed."),
    "resume": ("change", "Let suspended trainings go on."),
    "priority": ("change", "Change the priority of trainings."),
    "scale": ("change", "Change the limits of a training: GPUs and time."),
    "tag": ("change", "Give trainings tags, or take them away."),
    "undo": ("change", "Take the newest change of priority or limits back."),
    "clone": ("change", "Submit a training again."),
    "results": ("results", "Files that a training leaves."),
    "checkpoints": ("results", "Checkpoints of a training."),
    "datasets": ("data", "Datasets: list, add, delete."),
    "models": ("data", "Models: list, add, delete."),
    "admin": ("admin", "For administrators: hosts, groups, users."),
    "env": ("lists", "Python and the packages that trainings have."),
    "enable": ("enable", "Let pyspark's TorchDistributor mean this cluster."),
    "completion": ("completion", "Complete commands and numbers in bash, zsh or fish."),
}


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"tidepool.cli.{COMMANDS[name][0]}"), name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table above, so that help loads no command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            advice = f" Did you mean {near[0]}?" if near else " `tidepool --help` lists them."
            raise click.UsageError(f"There is no command {args[0]!r}.{advice}", ctx) from error


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 the training failed, 2 a mistake in what was typed, 3 not logged in, 4 not found, "
    "5 refused, 6 the site does not answer, 130 interrupted.",
)
@click.option("--profile", metavar="NAME", help="Which of several logins; also TIDEPOOL_PROFILE.")
@click.version_option(VERSION, "-V", "--version", message="tidepool %(version)s")
@click.pass_context
def cli(ctx: click.Context, profile: str | None) -> None:
    """Train on the GPUs of a Tidepool cluster, from a shell.

    \b
    First:    tidepool login https://gpus.example.org
    Train:    tidepool run train.py -- --epochs 5
    Look:     tidepool ps        tidepool top        tidepool why 412
    Change:   tidepool scale 412 --max 4             tidepool cancel 412
    Fetch:    tidepool results get 412 out/

    Every command has --help with examples. Lists take --json for programs and -q for numbers alone.
    """
    ctx.obj = Context(profile)


def main(arguments: list[str] | None = None) -> None:
    """Run, and exit with the code of what happened. Errors go to stderr: what, why, what to do."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    try:
        result = cli.main(arguments, prog_name="tidepool", standalone_mode=False)
        return result if isinstance(result, int) else Exit.DONE
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed it, as `head` does; Python would complain at its end.
        sys.stdout = None
        return Exit.DONE
    except Exception as error:
        from tidepool.cli.context import code_of

        code = code_of(error)
        if code is None:
            raise
        click.echo(f"tidepool: {error}", err=True)
        for name, sentences in getattr(error, "fields", {}).items():
            for sentence in sentences:
                if sentence not in str(error):
                    click.echo(f"  {name}: {sentence}", err=True)
        return code
