"""run and submit."""

import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tidepool.cli.completion import names_of
from tidepool.cli.context import Context, Exit, facts, json_option, show_json
from tidepool.cli.follow import follow, told_end
from tidepool.cli.gibibytes import Gibibytes
from tidepool.cli.left_out import tell_left_out
from tidepool.cli.named_values import named_scalars, named_texts, scalar
from tidepool.cli.study import Sweep, run_sweep
from tidepool.cli.submission_options import dataset_option, group_option, include_option, key_option, model_option
from tidepool.client.api import Client, Submission
from tidepool.client.errors import InvalidRequest
from tidepool.client.pack import Package, package, requirements_of
from tidepool.requirement_files import split_list
from tidepool.space_notation import is_sweep, searched_values
from tidepool.units import size_words

__all__ = ["run", "script_of", "submit", "tell_of"]

_SETTINGS = (
    click.argument("what", required=False, type=click.Path()),
    click.argument("arguments", nargs=-1, type=click.UNPROCESSED),
    model_option,
    click.option("--name", help="Name of the training. Default: from the script and the time."),
    dataset_option,
    group_option,
    click.option("--max", "max_slots", type=click.IntRange(min=1), metavar="GPUS", help="Largest number of GPUs."),
    click.option("--min", "min_slots", type=click.IntRange(min=1), metavar="GPUS",
                 help="Smallest number of GPUs. Default: 1."),
    click.option("--one-process", "gpus_per_process", flag_value="all",
                 help="One process has all GPUs of the training, on one host: for a script that starts its own "
                 "processes or uses several GPUs."),
    click.option("--cpus", "cpus_per_gpu", type=click.IntRange(min=1), metavar="CORES",
                 help="Cores for each GPU. Default: the GPU's share of its host. A GPU with more than that counts as "
                 "several."),
    click.option("--memory", "memory_gib_per_gpu", type=Gibibytes(), metavar="SIZE",
                 help="Memory of the host for each GPU, such as 96GiB. Default: the GPU's share of its host."),
    click.option("--priority", type=click.IntRange(1, 10000),
                 help="Priority: under fair share, twice the priority means twice the GPUs."),
    click.option("--set", "parameters", multiple=True, metavar="NAME=VALUE",
                 help="Parameter, passed to the script as --name value. Several numbers, as in lr=0.1,0.03, make a "
                 "study with one training for each combination."),
    click.option("--metric", metavar="NAME", help="Metric that shows which of several values is best. Default: loss."),
    click.option("--goal", type=click.Choice(["minimize", "maximize"]), help="Default: minimize."),
    click.option("--option", "options", multiple=True, metavar="NAME=VALUE",
                 help="Field of the REST API, such as exactness=bitwise."),
    click.option("--seed", type=click.IntRange(min=0), help="Seed of the order of samples and of random numbers."),
    click.option("--env", "named_environment", metavar="NAME",
                 help="Environment that an administrator has put together; `tidepool env ls` lists them. Default: what "
                 "the code requires.", shell_complete=names_of("environments")),
    click.option("--secret", "secrets", multiple=True, metavar="NAME",
                 help="Secret that the training gets as a variable; `tidepool secret ls` lists them. May be repeated."),
    click.option("--requirements", metavar="FILE|LIST",
                 help="Packages in addition to the cluster's: a requirements file, or a list such as timm>=1,wandb. "
                 "Default: those of the script, or of a requirements.txt or environment.yml beside it."),
    click.option("--image", metavar="NAME@DIGEST",
                 help="Container image that the training runs in, instead of packages that are required."),
    click.option("--skip-unusable-requirements", is_flag=True,
                 help="Start without the requirements that cannot be installed here."),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag; may be repeated."),
    click.option("--no-autolog", "autolog", flag_value="off",
                 help="Disable autologging: only the script itself logs to MLflow."),
    include_option,
    click.option("--entry-point", default="", help="Script in the folder that trains, or its module (package.train)."),
    click.option("--file", "-f", "file", type=click.Path(exists=True, dir_okay=False), metavar="JOB.toml",
                 help="File with these options; the command line overrides it. YAML: an AdaptDLJob."),
    key_option,
    click.option("--dry-run", is_flag=True, help="Show the effects without submitting."),
    json_option,
    click.option("--quiet", "-q", is_flag=True, help="Print only the number."),
)  # fmt: skip


def _with_settings(command: Any) -> Any:
    for option in reversed(_SETTINGS):
        command = option(command)
    return click.pass_obj(command)


