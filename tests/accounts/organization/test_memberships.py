"""Instance groups that follow the provider's groups at each log-in."""

import pytest
from django.contrib.auth.models import User

from accounts.organization.arrivals import Person, arrive
from accounts.organization.group_table import Grants, GroupTable
from core.models import AuditEntry
from core.roles import Role, role_of
from tests.factories import InstanceGroupFactory, UserFactory

pytestmark = pytest.mark.django_db

TABLE = GroupTable(
    (
        ("lab", Grants("viewer", frozenset({"lab"}))),
        ("leads", Grants("data_scientist", frozenset({"lab", "spare"}), frozenset({"lab"}))),
        ("gone", Grants("data_scientist", frozenset({"no such group"}))),
        ("staff", Grants("data_scientist")),
    )
)


def ada(*groups: str) -> User:
    return arrive(Person("https://login.example.org", "Acme", "4711", "ada", frozenset(groups)), TABLE)


def memberships(user: User) -> tuple[set[str], set[str]]:
    members, admins = user.instance_groups, user.administered_groups  # type: ignore[attr-defined]
    return {group.name for group in members.all()}, {group.name for group in admins.all()}


@pytest.fixture(autouse=True)
def _groups() -> None:
    bob = UserFactory(username="bob")
    for name in ("lab", "spare", "by hand"):
        InstanceGroupFactory(name=name).members.add(bob)


def test_each_log_in_gives_and_takes_what_the_table_says() -> None:
    assert memberships(ada("leads")) == ({"lab", "spare"}, {"lab"})
    assert memberships(ada("lab")) == ({"lab"}, set())
    assert role_of(ada("lab")) == Role.VIEWER
    assert role_of(ada("lab", "leads")) == Role.DATA_SCIENTIST


def test_groups_that_the_table_does_not_name_stay_as_they_are() -> None:
    from jobs.models import InstanceGroup

    user = ada("leads")
    InstanceGroup.objects.get(name="by hand").members.add(user)
    assert memberships(ada("staff")) == ({"by hand"}, set())
    assert memberships(User.objects.get(username="bob"))[0] == {"lab", "spare", "by hand"}


def test_the_audit_says_who_came_and_went() -> None:
    ada("leads")
    ada("leads")
    ada("staff")
    entries = AuditEntry.objects.filter(kind="instance group", name="spare").order_by("pk")
    assert [(entry.actor, entry.before, entry.after) for entry in entries] == [
        ("Tidepool", {"members": ["bob"]}, {"members": ["ada", "bob"]}),
        ("Tidepool", {"members": ["ada", "bob"]}, {"members": ["bob"]}),
    ]


def test_a_group_does_not_become_open_to_all_because_its_last_member_goes() -> None:
    from jobs.models import InstanceGroup

    user, lab = ada("leads"), InstanceGroup.objects.get(name="lab")
    lab.members.remove(User.objects.get(username="bob"))

    assert memberships(ada("staff")) == ({"lab"}, set())

    lab.members.add(User.objects.get(username="bob"))
    assert memberships(ada("staff")) == (set(), set())
    assert role_of(user) == Role.DATA_SCIENTIST


def test_an_instance_group_that_is_not_there_keeps_nobody_out(caplog: pytest.LogCaptureFixture) -> None:
    assert memberships(ada("gone")) == (set(), set())
    assert "names the instance group no such group, which does not exist" in caplog.text
