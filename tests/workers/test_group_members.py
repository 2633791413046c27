"""The table of hosts in a resource group, its totals, and what it shares with others."""

import pytest

from tests.factories import HostFactory, ResourceGroupFactory, SlotClaimFactory, host_with_slots
from workers.actions import ResourceGroupSpec
from workers.forms import caret, initial_of
from workers.group_members import COOKIE, Totals, members, overlaps, shown_columns, totals
from workers.group_rules import Offer
from workers.models import Host, ResourceGroup
from workers.queries import device_models, held_indexes, listed_hosts

pytestmark = pytest.mark.django_db


@pytest.fixture
def hosts(db: None) -> list[Host]:
    """Hosts of four GPUs, of two, and of none."""
    host_with_slots("gpu-host-1", 4)
    host_with_slots("gpu-host-2", 2)
    HostFactory(name="login", ngpus=0, ncpus=16)
    return listed_hosts()


def rows_of(offer: Offer, hosts: list[Host]) -> dict[str, tuple[bool, int | None, int | None, str]]:
    rows = members(offer, hosts, held_indexes(), device_models())
    return {row.host.name: (row.is_member, row.slots, row.free, row.problem) for row in rows}


def test_members_and_their_slots_follow_the_rule(hosts: list[Host]) -> None:
    SlotClaimFactory(slot=hosts[0].slots.get(index=1))
    assert rows_of(Offer("ngpus", requirement="ngpus > 0"), hosts) == {
        "gpu-host-1": (True, 4, 3, ""),
        "gpu-host-2": (True, 2, 2, ""),
        "login": (False, 0, 0, ""),
    }


def test_what_a_rule_cannot_give_is_said_at_the_host(hosts: list[Host]) -> None:
    rows = rows_of(Offer("8 / ngpus", requirement="nthreads > 1"), hosts)
    assert rows["gpu-host-2"] == (False, 4, 2, "the rule gives 4 slots, and the host has 2 GPUs")
    assert rows["gpu-host-1"][3] == "this host does not report nthreads"
    assert rows["login"] == (False, None, None, "it divides by zero on this host")


def test_totals_count_members_and_the_slots_of_those_that_are_there(hosts: list[Host]) -> None:
    Host.objects.filter(name="gpu-host-2").update(state=Host.State.OFFLINE)
    rows = members(Offer("ngpus"), listed_hosts(), {}, {})
    assert totals(rows) == Totals(hosts=3, cpus=32, slots=4)


def test_groups_share_the_slots_with_the_lowest_indexes(hosts: list[Host]) -> None:
    ResourceGroupFactory(name="halves", slot_rule="ngpus // 2")
    ResourceGroupFactory(name="all", slot_rule="ngpus")
    ResourceGroupFactory(name="cpus", slot_rule="ncpus", kind=ResourceGroup.Kind.SERVICE)
    ResourceGroupFactory(name="none", slot_rule="0")
    found = overlaps(Offer("ngpus", requirement="ngpus > 2"), ResourceGroup.objects.all(), hosts)
    assert [(overlap.group, overlap.slots, overlap.hosts) for overlap in found] == [
        ("all", 4, ["gpu-host-1"]),
        ("halves", 2, ["gpu-host-1"]),
    ]


def test_a_group_still_shows_a_removed_host_that_it_lists(hosts: list[Host]) -> None:
    Host.objects.filter(name="login").update(state=Host.State.OFFLINE, removed_at="2026-01-01T00:00Z")
    group = ResourceGroupFactory(selection=ResourceGroup.Selection.STATIC)
    assert "login" not in [host.name for host in listed_hosts(group)]
    group.hosts.set(Host.objects.all())
    assert [host.name for host in listed_hosts(group)] == ["gpu-host-1", "gpu-host-2", "login"]


@pytest.mark.parametrize(
    ("cookies", "shown"),
    [
        ({}, {"ncpus", "maxmem"}),
        ({COOKIE: "ngpus.free"}, {"ngpus", "free"}),
        ({COOKIE: ""}, set()),
        ({COOKIE: "ngpus.<b>.password"}, {"ngpus"}),
    ],
)
def test_chosen_columns_are_those_that_there_are(cookies: dict[str, str], shown: set[str]) -> None:
    assert shown_columns(cookies) == shown


@pytest.mark.parametrize(
    ("rule", "initial"),
    [
        ("4", {"rule": "number", "number": "4"}),
        ("ncpus*2", {"rule": "attribute", "attribute": "ncpus", "factor": "2"}),
        ("ngpus * 1", {"rule": "attribute", "attribute": "ngpus", "factor": "1"}),
        ("ngpus", {"rule": "formula", "formula": "ngpus"}),
        ("ncpus*2.5", {"rule": "formula", "formula": "ncpus*2.5"}),
        ("٤", {"rule": "formula", "formula": "٤"}),
    ],
)
def test_a_stored_rule_is_shown_as_it_was_chosen(rule: str, initial: dict[str, str]) -> None:
    assert initial.items() <= initial_of(ResourceGroupSpec("group", rule)).items()


@pytest.mark.parametrize(
    ("text", "marked"),
    [("ngpus", ""), ("ngpus +", "ngpus +\n       ^"), ("npgus*2", "npgus*2\n^"), ("\tx", " x\n ^")],
)
def test_a_mark_stands_under_the_character_where_it_goes_wrong(text: str, marked: str) -> None:
    assert caret(text) == marked
