"""Tests of named environments: written by administrators, chosen by trainings, and first in the order of sources."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from core.errors import NotAllowed, UserError
from core.models import AuditEntry
from jobs import actions
from jobs.actions.environments import EnvironmentSpec, change_environment, create_environment, delete_environment
from jobs.models import DefaultEnvironment, InstanceGroup, NamedEnvironment
from jobs.queries.environments import find_visible_environment, visible_environments
from models_registry.models import RegisteredModelVersion
from tests.factories import HostFactory, InstanceGroupFactory, ResourceGroupFactory
from tests.jobs.actions.test_project_files import PROJECT, lock
from tests.jobs.conftest import Submit

pytestmark = pytest.mark.django_db


@pytest.fixture
def vision(carol: User) -> NamedEnvironment:
    return create_environment(EnvironmentSpec("vision", "timm>=1.0  # models\n"), carol)


def test_a_chosen_environment_comes_before_all_that_the_code_requires(
    submit: Submit, code: RegisteredModelVersion, vision: NamedEnvironment
) -> None:
    Path(code.path, "requirements.txt").write_text("listed>=1\n")
    job = submit(named_environment="vision")
    assert (job.named_environment, job.requirements) == ("vision", "timm>=1.0")
    assert submit().requirements == "listed>=1"


def test_the_groups_default_is_for_trainings_that_require_nothing(
    submit: Submit, code: RegisteredModelVersion, group: InstanceGroup, vision: NamedEnvironment, carol: User
) -> None:
    change_environment(vision.pk, {"default_of": (group.name,)}, carol)
    job = submit()
    assert (job.named_environment, job.requirements) == ("vision", "timm>=1.0")
    assert submit(requirements="# none").requirements == ""
    assert submit(requirements="given").requirements == "given"
    Path(code.path, "requirements.txt").write_text("listed>=1\n")
    job = submit()
    assert (job.named_environment, job.requirements) == ("", "listed>=1")


def test_a_clone_gets_what_the_environment_has_by_then(
    submit: Submit, vision: NamedEnvironment, carol: User, alice: User
) -> None:
    job = submit(named_environment="vision")
    change_environment(vision.pk, {"source": "timm>=1.1"}, carol)
    job.refresh_from_db()
    assert job.requirements == "timm>=1.0"
    again = actions.clone(job, alice)
    assert (again.named_environment, again.requirements) == ("vision", "timm>=1.1")


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"named_environment": "sound"}, "'sound' not found: choose one of vision."),
        ({"named_environment": 7.5}, "as text"),
        ({"named_environment": "a\0b"}, "as text"),
        ({"named_environment": "closed"}, "is not for trainings of sig-elastic"),
    ],
)
def test_a_choice_that_cannot_be_met_is_a_sentence(
    submit: Submit, vision: NamedEnvironment, carol: User, choice: dict[str, Any], words: str
) -> None:
    InstanceGroupFactory(name="others", resource_group=ResourceGroupFactory(name="others"))
    create_environment(EnvironmentSpec("closed", "timm", groups=("others",)), carol)
    with pytest.raises(actions.InvalidSubmission) as refused:
        submit(**choice)
    [sentence] = refused.value.fields["named_environment"]
    assert words in sentence


def test_an_environment_takes_no_requirements_beside_it(submit: Submit, vision: NamedEnvironment) -> None:
    with pytest.raises(actions.InvalidSubmission) as refused:
        submit(named_environment="vision", requirements="x")
    assert list(refused.value.fields) == ["requirements"]


def test_users_see_the_environments_of_their_groups(
    group: InstanceGroup, vision: NamedEnvironment, carol: User, alice: User
) -> None:
    closed = InstanceGroupFactory(name="others", resource_group=ResourceGroupFactory(name="others"))
    closed.members.add(carol)
    create_environment(EnvironmentSpec("closed", "timm", groups=("others",)), carol)
    assert [row.name for row in visible_environments(alice).order_by("name")] == ["vision"]
    assert [row.name for row in visible_environments(carol).order_by("name")] == ["closed", "vision"]
    with pytest.raises(UserError):
        find_visible_environment(alice, "closed")


def test_a_locked_project_gives_its_exact_versions(carol: User, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    lock(tmp_path)
    row = create_environment(EnvironmentSpec("locked", PROJECT, (tmp_path / "uv.lock").read_text()), carol)
    assert row.kind == NamedEnvironment.Kind.LOCK
    assert all("==" in line or line.startswith("-") for line in row.lines.splitlines())
    assert "-e ." not in row.lines


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "12"}, "name"),
        ({"source": ""}, "source"),
        ({"source": "# nothing"}, "source"),
        ({"source": "two words"}, "source"),
        ({"source": "-r other.txt"}, "source"),
        ({"source": "timm\0"}, "source"),
        ({"lock": "no lock"}, "lock"),
        ({"groups": ("nobody",)}, "groups"),
        ({"default_of": ("nobody",)}, "default_of"),
        ({"groups": ("others",), "default_of": ("sig-elastic",)}, "default_of"),
        ({"notes": "x" * 1001}, "notes"),
    ],
)
def test_each_invalid_field_is_named(group: InstanceGroup, carol: User, given: dict[str, Any], field: str) -> None:
    InstanceGroupFactory(name="others", resource_group=ResourceGroupFactory(name="others"))
    with pytest.raises(UserError) as refused:
        create_environment(EnvironmentSpec(**{"name": "vision", "source": "timm", **given}), carol)
    assert list(refused.value.fields) == [field]
    assert not NamedEnvironment.objects.exists()


def test_a_name_is_taken_once(vision: NamedEnvironment, carol: User) -> None:
    with pytest.raises(UserError, match="already exists"):
        create_environment(EnvironmentSpec("vision", "timm"), carol)
    other = create_environment(EnvironmentSpec("sound", "timm"), carol)
    with pytest.raises(UserError, match="already exists"):
        change_environment(other.pk, {"name": "vision"}, carol)


def test_a_group_has_one_default(group: InstanceGroup, vision: NamedEnvironment, carol: User) -> None:
    change_environment(vision.pk, {"default_of": (group.name,)}, carol)
    other = create_environment(EnvironmentSpec("sound", "timm", default_of=(group.name,)), carol)
    assert DefaultEnvironment.objects.get().environment == other
    change_environment(other.pk, {"default_of": ()}, carol)
    assert not DefaultEnvironment.objects.exists()


def test_only_administrators_write_and_the_audit_says_what(vision: NamedEnvironment, alice: User, carol: User) -> None:
    for refused in (
        lambda: create_environment(EnvironmentSpec("sound", "timm"), alice),
        lambda: change_environment(vision.pk, {"notes": "x"}, alice),
        lambda: delete_environment(vision.pk, alice),
    ):
        with pytest.raises(NotAllowed):
            refused()
    change_environment(vision.pk, {"notes": "for pictures"}, carol)
    delete_environment(vision.pk, carol)
    entries = AuditEntry.objects.filter(kind="environment").order_by("pk")
    assert [entry.verb for entry in entries] == ["created", "changed", "deleted"]


def test_a_folder_of_the_hosts_is_an_environment(submit: Submit, carol: User, alice: User) -> None:
    row = create_environment(EnvironmentSpec("conda", folder=" /opt//envs/conda/ "), carol)
    assert (row.kind, row.folder, row.lines) == ("folder", "/opt/envs/conda", "--folder /opt/envs/conda")
    job = submit(named_environment="conda")
    assert (job.named_environment, job.requirements) == ("conda", "--folder /opt/envs/conda")
    assert actions.clone(job, alice).requirements == "--folder /opt/envs/conda"
    row = change_environment(row.pk, {"folder": "", "source": "timm"}, carol)
    assert (row.kind, row.folder, row.lines) == ("text", "", "timm")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"folder": "envs/vision"}, "whole path"),
        ({"folder": "/opt/../root"}, "whole path"),
        ({"folder": "/"}, "whole path"),
        ({"folder": "/opt/a\n--image b"}, "whole path"),
        ({"folder": f"/{'x' * 1001}"}, "at most 1000"),
        ({"folder": "/opt/envs", "source": "timm"}, "no requirements beside it"),
        ({"folder": "/opt/envs", "lock": "version = 1"}, "no requirements beside it"),
    ],
)
def test_a_folder_that_cannot_be_is_a_sentence(carol: User, given: dict[str, str], words: str) -> None:
    with pytest.raises(UserError) as refused:
        create_environment(EnvironmentSpec("conda", **given), carol)
    assert list(refused.value.fields) == ["folder"]
    assert words in refused.value.fields["folder"][0]


def test_packages_of_conda_need_a_host_that_installs_them(carol: User) -> None:
    with pytest.raises(UserError, match="and none reports one"):
        create_environment(EnvironmentSpec("conda", "--conda numpy=1.26"), carol)
    HostFactory(conda="mamba")
    row = create_environment(EnvironmentSpec("conda", "--conda numpy=1.26"), carol)
    assert (row.kind, row.lines) == ("text", "--conda numpy=1.26")


def test_an_image_needs_a_host_that_runs_it(carol: User) -> None:
    image = f"--image docker.io/pytorch/pytorch@sha256:{'0f' * 32}"
    with pytest.raises(UserError, match="needs a host with podman, enroot or apptainer, and none reports one"):
        create_environment(EnvironmentSpec("boxed", image), carol)
    HostFactory(images="enroot")
    assert create_environment(EnvironmentSpec("boxed", image), carol).lines == image


def test_no_other_text_names_a_folder(submit: Submit, code: RegisteredModelVersion, carol: User) -> None:
    for refused in (
        lambda: submit(requirements="--folder /opt/envs/conda"),
        lambda: create_environment(EnvironmentSpec("conda", "--folder /opt/envs/conda"), carol),
    ):
        with pytest.raises(UserError, match="only administrators name folders of the hosts"):
            refused()
    Path(code.path, "requirements.txt").write_text("--folder=/opt/envs/conda\n")
    with pytest.raises(UserError, match="only administrators name folders of the hosts"):
        submit()


@pytest.mark.parametrize(
    "columns",
    [
        {"lines": ""},
        {"name": ""},
        {"kind": "lock"},
        {"lock": "x"},
        {"kind": "image"},
        {"folder": "/opt"},
        {"kind": "folder"},
    ],
)
def test_the_database_refuses_an_environment_that_cannot_be(vision: NamedEnvironment, columns: dict[str, str]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        NamedEnvironment.objects.filter(pk=vision.pk).update(**columns)
