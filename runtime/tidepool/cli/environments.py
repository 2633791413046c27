"""env."""

import re
from pathlib import Path
from typing import Any

import click

from tidepool.cli.completion import names_of
from tidepool.cli.context import Context, columns, facts, json_option, listing_options, show_json, show_rows
from tidepool.client.errors import InvalidRequest, NotFound
from tidepool.client.pack import requirements_of
from tidepool.requirement_files import LOCK_FILE, PROJECT_FILES

__all__ = ["env"]

_PACKAGES = "packages"


class _Env(click.Group):
    """Without the name of a command, it lists packages."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_command = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if is_command else [_PACKAGES, *args])


@click.group(cls=_Env)
def env() -> None:
    """List the packages that trainings have, and the environments that they can choose.

    \b
    tidepool env                            # Python and packages of the cluster
    tidepool env torch timm
    tidepool env ls
    tidepool run train.py --env vision
    tidepool env add vision requirements.txt --group team-vision
    tidepool env add sound --folder /opt/envs/sound
    """


@env.command(_PACKAGES)
@click.argument("names", nargs=-1)
@json_option
@click.pass_obj
def list_packages(context: Context, names: tuple[str, ...], as_json: bool) -> None:
    """List the Python version and the packages that trainings have without requirements of their own."""
    found = context.client.software()
    packages = found["packages"]
    if names:
        wanted = [re.sub(r"[-_.]+", "-", name).lower() for name in names]
        if lacking := [name for name in wanted if name not in packages]:
            advice = "require them in a requirements.txt beside the script, or as dependencies in the script (PEP 723)."
            raise NotFound(f"There is no {', '.join(lacking)}: {advice}")
        packages = {name: packages[name] for name in wanted}
    if as_json:
        show_json({"python": found["python"], "packages": packages})
    else:
        columns(("PACKAGE", "VERSION"), [("python", found["python"]), *sorted(packages.items())])


@env.command("ls")
@listing_options
@click.pass_obj
def list_environments(context: Context, as_json: bool, quiet: bool) -> None:
    """List the environments that your trainings can choose with --env."""
    show_rows(context.client.environments(), as_json, quiet, lambda row: row["name"],
              ("NAME", "KIND", "GROUPS", "DEFAULT OF", "TRAININGS", "HOSTS", "NOTES"), _cells, right=(4,),
              none="There are no named environments: trainings get what their code requires.")  # fmt: skip


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    groups = ", ".join(row["groups"]) or "all"
    ready = sum(host["state"] == "ready" for host in row["hosts"])
    hosts = f"{ready} of {len(row['hosts'])} ready" if row["hosts"] else ""
    return row["name"], row["kind"], groups, ", ".join(row["default_of"]), row["trainings"], hosts, row["notes"]


@env.command("show")
@click.argument("name", shell_complete=names_of("environments"))
@json_option
@click.pass_obj
def show_environment(context: Context, name: str, as_json: bool) -> None:
    """Show an environment with its requirements."""
    row = context.client.environment(name)
    if as_json:
        show_json(row)
        return
    names = ("name", "kind", "groups", "default of", "trainings", "hosts", "notes")
    head = dict(zip(names, _cells(row), strict=True))
    hosts = [": ".join(filter(None, (host["host"], host["state"], host["why"]))) for host in row["hosts"]]
    facts({**head, "hosts": "\n".join(hosts), "requirements": "\n".join(row["lines"])})


@env.command("add")
@click.argument("name")
@click.argument("path", type=click.Path(exists=True), required=False)
@click.option("--folder", default="", metavar="PATH", help="Environment that the hosts have in this folder.")
@click.option("--group", "-g", "groups", multiple=True, help="Instance group whose trainings may use it; may be "
              "repeated. Default: all.", shell_complete=names_of("instance-groups"))  # fmt: skip
@click.option("--default-of", multiple=True, metavar="GROUP", help="Instance group whose trainings get it if they "
              "choose none and require nothing.", shell_complete=names_of("instance-groups"))  # fmt: skip
@click.option("--notes", default="", help="Text that users see beside the name.")
@json_option
@click.pass_obj
def add_environment(
    context: Context, name: str, path: str | None, folder: str, groups: tuple[str, ...], default_of: tuple[str, ...],
    notes: str, as_json: bool,
) -> None:  # fmt: skip
    """Add an environment, for administrators: from a requirements file, or a folder with pyproject.toml and uv.lock.

    With --folder, it is an environment that somebody has made on the hosts.
    """
    if (path is None) == (not folder):
        raise InvalidRequest("Give the path of a requirements file or of a project with a lock, or --folder.")
    texts = {"folder": folder} if path is None else _texts(Path(path))
    given = {"name": name, **texts, "groups": groups, "default_of": default_of, "notes": notes}
    row = context.client.connection.json("POST", "environments/", json=given)
    if as_json:
        show_json(row)
    else:
        what = f"the folder {folder} of each host" if folder else f"{len(row['lines'])} requirements"
        click.echo(f"Environment {row['name']}: {what}.", err=True)


def _texts(path: Path) -> dict[str, str]:
    if path.is_file():
        return {"source": requirements_of(path)}
    project, lock = path / PROJECT_FILES[0], path / LOCK_FILE
    if not (project.is_file() and lock.is_file()):
        raise InvalidRequest(
            f"{path} has no {project.name} with {lock.name}: give a requirements file, or run uv lock."
        )
    return {"source": project.read_text(), "lock": lock.read_text()}


@env.command("build")
@click.argument("name", shell_complete=names_of("environments"))
@click.option("--resource-group", default="", metavar="NAME", help="Group whose hosts prepare it. Default: all.",
              shell_complete=names_of("resource-groups"))  # fmt: skip
@json_option
@click.pass_obj
def build_environment(context: Context, name: str, resource_group: str, as_json: bool) -> None:
    """Have hosts prepare an environment now, for administrators, so that no training waits for it."""
    given = {"resource_group": resource_group}
    row = context.client.connection.json("POST", f"environments/{name}/build/", json=given)
    if as_json:
        show_json(row)
        return
    for host in row["hosts"]:
        click.echo(f"{host['host']}: {host['state']}", err=True)


@env.command("rm")
@click.argument("name", shell_complete=names_of("environments"))
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def delete_environment(context: Context, name: str, yes: bool, as_json: bool) -> None:
    """Delete an environment, for administrators. Trainings that were submitted with it keep its requirements."""
    if not yes:
        click.confirm(f"Delete the environment {name}?", abort=True, err=True)
    context.client.connection.json("DELETE", f"environments/{name}/")
    if as_json:
        show_json({"name": name, "deleted": True})
