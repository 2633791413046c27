"""Check each command's output with --json against the schema that its readers are given."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from tidepool.cli import account
from tidepool.cli.app import COMMANDS, cli
from tidepool.client import api
from tidepool.client.config import Profile, profiles

from accounts.tokens import make_token
from capacity.models import FleetState
from jobs.models import Checkpoint
from tests.client.conftest import URL, Call
from tests.scene import Scene
from tests.test_architecture import ROOT
from workers.models import Host

pytestmark = pytest.mark.django_db

SCHEMA = json.loads((ROOT / "docs" / "user" / "cli.schema.json").read_text())


def check(command: str, printed: str) -> Any:
    """The value, which fits the command's schema."""
    value = json.loads(printed)
    # The schema itself is checked once, by test_each_command_with_json_declares_its_shape.
    shape = {**SCHEMA["properties"][command], "$defs": SCHEMA["$defs"]}
    jsonschema.Draft202012Validator(shape).validate(value)
    return value


def commands(group: click.Group = cli, before: str = "") -> Iterator[tuple[str, click.Command]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def test_each_command_with_json_declares_its_shape() -> None:
    with_json = {name for name, command in commands() if any("--json" in each.opts for each in command.params)}
    without = {name for name, _ in commands()} - with_json
    assert {name for name in without if not name.startswith("adaptdl ")} == {"completion", "enable", "logs", "top"}
    with_json |= {"run --dry-run", "submit --dry-run", "study create --dry-run"}
    assert with_json == set(SCHEMA["properties"])
    assert {name.split()[0] for name in with_json} <= set(COMMANDS)
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_what_looks(logged_in: Scene, tidepool: Call) -> None:
    point = {"attempt": 1, "step": 9, "epoch": 1, "path": "p", "size_bytes": 1, "sha256": "0"}
    Checkpoint.objects.create(job=logged_in.done, created_at=logged_in.done.finished_at, **point)
    jobs = {
        "describe": logged_in.failed,
        "why": logged_in.waiting,
        "freeze": logged_in.waiting,
        "why-slow": logged_in.first,
        "flame --last": logged_in.first,
        "trace --last": logged_in.first,
        "stacks --last": logged_in.first,
        "events": logged_in.first,
        "metrics": logged_in.first,
        "results ls": logged_in.done,
        "checkpoints": logged_in.done,
    }
    for command, job in jobs.items():
        name = command.removesuffix(" --last")
        assert check(name, tidepool(*command.split(), job.pk, "--json")[1]), command
    for command in ("whoami", "ps", "queue", "gpus", "env packages", "datasets ls", "models ls"):
        assert check(command, tidepool(*command.split(), "--json")[1]), command
    check("datasets show", tidepool("datasets", "show", "digits", "--json")[1])
    check("models show", tidepool("models", "show", "digits-cnn", "--json")[1])


def test_capacity_with_a_fleet_and_without(logged_in: Scene, tidepool: Call) -> None:
    assert check("capacity", tidepool("capacity", "--json")[1])["fleets"] == []
    logged_in.waiting.min_slots = 12
    logged_in.waiting.max_slots = 12
    logged_in.waiting.save(update_fields=["min_slots", "max_slots"])
    FleetState.objects.create(name="spot", at=timezone.now(), sentence="1 host more: why.", hosts=2, most=4)
    found = check("capacity", tidepool("capacity", "--json")[1])
    [fleet], wanted = found["fleets"], {row["resource_group"]: row for row in found["wanted"]}
    assert (fleet["name"], fleet["retry_at"]) == ("spot", None)
    row = wanted["ComputeHostsGPU"]
    printed = tidepool("capacity")[1]
    for words in (row["why"], f"{row['hosts']} of {row['slots_per_host']}" if row["hosts"] else "", fleet["sentence"]):
        assert words in printed


def test_what_submits_and_adds(logged_in: Scene, tidepool: Call, script: Path) -> None:
    for command in ("run", "submit"):
        check(f"{command} --dry-run", tidepool(command, script, "--dry-run", "--json")[1])
        sweep = ("--set", "rate=1,2", "--dry-run", "--json")
        assert check(f"{command} --dry-run", tidepool(command, script, *sweep)[1])["points"] == 2
    job = check("submit", tidepool("submit", script, "--json", "--name", "first")[1])
    check("clone", tidepool("clone", job["id"], "--json")[1])
    table = script.with_name("numbers.csv")
    table.write_text("a,b\n1,2\n")
    assert check("datasets add", tidepool("datasets", "add", "numbers", table, "--json")[1])["name"] == "numbers"
    assert check("models add", tidepool("models", "add", "hello", script, "--engine", "single", "--json")[1])


def test_what_concerns_studies(logged_in: Scene, tidepool: Call, script: Path) -> None:
    study = logged_in.study.pk
    assert [row["id"] for row in check("study ls", tidepool("study", "ls", "--json")[1])] == [study]
    assert len(check("study show", tidepool("study", "show", study, "--json")[1])["trials"]) == 5
    assert check("study best", tidepool("study", "best", study, "--json")[1])["value"] == 96.4
    for verb in ("pause", "resume", "stop"):
        assert check(f"study {verb}", tidepool("study", verb, study, "--json")[1])["id"] == study
    words = ("study", "create", script, "--space", "epochs=1,2", "--metric", "loss", "--json")
    assert check("study create --dry-run", tidepool(*words, "--dry-run")[1])["points"] == 2
    made = check("study create", tidepool(*words, "--name", "rates", "--trials", 2)[1])
    assert (made["name"], made["space"]) == ("rates", {"epochs": [1, 2]})


def test_what_changes_lists_what_it_changed(logged_in: Scene, tidepool: Call) -> None:
    job = logged_in.waiting.pk
    check("scale", tidepool("scale", job, "--max", 7, "--min", 2, "--json")[1])
    check("undo", tidepool("undo", job, "--json")[1])
    for words in (("priority", job, 6000), ("tag", job, "--add", "base"), ("suspend", job), ("resume", job)):
        [row] = check(str(words[0]), tidepool(*words, "--json")[1])
        assert row["id"] == job
    code, out, said = tidepool("cancel", "-y", logged_in.done.pk, job, "--json")
    assert (code, [row["state"] for row in check("cancel", out)]) == (5, ["CANCELLED"])
    assert str(logged_in.done.pk) in said


def test_what_fetches_and_deletes(logged_in: Scene, tidepool: Call, script: Path) -> None:
    out = script.with_name("out")
    [file] = check("results get", tidepool("results", "get", logged_in.done.pk, out, "scores.csv", "--json")[1])
    assert Path(file["path"]).stat().st_size == file["size_bytes"]
    assert tidepool("models", "add", "hello", script, "--engine", "single")[0] == 0
    for what, name in (("models", "hello"), ("datasets", "measurements")):
        assert check(f"{what} rm", tidepool(what, "rm", "-y", name, "--json")[1])["name"] == name


def test_what_administrators_see_and_do(logged_in: Scene, tidepool: Call, carol: User) -> None:
    profiles().keep("default", Profile(URL, make_token(carol, "cli", None, "full").text))
    for name in ("hosts", "groups", "users"):
        assert check(f"admin {name}", tidepool("admin", name, "--json")[1])
    for words in (
        ("drain", "gpu-host-1"),
        ("resume", "gpu-host-1"),
        ("group", "sig-elastic", "stop"),
        ("invite", "ada"),
        ("deactivate", "-y", "bob"),
    ):
        assert check(f"admin {words[0]}", tidepool("admin", *words, "--json")[1]), words


def test_what_concerns_environments(logged_in: Scene, tidepool: Call, carol: User, tmp_path: Path) -> None:
    profiles().keep("default", Profile(URL, make_token(carol, "cli", None, "full").text))
    (file := tmp_path / "packages.txt").write_text("timm>=1.1\n")
    words = ("env", "add", "vision", file, "--group", "sig-elastic", "--default-of", "sig-elastic", "--json")
    assert check("env add", tidepool(*words)[1])["lines"] == ["timm>=1.1"]
    rows = {row["name"]: row for row in check("env ls", tidepool("env", "ls", "--json")[1])}
    assert set(rows) == {logged_in.environment.name, "vision"}
    row = rows["vision"]
    assert check("env show", tidepool("env", "show", "vision", "--json")[1]) == row
    assert (row["groups"], row["default_of"]) == (["sig-elastic"], ["sig-elastic"])
    folder = tidepool("env", "add", "conda", "--folder", "/opt/envs/conda", "--json")[1]
    assert check("env add", folder)["lines"] == ["--folder /opt/envs/conda"]
    assert tidepool("env", "add", "neither", "--json")[0] != 0
    Host.objects.update(prepares=True)
    assert check("env build", tidepool("env", "build", "vision", "--json")[1])["name"] == "vision"
    built = check("env build", tidepool("env", "build", "vision", "--resource-group", "ComputeHostsGPU", "--json")[1])
    assert [(one["host"], one["state"]) for one in built["hosts"]] == [("gpu-host-1", "asked"), ("gpu-host-2", "asked")]
    assert check("env rm", tidepool("env", "rm", "-y", "conda", "--json")[1])["name"] == "conda"
    assert check("env rm", tidepool("env", "rm", "-y", "vision", "--json")[1])["name"] == "vision"
    assert tidepool("env", "ls", "-q")[1].split() == [logged_in.environment.name]


def test_what_concerns_secrets(logged_in: Scene, tidepool: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {row["name"] for row in check("secret ls", tidepool("secret", "ls", "--json")[1])}
    for value in ("first-value", "second-value"):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{value}\n"))
        code, printed, _ = tidepool("secret", "set", "OF_A_TEST", "--json")
        assert (code, check("secret set", printed)["name"], value in printed) == (0, "OF_A_TEST", False)
    rows = check("secret ls", tidepool("secret", "ls", "--json")[1])
    assert {row["name"] for row in rows} == {*before, "OF_A_TEST"}
    monkeypatch.setattr("sys.stdin", io.StringIO("short"))
    assert tidepool("secret", "set", "TOO_SHORT")[0] != 0
    assert check("secret rm", tidepool("secret", "rm", "-y", "OF_A_TEST", "--json")[1])["name"] == "OF_A_TEST"
    assert tidepool("secret", "rm", "-y", "OF_A_TEST")[0] != 0
    assert {*tidepool("secret", "ls", "-q")[1].split()} == before


def test_logging_in_and_out(scene: Scene, in_process: None, tidepool: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "Connection", api.Connection)
    monkeypatch.setattr(account, "read_line", lambda: make_token(scene.alice, "ci", None).text)
    assert check("login", tidepool("login", URL, "--token-stdin", "--json")[1])["user"] == "alice"
    assert not check("logout", tidepool("logout", "--json")[1])["was_over"]