@click.command(context_settings={"ignore_unknown_options": False})
@_with_settings
def run(context: Context, **given: Any) -> int:
    """Submit a script, a folder or a model, and follow its log to its end.

    In a git repository, the files of the script's folder that git tracks are sent; otherwise the script, the modules
    beside it that it imports, and requirements.txt. Arguments after -- are passed to the script. The exit code is 0 if
    the training succeeded, and 1 if not. Ctrl-C asks whether to cancel the training or to leave it running.

    \b
    tidepool run train.py
    tidepool run train.py --max 4 -- --epochs 5 --lr 0.1
    tidepool run . --entry-point main.py --dataset digits
    tidepool run --model digits-cnn --dataset digits --set epochs=2
    tidepool run train.py --set lr=0.1,0.03,0.01 --metric accuracy --goal maximize
    tidepool run train.py --dry-run
    """
    return _submit(context.client, given, then_follow=True)


@click.command()
@click.option("--wait", is_flag=True, help="Wait for the end. The exit code is the training's.")
@_with_settings
def submit(context: Context, wait: bool, **given: Any) -> int:
    """Submit a script, a folder or a model, and return at once.

    \b
    tidepool submit train.py -- --epochs 5
    JOB=$(tidepool submit -q train.py) && tidepool logs -f $JOB
    tidepool submit train.py --wait && tidepool results get $JOB out/
    tidepool submit -f job.toml        # script = "train.py", max_slots = 4, [parameters] epochs = 5
    tidepool submit . -f adaptdljob.yaml
    """
    return _submit(context.client, given, wait=wait)


def _submit(client: Client, given: dict[str, Any], *, wait: bool = False, then_follow: bool = False) -> int:
    is_quiet, as_json = given.pop("quiet"), given.pop("as_json")
    dry_run, key = given.pop("dry_run"), given.pop("key")
    tell = not (is_quiet or as_json)
    if Path(given["file"] or "").suffix in (".yaml", ".yml"):
        manifest, said = _manifest(given, tell=tell)
        if dry_run:
            return _show_preview(client.preview_manifest(manifest, **said), as_json)
        job = client.submit_manifest(manifest, key=key, **said)
    else:
        compared = {"metric": given.pop("metric"), "goal": given.pop("goal")}
        planned = _planned(client, given, tell=tell)
        if swept := {name: value for name, value in planned.parameters.items() if isinstance(value, list)}:
            if key:
                raise InvalidRequest("A sweep takes no --key: leave it out.")
            sweep = Sweep(planned, swept, compared["metric"] or "loss", compared["goal"] or "minimize")
            return run_sweep(client, sweep, as_json=as_json, quiet=is_quiet, dry_run=dry_run, wait=wait or then_follow)
        if any(compared.values()):
            raise InvalidRequest("--metric and --goal compare several values: give them, as in --set lr=0.1,0.03.")
        if dry_run:
            return _show_preview(client.preview(planned), as_json)
        job = client.send(planned, key=key)
    if as_json and not wait:
        show_json(job.info)
    elif is_quiet:
        click.echo(job.id)
    elif not as_json:
        click.echo(f"Training {job.id}, {job.info.name}: {job.url}", err=True)
    if then_follow and not (as_json or is_quiet):
        return follow(job, may_cancel=True)
    if not (wait or then_follow):
        return Exit.DONE
    info = job.wait(check=False)
    if tell:
        return told_end(job)
    if as_json:
        show_json(info)
    return Exit.DONE if info.state == "SUCCEEDED" else Exit.JOB_FAILED


def _planned(client: Client, given: dict[str, Any], *, tell: bool) -> Submission:
    values = _from_file(given.pop("file")) | {name: value for name, value in given.items() if _is_given(value)}
    what: str | Package | None = values.pop("what", None) or values.pop("script", None)
    if what is not None:
        what = code = package(str(what), values.pop("include", ()))
        tell_of(code, tell=tell)
    # Command lines give texts, files a table.
    given_parameters = values.pop("parameters", {})
    texts = named_texts("--set", given_parameters) if isinstance(given_parameters, tuple) else {}
    parameters = {name: _one_or_several(text) for name, text in texts.items()} if texts else given_parameters
    options = named_scalars("--option", values.pop("options", ()))
    arguments = [str(word) for word in values.pop("arguments", ())]
    if isinstance(values.get("secrets"), tuple | list):
        values["secrets"] = " ".join(values["secrets"])
    if "tags" in values:
        values["tags"] = list(values["tags"])
    if image := values.pop("image", ""):
        if "requirements" in values:
            raise InvalidRequest("An image has all packages: leave out --requirements or --image.")
        values["requirements"] = f"--image {image}"
    elif "requirements" in values:
        values["requirements"] = _requirements(values["requirements"])
    planned = client.plan(what, *arguments, parameters=parameters, **values, **options)
    if listed := {name: text for name, text in texts.items() if isinstance(parameters[name], list)}:
        # Commas in a parameter that the script takes as text separate nothing.
        text_parameters = client.model(planned.model).latest["text_parameters"]
        kept = {name: text for name, text in listed.items() if name in text_parameters}
        planned = replace(planned, parameters={**parameters, **kept})
    return planned


