"""Secrets: who adds, chooses, replaces and deletes which, what each refusal says, and how they reach a host."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core import serializers
from django.db import IntegrityError, transaction
from tidepool.protocol import to_json

from core.errors import Conflict, NotAllowed, NotFound, UserError
from core.models import AuditEntry
from core.sealing import UnreadableError, seal, unseal
from jobs import actions
from jobs.actions.secrets import SecretSpec, add_secret, delete_secret, replace_secret
from jobs.control.dispatch import build_sync
from jobs.models import InstanceGroup, Job, Secret, SecretUse
from jobs.queries.secrets import secret_names, visible_secrets, who_else_reads
from jobs.states import JobState
from tests.factories import InstanceGroupFactory, UserFactory
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from tests.stored_secrets import CANARY, own_secret
from workers.executor.sealed_secrets import UnreadableSecretsError, opened_secrets
from workers.host_keys import host_key
from workers.models import Host

pytestmark = pytest.mark.django_db


def refused(call: Any, field: str) -> str:
    with pytest.raises(UserError) as error:
        call()
    return str(error.value.fields[field][0])


def everything_stored() -> str:
    """Return every row of the database, as `manage.py dumpdata` writes them."""
    models = [model for model in apps.get_models() if model._meta.managed]
    return "".join(serializers.serialize("json", model._default_manager.all()) for model in models)


@pytest.fixture
def gail(group: InstanceGroup) -> User:
    """An administrator of the instance group."""
    user: User = UserFactory(username="gail")
    group.admins.add(user)
    return user


@pytest.mark.parametrize(
    ("name", "word"),
    [
        *(("", "variable"), ("1A", "variable"), ("A-B", "variable"), ("A B", "variable"), ("Ä", "variable")),
        *(("A=B", "variable"), ("A\n", "variable"), ("x" * 129, "variable")),
        *(("PATH", "meaning"), ("TIDEPOOL_X", "meaning"), ("LD_PRELOAD", "meaning"), ("PYTHONPATH", "meaning")),
        *(("RANK", "meaning"), ("CUDA_VISIBLE_DEVICES", "meaning"), ("HOME", "meaning")),
    ],
)
def test_a_name_is_that_of_a_variable_with_no_other_meaning(alice: User, name: str, word: str) -> None:
    assert word in refused(lambda: add_secret(SecretSpec(name=name, value=CANARY), alice), "name")


@pytest.mark.parametrize("value", ["", "short", "  padded ", "\0" * 10, "x" * 32_769, "ü" * 20_000])
def test_a_value_has_a_length_that_can_be_masked_and_carried(alice: User, value: str) -> None:
    sentence = refused(lambda: add_secret(SecretSpec(name="TOKEN", value=value), alice), "value")
    assert sentence.startswith("Give at")
    assert len(value) < 9 or value not in sentence


def test_two_users_may_have_secrets_of_one_name_and_one_user_may_not(alice: User) -> None:
    own_secret(alice)
    own_secret(UserFactory(username="bob"))
    assert "replace its value" in refused(lambda: add_secret(SecretSpec(name="HF_TOKEN", value=CANARY), alice), "name")
    row = Secret.objects.get(owner=alice)
    with pytest.raises(IntegrityError), transaction.atomic():
        Secret.objects.create(owner=alice, name="HF_TOKEN", sealed="x", changed_at=row.changed_at)


def test_a_secret_belongs_to_a_user_or_to_a_group_but_not_to_both_or_none(alice: User, group: InstanceGroup) -> None:
    row = own_secret(alice)
    for columns in ({"owner": None, "group": None}, {"owner": alice, "group": group}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Secret.objects.filter(pk=row.pk).update(**columns)


def test_administrators_of_a_group_add_its_secrets_and_members_only_see_that_they_are_there(
    alice: User, gail: User, group: InstanceGroup
) -> None:
    spec = SecretSpec(name="TEAM_TOKEN", value=CANARY, instance_group="sig-elastic")
    assert "administer" in refused(lambda: add_secret(spec, alice), "instance_group")
    row = add_secret(spec, gail)
    assert [*visible_secrets(alice)] == [row]
    with pytest.raises(NotAllowed, match="administrator of sig-elastic"):
        replace_secret(row.pk, CANARY, alice)
    with pytest.raises(NotAllowed, match="administrator of sig-elastic"):
        delete_secret(row.pk, alice)
    group.members.add(gail)
    assert not visible_secrets(alice), "the group is not open to her any more"
    with pytest.raises(NotFound):
        replace_secret(row.pk, CANARY, alice)


def test_nobody_else_sees_the_secret_of_a_user(alice: User) -> None:
    row = own_secret(alice)
    for user in (UserFactory(username="bob"), UserFactory(username="root", is_staff=True)):
        assert not visible_secrets(user)
        with pytest.raises(NotFound):
            delete_secret(row.pk, user)


def test_a_training_gets_the_users_secret_or_else_the_groups(
    alice: User, gail: User, group: InstanceGroup, submit: Submit
) -> None:
    shared = [
        add_secret(SecretSpec(name=name, value=CANARY, instance_group=group.name), gail)
        for name in ("HF_TOKEN", "TEAM_TOKEN")
    ]
    mine = own_secret(alice)
    assert secret_names(alice, [group]) == ["HF_TOKEN", "TEAM_TOKEN"]
    job = submit(secrets=" HF_TOKEN  TEAM_TOKEN HF_TOKEN")
    assert job.secrets == "HF_TOKEN TEAM_TOKEN"
    assert {use.secret for use in job.secret_uses.all()} == {mine, shared[1]}


@pytest.mark.parametrize("name", ["NO_SUCH", "BOBS", "OTHER_GROUPS", "\0", "x" * 500])
def test_a_training_gets_nobody_elses_secret(alice: User, submit: Submit, name: str) -> None:
    own_secret(UserFactory(username="bob"), "BOBS")
    other = InstanceGroupFactory(name="other")
    Secret.objects.create(group=other, name="OTHER_GROUPS", sealed="x", changed_at=other.created_at)
    sentence = refused(lambda: submit(secrets=name), "secrets")
    assert "Neither you nor sig-elastic have" in sentence
    assert "page Secrets" in sentence


def test_a_name_is_given_once(alice: User, submit: Submit) -> None:
    own_secret(alice)
    sentence = refused(lambda: submit(secrets="HF_TOKEN", environment={"HF_TOKEN": "x"}), "secrets")
    assert "also an environment variable" in sentence
    assert "at most 20" in refused(lambda: submit(secrets=" ".join(f"S{n}" for n in range(21))), "secrets")


def test_run_again_asks_for_the_secrets_of_whoever_runs_it(alice: User, submit: Submit) -> None:
    own_secret(alice)
    job = submit(secrets="HF_TOKEN")
    again = actions.clone(job, alice)
    assert [use.secret.owner for use in again.secret_uses.all()] == [alice]
    root = UserFactory(username="root", is_staff=True)
    assert "Neither you nor" in refused(lambda: actions.clone(job, root), "secrets")
    mine = own_secret(root)
    assert actions.clone(job, root).secret_uses.get().secret == mine


def test_a_secret_stays_while_a_training_would_start_without_it(alice: User, submit: Submit) -> None:
    row = own_secret(alice)
    job = submit(secrets="HF_TOKEN")
    with pytest.raises(Conflict, match=f"Training {job.pk} would start without HF_TOKEN"):
        delete_secret(row.pk, alice)
    actions.cancel(job.pk, "alice")
    delete_secret(row.pk, alice)
    job.refresh_from_db()
    assert (job.secrets, SecretUse.objects.count()) == ("HF_TOKEN", 0)
    assert "page Secrets" in refused(lambda: actions.clone(job, alice), "secrets")


def test_a_replaced_value_is_given_at_the_next_start(alice: User, submit: Submit, cluster: Cluster) -> None:
    row = own_secret(alice)
    job = submit(secrets="HF_TOKEN")
    replace_secret(row.pk, "another value", alice)
    assert [secret.value for secret in given_to(job, cluster)] == ["another value"]


def test_the_audit_says_who_changed_which_and_no_value(alice: User) -> None:
    row = own_secret(alice)
    replace_secret(row.pk, CANARY + "2", alice)
    delete_secret(row.pk, alice)
    entries = AuditEntry.objects.filter(kind="secret").order_by("pk")
    assert [(entry.verb, entry.actor, entry.name) for entry in entries] == [
        (verb, "alice", "HF_TOKEN of alice") for verb in ("added", "replaced", "deleted")
    ]


# --- the way to a host ----------------------------------------------------------------------------------------------


def given_to(job: Job, cluster: Cluster) -> Iterable[Any]:
    """Start the job, and return the secrets that its host opens."""
    Host.objects.update(key_number=1)
    cluster.cycle()
    name = job.claims.select_related("slot__host").first().slot.host.name
    [desired] = build_sync(name).jobs
    assert desired.user_secrets_problem == ""
    return opened_secrets(host_key(name, 1), name, desired.job, desired.attempt, desired.user_secrets)


def test_a_host_alone_opens_what_it_is_sent_for_one_attempt(alice: User, submit: Submit, cluster: Cluster) -> None:
    own_secret(alice)
    job = submit(secrets="HF_TOKEN", max_slots=1)
    assert [(secret.name, secret.value, secret.is_file) for secret in given_to(job, cluster)] == [
        ("HF_TOKEN", CANARY, False)
    ]
    name = job.claims.select_related("slot__host").first().slot.host.name
    sync = build_sync(name)
    [desired] = sync.jobs
    assert CANARY not in json.dumps(to_json(sync))
    sealed = desired.user_secrets
    changed = ("A" if sealed[40] != "A" else "B").join((sealed[:40], sealed[41:]))
    for key, host, attempt, text in (
        (host_key("gpu-host-2", 1), name, 1, sealed),
        (host_key(name, 2), name, 1, sealed),
        (host_key(name, 1), "gpu-host-9", 1, sealed),
        (host_key(name, 1), name, 2, sealed),
        (host_key(name, 1), name, 1, changed),
        (host_key(name, 1), name, 1, "not base64!"),
        (host_key(name, 1), name, 1, "QUJD"),
    ):
        with pytest.raises(UnreadableSecretsError, match="join again"):
            opened_secrets(key, host, job.pk, attempt, text)


def test_a_host_without_a_key_gets_a_reason_and_the_training_fails_with_it(
    alice: User, submit: Submit, cluster: Cluster
) -> None:
    own_secret(alice)
    job = submit(secrets="HF_TOKEN", max_slots=1)
    cluster.cycle()
    name = job.claims.select_related("slot__host").first().slot.host.name
    [desired] = build_sync(name).jobs
    assert desired.user_secrets == ""
    assert desired.user_secrets_problem.startswith(f"{name} has no key of its own")
    job.refresh_from_db()
    cluster.hosts[name].write(job, f"shim.{name}", "secrets_failed", why=desired.user_secrets_problem)
    cluster.report()
    cluster.settle()
    job.refresh_from_db()
    assert (job.state, job.reason_code) == (JobState.FAILED, "SECRETS_FAILED")
    assert f"could not get its secrets: {name} has no key" in job.reason_text


def test_without_the_sites_key_file_a_value_cannot_be_had(
    alice: User, submit: Submit, cluster: Cluster, settings: Any
) -> None:
    row = own_secret(alice)
    job = submit(secrets="HF_TOKEN", max_slots=1)
    Host.objects.update(key_number=1)
    cluster.cycle()
    settings.USER_SECRETS_KEY = "the key of another site"
    with pytest.raises(UnreadableError, match="restore that file"):
        unseal(row.sealed, row.row_name)
    name = job.claims.select_related("slot__host").first().slot.host.name
    [desired] = build_sync(name).jobs
    assert (desired.user_secrets, "encrypted with another key" in desired.user_secrets_problem) == ("", True)


def test_a_value_that_is_moved_to_another_row_does_not_open(alice: User) -> None:
    row = own_secret(alice)
    bobs = own_secret(UserFactory(username="bob"))
    Secret.objects.filter(pk=bobs.pk).update(sealed=row.sealed)
    bobs.refresh_from_db()
    with pytest.raises(UnreadableError, match="changed by hand"):
        unseal(bobs.sealed, bobs.row_name)
    assert unseal(seal("ä" * 100, "x"), "x") == "ä" * 100


def test_no_row_contains_a_value(alice: User, gail: User, submit: Submit, cluster: Cluster) -> None:
    own_secret(alice)
    add_secret(SecretSpec(name="TEAM_TOKEN", value=CANARY, instance_group="sig-elastic", is_file=True), gail)
    job = submit(secrets="HF_TOKEN TEAM_TOKEN", max_slots=1)
    given_to(job, cluster)
    assert "HF_TOKEN" in everything_stored()
    assert CANARY not in everything_stored()


def test_the_forms_say_where_trainings_are_not_kept_apart(cluster: Cluster) -> None:
    assert who_else_reads() == ""
    Host.objects.filter(name="gpu-host-1").update(isolation=Host.Isolation.SHARED)
    assert "not kept apart on gpu-host-1" in who_else_reads()


def test_the_key_is_a_file_of_its_own(settings: Any) -> None:
    file = Path(settings.TIDEPOOL_SECRETS_KEY_FILE)
    assert (file.name, file.stat().st_mode & 0o777) == ("secrets-key", 0o600)
    assert settings.USER_SECRETS_KEY != settings.SECRET_KEY
