"""study: create, ls, show, best, pause, resume, stop."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from tidepool.cli.context import Context, Exit, facts, json_option, listing_options, show_json, show_rows, state_colour
from tidepool.cli.named_values import named_scalars
from tidepool.cli.submission_options import dataset_option, group_option, model_option
from tidepool.cli.texts import ago
from tidepool.client.api import Client, Submission
from tidepool.client.errors import InvalidRequest
from tidepool.client.nni_config import study_of_nni
from tidepool.client.pack import package
from tidepool.client.rows import StudyInfo, TrialInfo
from tidepool.client.studies import Study
from tidepool.space_notation import HOW_TO_WRITE, searched_values

__all__ = ["Sweep", "run_sweep", "space_of", "study"]

_SEARCH = ("metric", "goal", "sampler", "pruner", "trials", "minutes", "gpu_hours", "at_once", "seed")
_HEADS = ("ID", "NAME", "OWNER", "STATE", "TRIALS", "BEST", "METRIC", "AGE")


@click.group()
def study() -> None:
    """Search for the parameters with the best value of a metric.

    \b
    tidepool study create train.py --metric accuracy --goal maximize --trials 40 \\
        --space lr=1e-4:1e-1:log --space width=32,64,128
    tidepool study show 3
    """


@study.command(context_settings={"ignore_unknown_options": False})
@click.argument("what", required=False, type=click.Path())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@model_option
@click.option("--name", help="Name of the study. Default: from the script and the time.")
@dataset_option
@group_option
@click.option(
    "--space",
    "space",
    multiple=True,
    metavar="NAME=VALUES",
    help=f"Values of a parameter; may be repeated. {HOW_TO_WRITE}",
)
@click.option(
    "--nni",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="CONFIG.yml",
    help="NNI's configuration instead of a script, --space and --metric. Other options take precedence over it.",
)
@click.option("--metric", help="Metric that the script reports.")
@click.option("--goal", type=click.Choice(["minimize", "maximize"]), default="minimize", show_default=True)
@click.option(
    "--sampler", type=click.Choice(["tpe", "random", "grid", "cmaes", "gp"]), default="tpe", show_default=True
)
@click.option("--pruner", type=click.Choice(["none", "median", "asha", "hyperband"]), default="none", show_default=True)
@click.option("--trials", type=click.IntRange(min=1), help="Number of trials. Default: no limit.")
@click.option("--minutes", type=click.IntRange(min=1), help="Time limit of the study.")
@click.option("--gpu-hours", type=click.FloatRange(min=0, min_open=True), help="Limit of its GPU-hours.")
@click.option("--at-once", type=click.IntRange(min=1), help="Most trials at once. Default: as many as there are GPUs.")
@click.option(
    "--max",
    "max_slots",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="GPUS",
    help="Largest number of GPUs of a trial.",
)
@click.option("--priority", type=click.IntRange(1, 10000), help="Priority of the study, which counts as one training.")
@click.option(
    "--set", "parameters", multiple=True, metavar="NAME=VALUE", help="Parameter that is the same in every trial."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the search.")
@click.option("--dry-run", is_flag=True, help="Show the size and the cost without creating the study.")
@json_option
@click.option("--quiet", "-q", is_flag=True, help="Print only the number.")
@click.pass_obj
def create(context: Context, /, **given: Any) -> None:
    """Create a study of a script, a folder or a model; its trials are submitted at once.

    Each trial gets its values as --name value, in config.json beside the script, and by tidepool.trial().params.
    """
    as_json, quiet, dry_run = given.pop("as_json"), given.pop("quiet"), given.pop("dry_run")
    nni = given.pop("nni")
    planned, search = _own_study(context, given) if nni is None else _study_of_nni(context, nni, given)
    client = context.client
    if dry_run:
        return _show_preview(client.preview_study(planned, **search), as_json)
    made = client.create_study(planned, **search)
    if quiet and not as_json:
        click.echo(made.id)
    else:
        _say_created(made, as_json)
    return None


def _own_study(context: Context, given: dict[str, Any]) -> tuple[Submission, dict[str, Any]]:
    """Return the training of a trial, and the search, that the options describe."""
    what, arguments = given.pop("what"), given.pop("arguments")
    for name, example in (("space", "lr=1e-4:1e-1:log"), ("metric", "accuracy")):
        if not given[name]:
            raise InvalidRequest(f"There is no --{name}: write it like --{name} {example}, or give --nni CONFIG.yml.")
    search = {name: given.pop(name) for name in _SEARCH}
    search["space"] = space_of(given.pop("space"))
    parameters = named_scalars("--set", given.pop("parameters"))
    code = None if what is None else package(Path(what))
    options = {name: value for name, value in given.items() if value is not None}
    return context.client.plan(code, *arguments, parameters=parameters, **options), search


def _study_of_nni(context: Context, file: Path, given: dict[str, Any]) -> tuple[Submission, dict[str, Any]]:
    """Return what a configuration of NNI describes, with the options that were written on the command line."""
    written = {name: value for name, value in given.items() if _is_written(name)}
    for name in ("what", "arguments", "model", "space", "metric"):
        if given.pop(name):
            words = {"what": "a script", "arguments": "words"}.get(name, f"--{name}")
            raise InvalidRequest(f"{file} names the script, the space and the metric: leave {words} out.")
    read = study_of_nni(file, sampler=written.get("sampler"), pruner=written.get("pruner"))
    for notice in read.notices:
        click.echo(f"{file.name}: {notice}", err=True)
    search = read.search | {name: written[name] for name in _SEARCH if name in written}
    options = read.options | {name: value for name, value in written.items() if name not in (*_SEARCH, "parameters")}
    parameters = named_scalars("--set", given["parameters"])
    return context.client.plan(read.code, *read.arguments, parameters=parameters, **options), search


def _is_written(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


@study.command()
@listing_options
@click.pass_obj
def ls(context: Context, as_json: bool, quiet: bool) -> None:
    """List studies, newest first."""
    rows = [each.info for each in context.client.studies()]
    none = "No studies. `tidepool study create --help` shows how to create one."
    show_rows(rows, as_json, quiet, lambda row: row.id, _HEADS, _line, right=(0, 4, 5), none=none)


@study.command()
@click.argument("number", type=click.IntRange(min=1), metavar="STUDY")
@json_option
@click.pass_obj
def show(context: Context, number: int, as_json: bool) -> None:
    """Show a study and its trials, the best first."""
    found = context.client.study(number)
    if as_json:
        return show_json({"study": found.refresh(), "trials": [trial.info for trial in found.trials()]})
    return _show(found)


@dataclass(frozen=True)
class Sweep:
    """A submission with several values of some parameters."""

    planned: Submission
    values: Mapping[str, list[Any]]
    metric: str
    goal: str


def run_sweep(client: Client, sweep: Sweep, *, as_json: bool, quiet: bool, dry_run: bool, wait: bool) -> int:
    """Create the study of a sweep. wait: until it is over; the exit code then says whether all trials are complete."""
    compared = {"metric": sweep.metric, "goal": sweep.goal}
    if dry_run:
        _show_preview(client.preview_sweep(sweep.planned, sweep.values, **compared), as_json)
        return Exit.DONE
    made = client.sweep(sweep.planned, sweep.values, **compared)
    if quiet:
        click.echo(made.id)
    elif not (as_json and wait):
        _say_created(made, as_json)
    if not wait:
        return Exit.DONE
    try:
        info = made.wait()
    except KeyboardInterrupt:
        click.echo(f"Study {made.id} continues. `tidepool study show {made.id}`", err=True)
        return Exit.INTERRUPTED
    if as_json:
        show_json(info)
    elif not quiet:
        _show(made)
    return Exit.DONE if info.state == "FINISHED" and not info.counts.get("failed") else Exit.JOB_FAILED


def _say_created(made: Study, as_json: bool) -> None:
    if as_json:
        show_json(made.info)
        return
    info = made.info
    count = f"{info.trials} trainings, compared by" if info.trials else "compared by"
    click.echo(f"Study {made.id}, {info.name}: {count} {info.metric}. {made.url}", err=True)


def _show(found: Study) -> None:
    info, trials = found.refresh(), [trial.info for trial in found.trials()]
    facts({
        "Study": f"{info.id}, {info.name}", "State": f"{state_colour(info.state)}: {info.reason}",
        "Model": info.model, "Dataset": info.dataset, "Goal": f"{info.goal} {info.metric}",
        "Search": f"{info.sampler}, pruner {info.pruner}", "Best": info.best_text, "Page": found.url,
    })  # fmt: skip
    sign = 1 if info.goal == "minimize" else -1
    trials.sort(key=lambda row: (row.value is None, sign * (row.value or 0), row.number))
    names = list(info.space)
    click.echo()
    heads = ("TRIAL", "TRAINING", "STATE", "VALUE", *(name.upper() for name in names), "WHY")
    show_rows(
        trials, False, False, lambda row: row.number, heads, lambda row: _trial_line(row, names), right=(0, 1, 3),
        none="No trials yet.",
    )  # fmt: skip


@study.command()
@click.argument("number", type=click.IntRange(min=1), metavar="STUDY")
@json_option
@click.pass_obj
def best(context: Context, number: int, as_json: bool) -> int:
    """Print the parameters of the best trial, as options of a command line."""
    found = context.client.study(number).best
    if found is None:
        click.echo("No trial is complete yet.", err=True)
        return Exit.NOT_FOUND
    if as_json:
        show_json(found.info)
    else:
        click.echo(" ".join(f"--{name} {value}" for name, value in found.parameters.items()))
    return Exit.DONE


def _command(name: str, sentence: str, act: Any) -> None:
    @study.command(name, help=sentence)
    @click.argument("number", type=click.IntRange(min=1), metavar="STUDY")
    @json_option
    @click.pass_obj
    def command(context: Context, number: int, as_json: bool) -> None:
        info: StudyInfo = act(context.client.study(number))
        if as_json:
            show_json(info)
        else:
            click.echo(f"Study {info.id}, {info.name}: {info.state}. {info.reason}", err=True)


_command("pause", "Submit no more trials; those that have been submitted train on.", Study.pause)
_command("resume", "Submit trials again.", Study.resume)
_command("stop", "End a study for good, and stop its trials.", Study.stop)


def space_of(given: tuple[str, ...]) -> dict[str, Any]:
    """Return the space that the options describe. Raises InvalidRequest."""
    space: dict[str, Any] = {}
    for text in given:
        name, separator, values = text.partition("=")
        if not separator or not name or not values:
            raise InvalidRequest(f"--space {text!r} is not NAME=VALUES: write it like lr=1e-4:1e-1:log.")
        space[name] = searched_values(values)
    return space


def _line(row: StudyInfo) -> tuple[Any, ...]:
    over = sum(row.counts.get(state, 0) for state in ("complete", "pruned", "failed"))
    wanted = "" if row.trials is None else f"/{row.trials}"
    value = "" if row.best is None else f"{row.best.value:.5g}"
    return (
        row.id, row.name, row.owner, state_colour(row.state), f"{over}{wanted}", value, row.metric,
        ago(row.created_at),
    )  # fmt: skip


def _trial_line(row: TrialInfo, names: list[str]) -> tuple[Any, ...]:
    value = "" if row.value is None else f"{row.value:.5g}"
    values = [row.values.get(name, "") for name in names]
    shown = [f"{each:.5g}" if isinstance(each, float) else each for each in values]
    return (row.number, row.job, row.state, value, *shown, row.why)


def _show_preview(told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        return show_json(told)
    cost = told["gpu_hours"]
    facts({
        "Trials": "no limit" if told["trials"] is None else told["trials"], "At once": told["at_once"],
        "Space": "continuous" if told["points"] is None else f"{told['points']:,} points",
        "Cost": "unknown" if cost is None else f"about {cost:.2g} GPU-hours",
        "Note": " ".join(told["notices"]),
    })  # fmt: skip
    return None
