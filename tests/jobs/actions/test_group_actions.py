"""Instance groups made, changed, started, stopped and deleted: who may, what is refused, and what is written down."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from core.errors import Conflict, NotAllowed, NotFound, UserError
from core.models import AuditEntry
from jobs import actions
from jobs.actions.groups import (
    PRESETS,
    InstanceGroupSpec,
    change_instance_group,
    create_and_deploy,
    create_instance_group,
    delete_instance_group,
    start_instance_group,
    stop_instance_group,
)
from jobs.models import InstanceGroup, Job
from jobs.states import JobState
from tests.factories import JobFactory, ResourceGroupFactory, UserFactory, host_with_slots
from tests.jobs.cluster import Cluster
from tests.jobs.conftest import Submit
from workers.models import Host

pytestmark = pytest.mark.django_db

State = InstanceGroup.State


@pytest.fixture
def gpus(db: None) -> str:
    host_with_slots("gpu-host-1", 4)
    return str(ResourceGroupFactory(name="gpus").name)


@pytest.fixture
def dave(group: InstanceGroup) -> User:
    """Administers the group, and nothing else."""
    dave = UserFactory(username="dave")
    group.admins.add(dave)
    return dave


def refusal(error: pytest.ExceptionInfo[UserError]) -> str:
    return " ".join([error.value.message, *(line for lines in error.value.fields.values() for line in lines)])


# --- Made ----------------------------------------------------------------------------------------------------------


def test_it_is_registered_with_all_its_terms(carol: User, alice: User, gpus: str) -> None:
    terms = {
        "policy": "priority", "preemption": True, "quota": 3, "weight": 2, "borrows": False, "lends": False,
        "reclaim_grace_seconds": 5, "minimum_run_seconds": 60, "lowest_priority": 10, "default_priority": 20,
        "highest_priority": 30, "execution_user": "egoadmin", "deployment_directory": "/home/egoadmin/sig",
        "least_isolation": "separate", "description": "For vision.", "members": ["alice"], "admins": ["carol"],
    }  # fmt: skip

    group = create_instance_group(InstanceGroupSpec("vision", gpus, terms=terms), carol)

    group.refresh_from_db()
    assert group.state == State.REGISTERED
    for column, value in terms.items():
        if column not in ("members", "admins"):
            assert getattr(group, column) == value, column
    assert list(group.members.all()) == [alice]
    assert list(group.admins.all()) == [carol]
    entry = AuditEntry.objects.get(kind="instance group")
    assert (entry.actor, entry.verb, entry.name, entry.after["quota"]) == ("carol", "created", "vision", 3)


@pytest.mark.parametrize(
    ("preset", "name"), [(each, name) for each in PRESETS for name in (each.name, *each.wmla_names)]
)
def test_a_template_fills_in_its_terms_under_each_of_its_names(carol: User, gpus: str, preset: Any, name: str) -> None:
    group = create_instance_group(InstanceGroupSpec("sig", gpus, name), carol)

    assert group.template == preset.name
    assert {column: getattr(group, column) for column in preset.terms} == dict(preset.terms)


def test_what_is_given_goes_before_the_template(carol: User, gpus: str) -> None:
    spec = InstanceGroupSpec("sig", gpus, "elastic-fair-share", {"preemption": False})
    assert create_instance_group(spec, carol).preemption is False


def test_deployed_it_is_started_where_a_host_is_ready(carol: User, gpus: str) -> None:
    assert create_and_deploy(InstanceGroupSpec("sig", gpus), carol).state == State.STARTED


def test_deployed_it_stays_registered_where_none_is(carol: User, gpus: str) -> None:
    Host.objects.update(state=Host.State.LOST)
    group = create_and_deploy(InstanceGroupSpec("sig", gpus), carol)
    assert InstanceGroup.objects.get(pk=group.pk).state == State.REGISTERED


def test_only_administrators_of_the_cluster_make_one(dave: User, gpus: str) -> None:
    with pytest.raises(NotAllowed):
        create_instance_group(InstanceGroupSpec("mine", gpus), dave)
    assert not InstanceGroup.objects.filter(name="mine").exists()


def test_a_name_is_taken_once(carol: User, gpus: str, group: InstanceGroup) -> None:
    with pytest.raises(Conflict) as error:
        create_instance_group(InstanceGroupSpec("sig-elastic", gpus), carol)
    assert (error.value.code, list(error.value.fields)) == ("name_taken", ["name"])


BAD_TERMS = [
    ({"policy": "lottery"}, "Policy must be one of fifo, priority, fairshare, goodput."),
    ({"preemption": "yes"}, "The value must be true or false."),
    ({"quota": -1}, "The quota must be a whole number from 0 to 1,000,000."),
    ({"quota": True}, "The quota must be"),
    ({"weight": -1}, "The weight must be a whole number from 0 to 10,000."),
    ({"weight": 0}, "With weight 0, a group uses its quota only: set a quota or a weight."),
    ({"weight": None}, "The weight must be"),
    ({"reclaim_grace_seconds": 86401}, "The reclaim grace must be a whole number from 0 to 86,400."),
    ({"minimum_run_seconds": 2**40}, "The minimum run time must be"),
    ({"lowest_priority": 0}, "The lowest priority must be a whole number from 1 to 10,000."),
    ({"lowest_priority": 50, "highest_priority": 40}, "The highest priority is 40, below the lowest one, 50."),
    ({"highest_priority": 100}, "The default priority, 5000, must lie between 1 and 100: change it."),
    ({"resource_group": "nowhere"}, "No resource group with GPUs has this name"),
    ({"resource_group": "cpus"}, "No resource group with GPUs has this name"),
    ({"resource_group": []}, "No resource group with GPUs has this name"),
    ({"members": ["alice", "nobody\0"]}, "User 'nobody\\x00' not found: check the spelling."),
    ({"members": "alice"}, "Give a list of user names."),
    ({"admins": [3]}, "Give a list of user names."),
    ({"description": "x" * 201}, "Use at most 200 letters"),
    ({"description": "a\0b"}, "Use at most 200 letters"),
    ({"execution_user": "\u202eroot"}, "Use at most 64 letters"),
    ({"deployment_directory": "home/me"}, "Enter an absolute path, which begins with a slash."),
]


@pytest.mark.parametrize(("terms", "sentence"), BAD_TERMS)
def test_terms_that_cannot_be_are_refused_by_both_doors(
    carol: User, alice: User, gpus: str, group: InstanceGroup, terms: dict[str, Any], sentence: str
) -> None:
    ResourceGroupFactory(name="cpus", kind="service")
    changed = {"resource_group": gpus, **terms}
    with pytest.raises(UserError) as making:
        create_instance_group(InstanceGroupSpec("new", changed.pop("resource_group"), terms=changed), carol)
    with pytest.raises(UserError) as changing:
        change_instance_group(group.pk, terms, carol)

    assert sentence in refusal(making)
    assert sentence in refusal(changing)
    assert InstanceGroup.objects.get().revision == 1
    assert not AuditEntry.objects.filter(kind="instance group").exists()


def test_all_mistakes_are_said_at_once(carol: User, gpus: str) -> None:
    with pytest.raises(UserError) as error:
        create_instance_group(InstanceGroupSpec("", gpus, "no-such", {"weight": 0, "policy": "x"}), carol)
    assert set(error.value.fields) == {"name", "template", "weight", "policy"}


# --- Changed -------------------------------------------------------------------------------------------------------


def test_a_change_says_what_it_changed_and_is_written_down(carol: User, alice: User, group: InstanceGroup) -> None:
    change = change_instance_group(group.pk, {"quota": 4, "weight": 1, "members": ["alice"], "policy": "fifo"}, carol)

    assert change.phrases == [
        "policy from fair share to first come, first served",
        "quota from no quota to 4 GPUs",
        "members from everybody to alice",
    ]
    group.refresh_from_db()
    assert (group.quota, group.policy, group.revision) == (4, "fifo", 2)
    entry = AuditEntry.objects.get(kind="instance group")
    assert (entry.actor, entry.verb) == ("carol", "changed")
    assert (entry.before, entry.after) == (change.before, change.after)


def test_a_group_with_a_quota_may_have_weight_0(carol: User, group: InstanceGroup) -> None:
    change = change_instance_group(group.pk, {"quota": 4, "weight": 0}, carol)
    assert change.phrases == ["quota from no quota to 4 GPUs", "weight from 1 to 0"]
    with pytest.raises(UserError, match="uses its quota only"):
        change_instance_group(group.pk, {"quota": None}, carol)


def test_the_same_terms_again_change_nothing(carol: User, group: InstanceGroup) -> None:
    assert change_instance_group(group.pk, {"weight": 1, "members": []}, carol).phrases == []
    assert InstanceGroup.objects.get().revision == 1
    assert not AuditEntry.objects.exists()


def test_what_was_changed_is_changed_back(carol: User, alice: User, group: InstanceGroup) -> None:
    change = change_instance_group(group.pk, {"quota": 4, "members": ["alice"]}, carol)
    back = change_instance_group(group.pk, change.before, carol, revision=2)
    assert back.after == {"quota": None, "members": []}


def test_a_form_that_is_out_of_date_changes_nothing(carol: User, group: InstanceGroup) -> None:
    change_instance_group(group.pk, {"quota": 4}, carol, revision=1)
    with pytest.raises(Conflict) as error:
        change_instance_group(group.pk, {"quota": 6}, carol, revision=1)
    assert error.value.code == "stale_group"
    assert InstanceGroup.objects.get().quota == 4


@pytest.mark.parametrize(
    "terms",
    [
        {"policy": "fifo"},
        {"preemption": False},
        {"reclaim_grace_seconds": 1},
        {"minimum_run_seconds": 1},
        {"default_priority": 1},
        {"lowest_priority": 2},
        {"highest_priority": 9000},
        {"members": ["dave"]},
    ],
)
def test_its_own_administrator_changes_how_its_jobs_share(
    dave: User, group: InstanceGroup, terms: dict[str, Any]
) -> None:
    assert change_instance_group(group.pk, terms, dave).after == terms


@pytest.mark.parametrize(
    "terms",
    [
        {"quota": 8},
        {"weight": 2},
        {"resource_group": "gpus"},
        {"borrows": False},
        {"lends": False},
        {"admins": ["dave"]},
        {"execution_user": "root"},
        {"policy": "fifo", "quota": 8},
    ],
)
def test_what_others_pay_for_is_not_the_groups_own_to_change(
    dave: User, gpus: str, group: InstanceGroup, terms: dict[str, Any]
) -> None:
    with pytest.raises(NotAllowed) as error:
        change_instance_group(group.pk, terms, dave)
    assert set(error.value.fields) == terms.keys() - {"policy"}
    assert InstanceGroup.objects.get().revision == 1


def test_others_change_nothing(alice: User, group: InstanceGroup) -> None:
    group.members.add(alice)
    with pytest.raises(NotAllowed) as error:
        change_instance_group(group.pk, {"policy": "fifo"}, alice)
    assert error.value.fields == {}, "not of one term, but of all"


def test_the_administrator_of_another_group_changes_nothing(dave: User, gpus: str, carol: User) -> None:
    other = create_instance_group(InstanceGroupSpec("other", gpus), carol)
    with pytest.raises(NotAllowed):
        change_instance_group(other.pk, {"policy": "fifo"}, dave)


def test_a_group_that_is_gone_is_not_found(carol: User) -> None:
    for act in (start_instance_group, stop_instance_group, delete_instance_group):
        with pytest.raises(NotFound):
            act(4711, carol)
    with pytest.raises(NotFound):
        change_instance_group(4711, {"weight": 2}, carol)


# --- Started, stopped, deleted -------------------------------------------------------------------------------------


def test_stopped_it_takes_no_trainings_and_those_that_run_go_on(carol: User, cluster: Cluster, submit: Submit) -> None:
    running = submit(max_slots=4)
    cluster.turn()
    group = InstanceGroup.objects.get()
    stop_instance_group(group.pk, carol)

    with pytest.raises(UserError) as error:
        submit(name="T2")
    assert list(error.value.fields) == ["instance_group"]
    running.refresh_from_db()
    assert running.state in (JobState.STARTING, JobState.RUNNING)
    start_instance_group(group.pk, carol)
    assert submit(name="T2").state == JobState.PENDING
    assert [entry.verb for entry in AuditEntry.objects.filter(kind="instance group").order_by("id")] == [
        "stopped",
        "started",
    ]


def test_one_that_was_never_started_takes_none(submit: Submit) -> None:
    InstanceGroup.objects.update(state=State.REGISTERED)
    with pytest.raises(UserError) as error:
        submit()
    assert list(error.value.fields) == ["instance_group"]


@pytest.mark.parametrize("state", [Host.State.LOST, Host.State.DRAINING, Host.State.OFFLINE])
def test_without_a_host_that_is_ready_it_is_not_started(carol: User, gpus: str, state: str) -> None:
    group = create_instance_group(InstanceGroupSpec("sig", gpus), carol)
    Host.objects.update(state=state)
    with pytest.raises(Conflict) as error:
        start_instance_group(group.pk, carol)
    assert error.value.code == "not_deployed"


def test_starting_and_stopping_twice_is_refused(carol: User, group: InstanceGroup) -> None:
    with pytest.raises(Conflict, match="is already started"):
        start_instance_group(group.pk, carol)
    stop_instance_group(group.pk, carol)
    with pytest.raises(Conflict, match="is not started"):
        stop_instance_group(group.pk, carol)


@pytest.mark.parametrize("act", [start_instance_group, stop_instance_group, delete_instance_group])
def test_its_own_administrator_does_neither_start_stop_nor_delete_it(
    dave: User, group: InstanceGroup, act: Any
) -> None:
    with pytest.raises(NotAllowed):
        act(group.pk, dave)
    assert InstanceGroup.objects.get(pk=group.pk).revision == 1


def test_it_is_deleted_only_without_trainings(carol: User, group: InstanceGroup) -> None:
    job = JobFactory(instance_group=group, state=JobState.PENDING)
    with pytest.raises(Conflict) as error:
        delete_instance_group(group.pk, carol)
    assert error.value.code == "in_use"
    job.delete()
    delete_instance_group(group.pk, carol)
    assert not InstanceGroup.objects.exists()
    entry = AuditEntry.objects.get(kind="instance group")
    assert (entry.verb, entry.before["policy"]) == ("deleted", "fairshare")


# --- Bounds of a group ---------------------------------------------------------------------------------------------


def test_a_priority_outside_of_its_bounds_is_refused_everywhere(submit: Submit, alice: User) -> None:
    job = submit()
    InstanceGroup.objects.update(lowest_priority=4000, highest_priority=6000)
    words = "sig-elastic allows priorities from 4000 to 6000, not 6001"
    with pytest.raises(UserError, match=words):
        submit(priority=6001)
    with pytest.raises(UserError, match=words):
        actions.change_job(job.pk, actions.JobChange(priority=6001), "alice")
    actions.change_job(job.pk, actions.JobChange(priority=6000), "alice")
    assert Job.objects.get(pk=job.pk).priority == 6000
