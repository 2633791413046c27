"""The program: its commands, options and exit codes."""

import sys
from importlib import import_module
from typing import Any

import click

from tidepool.cli.context import Context, Exit
from tidepool.terminal_text import without_commands
from tidepool.version import VERSION

__all__ = ["cli", "main"]

#: Name -> module below `tidepool.cli` and the sentence of the list. Ordered by first use.
COMMANDS: dict[str, tuple[str, str]] = {
    "login": ("account", "Log in to a site with a code that you confirm in a browser."),
    "logout": ("account", "Delete the login and revoke its token."),
    "whoami": ("account", "Show the user and the site of the login."),
    "run": ("submit", "Submit a script, a folder or a model, and follow it to its end."),
    "submit": ("submit", "Submit a script, a folder or a model, and return at once."),
    "ps": ("lists", "List trainings, newest first."),
    "top": ("top", "Show the cluster and its trainings live."),
    "queue": ("lists", "List waiting trainings in their order, with expected starts."),
    "gpus": ("lists", "List the GPUs and the training that holds each."),
    "capacity": ("lists", "List the GPUs that trainings want beyond those of the cluster, and fleets."),
    "describe": ("show", "Show everything about one training."),
    "freeze": ("show", "Print the packages of a training as a requirements file."),
    "why": ("show", "Explain the GPUs of a training, and what would change them."),
    "why-slow": ("slow", "Divide the time of a training by cause, and say what would make it faster."),
    "flame": ("recordings", "Record a flame graph of a rank: the functions in which it is, 50 times a second."),
    "trace": ("recordings", "Record the operators of a rank's next steps by torch.profiler."),
    "stacks": ("slow", "Show where each rank of a training is, also of ranks that hang."),
    "logs": ("show", "Print the log of a training."),
    "events": ("show", "List the events of a training."),
    "metrics": ("show", "Print the metrics of a training."),
    "cancel": ("change", "Stop trainings for good."),
    "suspend": ("change", "Suspend trainings until you resume them."),
    "keep-gpus": ("change", "Keep idle GPUs of trainings for an hour."),
    "resume": ("change", "Resume suspended trainings."),
    "priority": ("change", "Change the priority of trainings."),
    "scale": ("change", "Change the GPU and time limits of a training."),
    "tag": ("change", "Add tags to trainings, or remove them."),
    "undo": ("change", "Undo the newest change of priority or limits."),
    "clone": ("change", "Submit a training again."),
    "study": ("study", "Create and list studies, which search for the best parameters."),
    "results": ("results", "List and download the files of a training."),
    "checkpoints": ("results", "List, keep and publish checkpoints of a training."),
    "datasets": ("data", "List, add and delete datasets."),
    "models": ("data", "List, add and delete models."),
    "admin": ("admin", "Administer hosts, groups and users."),
    "env": ("environments", "List the packages that trainings have, and environments to choose."),
    "secret": ("secrets", "Add, replace and delete the secrets that trainings can get."),
    "adaptdl": ("adaptdl", "Use the commands of AdaptDL's program."),
    "enable": ("enable", "Make pyspark's TorchDistributor use this cluster."),
    "completion": ("completion", "Set up completion in bash, zsh or fish."),
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
            raise click.UsageError(f"Unknown command {args[0]!r}.{advice}", ctx) from error


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 the training failed, 2 invalid arguments, 3 not logged in, 4 not found, "
    "5 refused, 6 the site does not answer, 130 interrupted.",
)
@click.option("--profile", metavar="NAME", help="Profile of the login to use. [env: TIDEPOOL_PROFILE]")
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
        click.echo(f"tidepool: {without_commands(str(error))}", err=True)
        for name, sentences in getattr(error, "fields", {}).items():
            for sentence in sentences:
                if sentence not in str(error):
                    click.echo(f"  {name}: {sentence}", err=True)
        return code