def _is_given(value: Any) -> bool:
    return value is not None and value is not False and value not in ("", ())


def _requirements(given: str | list[str]) -> str:
    """Return the requirements of a file, with those that it includes, or of a list."""
    if not isinstance(given, str):
        return "\n".join(given)
    file = Path(given).expanduser()
    if not file.is_file():
        if file.suffix in (".txt", ".in"):
            raise InvalidRequest(f"There is no {given}: check the path of --requirements.")
        return "\n".join(split_list(given))
    return requirements_of(file)


def _manifest(given: dict[str, Any], *, tell: bool) -> tuple[str, dict[str, Any]]:
    """Return the text of an AdaptDLJob, and what else the command says of it."""
    file, what, include = given.pop("file"), given.pop("what"), given.pop("include")
    said = {name: given.pop(name) for name in ("model", "dataset", "instance_group", "entry_point")}
    if typed := [name for name, value in given.items() if _is_given(value)]:
        shown = {"arguments": "words after --", "max_slots": "--max", "min_slots": "--min", "parameters": "--set"}
        shown |= {
            "named_environment": "--env",
            "secrets": "--secret",
            "tags": "--tag",
            "autolog": "--no-autolog",
            "gpus_per_process": "--one-process",
            "cpus_per_gpu": "--cpus",
            "memory_gib_per_gpu": "--memory",
        }
        names = ", ".join(shown.get(name, f"--{name.replace('_', '-')}") for name in typed)
        raise InvalidRequest(f"An AdaptDLJob takes no {names} beside it: remove the option, or change {file}.")
    manifest = Path(file).read_text(errors="replace")
    if what is not None:
        said["what"] = code = package(what, include)
        said["entry_point"] = said["entry_point"] or script_of(manifest, code)
        tell_of(code, tell=tell)
    return manifest, said


def script_of(manifest: str, code: Package) -> str:
    """Return the file of the folder that the manifest names, by its path in an image; "" where that is not one."""
    named = {Path(word).parts for word in re.findall(r"[\w./-]+\.py\b", manifest)}
    found = [file for file in code.files if any(file.parts == parts[-len(file.parts) :] for parts in named)]
    return found[0].as_posix() if len(found) == 1 else ""


def _from_file(file: str | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        values = tomllib.loads(Path(file).read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file} is not valid TOML ({error}): write lines such as max_slots = 4.") from error
    known = {*(option.name for option in _parameters()), "script"}
    unknown = sorted(set(values) - known - {"what", "file", "json", "quiet", "dry_run", "key", "options"})
    options = tuple(f"{name}={values.pop(name)}" for name in unknown)
    if script := values.get("script"):
        values["script"] = str(Path(file).parent / script)
    wanted = values.get("requirements")
    if isinstance(wanted, str) and (Path(file).parent / wanted).is_file():
        values["requirements"] = str(Path(file).parent / wanted)
    return values | ({"options": options} if options else {})


def _parameters() -> list[click.Parameter]:
    return run.params


def _one_or_several(text: str) -> Any:
    """Return the value of a parameter, or the list of several numbers."""
    return searched_values(text) if is_sweep(text) else scalar(text)


def tell_of(code: Package, *, tell: bool) -> None:
    """Say how much is sent, and in any case what the training may need and does not get."""
    if tell:
        click.echo(_size_words(code), err=True)
    tell_left_out(code)


def _size_words(code: Package) -> str:
    count = len(code.files)
    files = "1 file" if count == 1 else f"{count} files"
    return f"Sending {files}, {size_words(code.total_bytes)}, of {code.folder} ({code.chosen_by})"


def _show_preview(found: dict[str, Any], as_json: bool) -> int:
    if as_json:
        show_json(found)
        return Exit.DONE
    facts({
        "would start": found.get("start_text"),
        "GPUs": found.get("target_slots"),
        "processes": found.get("processes_text"),
        "others": found.get("others_text"),
        "would end": found.get("end_text"),
        "missing": found.get("missing_text"),
        "requirements": found.get("skipped_text"),
        "environment": found.get("environment_text"),
    })  # fmt: skip
    click.echo("Nothing was submitted.", err=True)
    sys.stdout.flush()
    return Exit.DONE
