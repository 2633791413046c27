from pathlib import Path

import pytest

from accounts.organization.group_table import _ROLES, Grants, GroupTable, GroupTableError, read_group_table
from core.roles import Role


def table(tmp_path: Path, text: str) -> GroupTable:
    file = tmp_path / "groups.toml"
    file.write_text(text)
    return read_group_table(file)


def test_groups_add_up_and_the_highest_role_counts(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        """
        [[groups]]
        group = "lab"
        role = "viewer"
        instance_groups = ["lab"]
        [[groups]]
        group = "leads"
        role = "data_scientist"
        instance_groups = ["spare"]
        administers = ["lab"]
        """,
    )
    assert found.managed == {"lab", "spare"}
    assert found.granted(["other"]) is None
    assert found.granted(["lab", "other"]) == Grants("viewer", frozenset({"lab"}))
    assert found.granted(["leads", "lab"]) == Grants("data_scientist", frozenset({"lab", "spare"}), frozenset({"lab"}))


def test_a_star_is_everybody(tmp_path: Path) -> None:
    found = table(tmp_path, '[[groups]]\ngroup = "*"\nrole = "viewer"')
    assert found.granted([]) == Grants("viewer")


def test_its_roles_are_the_sites_in_their_order() -> None:
    assert list(_ROLES) == [Role.VIEWER, Role.DATA_SCIENTIST, Role.CLUSTER_ADMIN]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"has no groups: add at least one \[\[groups\]\]"),
        ("groups = 3", r"has no groups"),
        ("groups = [3]", r"Group 1 in .* is not a table"),
        ("[[groups]\n", r"cannot be read \(.*\): write the groups there, in TOML"),
        ('[[groups]]\nrole = "viewer"', r"Group 1 in .* has no name: add group = "),
        ('[[groups]]\ngroup = "a"', r"Group 1 in .* has no role: add role = with one of viewer, data_scientist"),
        ('[[groups]]\ngroup = "a"\nrole = "root"', r"has no role"),
        ('[[groups]]\ngroup = "a"\nrole = ["viewer"]', r"has no role"),
        ('[[groups]]\ngroup = "a"\nrole = "viewer"\nadmin = 1', r"has the unknown field admin: use administers, group"),
        ('[[groups]]\ngroup = "a"\nrole = "viewer"\nadministers = "b"', r"administers must be a list of names"),
        ('[group.a]\nrole = "viewer"', r"has no groups"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(GroupTableError, match=sentence):
        table(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(GroupTableError, match=r"groups\.toml cannot be read"):
        read_group_table(tmp_path / "groups.toml")
