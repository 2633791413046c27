"""Tests of administrators' actions on accounts: changes, ends of sessions, refusals, and the audit."""

import base64
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from accounts import actions
from accounts.models import OneTimeLink
from accounts.tokens import make_token
from core.errors import Conflict, NotAllowed, NotFound, UserError
from core.models import AuditEntry, Topic
from core.roles import Role, role_of
from tests.factories import PASSWORD, DatasetFactory

pytestmark = pytest.mark.django_db

OpenAs = Callable[[User], Client]


def entries() -> list[tuple[str, str, str]]:
    return [(entry.actor, entry.verb, entry.name) for entry in AuditEntry.objects.order_by("id")]


def is_told_to_websockets() -> bool:
    return Topic.objects.filter(name="accounts", seq__gt=0).exists()


def basic(user: User) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{user.username}:{PASSWORD}".encode()).decode()}


class TestInvite:
    def test_makes_a_user_without_a_password(self, carol: User) -> None:
        handout = actions.invite(carol, "erin", Role.VIEWER)

        assert not handout.user.has_usable_password()
        assert role_of(handout.user) == Role.VIEWER
        assert timedelta(days=6) < handout.expires_at - timezone.now() <= timedelta(days=7)
        secret = handout.path.rstrip("/").rpartition("/")[2]
        assert secret not in str(list(OneTimeLink.objects.values()))
        assert entries() == [("carol", "invited", "erin")]

    @pytest.mark.parametrize(
        "name", ["", " ", "a b", "a/b", "..", ".hidden", "x" * 151, "a\0b", "\u202eevil", "\ud800", "<b>", "alice"]
    )
    def test_refuses_names_that_cannot_be_one(self, alice: User, carol: User, name: str) -> None:
        with pytest.raises(UserError) as refusal:
            actions.invite(carol, name, Role.DATA_SCIENTIST)

        assert set(refusal.value.fields) == {"username"}
        assert User.objects.count() == 2

    def test_refuses_a_name_that_looks_like_anothers(self, alice: User, carol: User) -> None:
        with pytest.raises(Conflict, match="already"):
            actions.invite(carol, "ALICE", Role.DATA_SCIENTIST)

    def test_refuses_a_role_that_is_none(self, carol: User) -> None:
        with pytest.raises(UserError, match="The role must be one of"):
            actions.invite(carol, "erin", "owner")

    def test_there_is_an_end_to_invitations(self, carol: User, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(actions, "MAX_OPEN_INVITATIONS", 2)
        for name in ("erin", "frank"):
            actions.invite(carol, name, Role.DATA_SCIENTIST)

        with pytest.raises(Conflict, match="open invitations"):
            actions.invite(carol, "grace", Role.DATA_SCIENTIST)


class TestWithdrawInvitation:
    def test_frees_the_name(self, carol: User) -> None:
        erin = actions.invite(carol, "erin", Role.DATA_SCIENTIST).user

        actions.withdraw_invitation(carol, erin.pk)

        assert not User.objects.filter(username="erin").exists()
        assert entries()[-1] == ("carol", "revoked the invitation of", "erin")

    def test_refuses_who_has_a_password(self, alice: User, carol: User) -> None:
        with pytest.raises(Conflict, match="deactivate"):
            actions.withdraw_invitation(carol, alice.pk)

    def test_refuses_who_owns_something(self, carol: User) -> None:
        erin = actions.invite(carol, "erin", Role.DATA_SCIENTIST).user
        DatasetFactory(owner=erin, name="digits")

        with pytest.raises(Conflict, match="erin owns the dataset digits: deactivate the account instead"):
            actions.withdraw_invitation(carol, erin.pk)
        assert User.objects.filter(username="erin").exists()


class TestChangeRole:
    @pytest.mark.parametrize("role", Role)
    def test_to_each_role_and_back(self, alice: User, carol: User, role: Role) -> None:
        actions.change_role(carol, alice.pk, role)
        assert role_of(User.objects.get(pk=alice.pk)) == role

        actions.change_role(carol, alice.pk, Role.DATA_SCIENTIST)
        assert role_of(User.objects.get(pk=alice.pk)) == Role.DATA_SCIENTIST

    def test_is_written_down_and_told_to_websockets(self, alice: User, carol: User) -> None:
        actions.change_role(carol, alice.pk, Role.VIEWER)

        entry = AuditEntry.objects.get()
        assert (entry.actor, entry.verb, entry.kind, entry.name) == ("carol", "changed", "user", "alice")
        assert (entry.before, entry.after) == ({"role": "data scientist"}, {"role": "viewer"})
        assert is_told_to_websockets()

    def test_takes_the_rights_of_a_superuser_with_the_role(self, carol: User, dora: User) -> None:
        User.objects.filter(pk=dora.pk).update(is_superuser=True)

        actions.change_role(carol, dora.pk, Role.DATA_SCIENTIST)

        dora.refresh_from_db()
        assert (dora.is_staff, dora.is_superuser) == (False, False)

    def test_holds_for_the_next_request_with_cached_credentials(self, alice: User, carol: User) -> None:
        assert Client().get("/api/v1/users/", headers=basic(carol)).status_code == 200
        actions.change_role(carol, alice.pk, Role.CLUSTER_ADMIN)
        alice.refresh_from_db()
        actions.change_role(alice, carol.pk, Role.DATA_SCIENTIST)

        assert Client().get("/api/v1/users/", headers=basic(carol)).status_code == 403


class TestDeactivate:
    def test_ends_sessions_tokens_and_cached_credentials_for_good(
        self, alice: User, carol: User, open_as: OpenAs
    ) -> None:
        browser, token = open_as(alice), make_token(alice, "ci", None).text
        bearer = {"authorization": f"Bearer {token}"}
        assert Client().get("/api/v1/me/", headers=basic(alice)).status_code == 200

        actions.deactivate(carol, alice.pk)

        assert browser.get("/").status_code == 302
        for headers in (bearer, basic(alice)):
            assert Client().get("/api/v1/me/", headers=headers).status_code == 401
        actions.activate(carol, alice.pk)
        assert browser.get("/").status_code == 302
        for headers in (bearer, basic(alice)):
            assert Client().get("/api/v1/me/", headers=headers).status_code == 401

    def test_is_written_down_and_told_to_websockets(self, alice: User, carol: User) -> None:
        actions.deactivate(carol, alice.pk)

        assert entries() == [("carol", "deactivated", "alice")]
        assert AuditEntry.objects.get().after == {"state": "deactivated"}
        assert is_told_to_websockets()

    def test_ends_an_open_invitation(self, carol: User) -> None:
        erin = actions.invite(carol, "erin", Role.DATA_SCIENTIST).user

        actions.deactivate(carol, erin.pk)

        assert not OneTimeLink.objects.exists()

    def test_refuses_oneself_and_who_is_gone_already(self, alice: User, carol: User, dora: User) -> None:
        with pytest.raises(Conflict, match="your own account"):
            actions.deactivate(carol, carol.pk)
        actions.deactivate(carol, alice.pk)
        with pytest.raises(Conflict, match="already deactivated"):
            actions.deactivate(carol, alice.pk)


class TestActivate:
    def test_gives_a_link_to_set_a_password(self, alice: User, carol: User) -> None:
        actions.deactivate(carol, alice.pk)

        handout = actions.activate(carol, alice.pk)

        alice.refresh_from_db()
        assert (alice.is_active, alice.has_usable_password()) == (True, False)
        assert handout.path.startswith("/welcome/")
        with pytest.raises(Conflict, match="already active"):
            actions.activate(carol, alice.pk)


class TestResetPassword:
    def test_ends_the_password_and_sessions_and_keeps_tokens(self, alice: User, carol: User, open_as: OpenAs) -> None:
        browser, token = open_as(alice), make_token(alice, "ci", None).text

        actions.reset_password(carol, alice.pk)

        assert browser.get("/").status_code == 302
        assert Client().get("/api/v1/me/", headers=basic(alice)).status_code == 401
        assert Client().get("/api/v1/me/", headers={"authorization": f"Bearer {token}"}).status_code == 200
        assert entries()[-1] == ("carol", "reset the password of", "alice")
        assert is_told_to_websockets()

    def test_an_invited_user_gets_another_link(self, carol: User) -> None:
        first = actions.invite(carol, "erin", Role.DATA_SCIENTIST)

        second = actions.reset_password(carol, first.user.pk)

        assert second.path != first.path
        assert Client().get(first.path).status_code == 404
        assert Client().get(second.path).status_code == 200
        assert entries()[-1] == ("carol", "created another link for", "erin")

    def test_refuses_oneself_and_who_is_deactivated(self, alice: User, carol: User) -> None:
        with pytest.raises(Conflict, match="your own account"):
            actions.reset_password(carol, carol.pk)
        actions.deactivate(carol, alice.pk)
        with pytest.raises(Conflict, match="activate the account"):
            actions.reset_password(carol, alice.pk)


class TestTheLastAdministrator:
    def test_keeps_the_role(self, alice: User, carol: User) -> None:
        for role in (Role.VIEWER, Role.DATA_SCIENTIST):
            with pytest.raises(Conflict, match="is the last administrator"):
                actions.change_role(carol, carol.pk, role)
        assert role_of(User.objects.get(pk=carol.pk)) == Role.CLUSTER_ADMIN

    def test_may_give_it_up_once_there_is_another(self, alice: User, carol: User) -> None:
        actions.change_role(carol, alice.pk, Role.CLUSTER_ADMIN)

        actions.change_role(carol, carol.pk, Role.DATA_SCIENTIST)
        assert role_of(User.objects.get(pk=carol.pk)) == Role.DATA_SCIENTIST

    def test_is_not_relieved_by_one_who_never_came(self, carol: User) -> None:
        actions.invite(carol, "erin", Role.CLUSTER_ADMIN)

        with pytest.raises(Conflict, match="is the last administrator"):
            actions.change_role(carol, carol.pk, Role.DATA_SCIENTIST)

    def test_is_not_relieved_by_one_who_is_deactivated(self, carol: User, dora: User) -> None:
        actions.deactivate(carol, dora.pk)

        with pytest.raises(Conflict, match="is the last administrator"):
            actions.change_role(carol, carol.pk, Role.DATA_SCIENTIST)


@pytest.mark.parametrize(
    "act",
    [
        lambda actor, user: actions.invite(actor, "erin", Role.CLUSTER_ADMIN),
        lambda actor, user: actions.withdraw_invitation(actor, user.pk),
        lambda actor, user: actions.change_role(actor, actor.pk, Role.CLUSTER_ADMIN),
        lambda actor, user: actions.deactivate(actor, user.pk),
        lambda actor, user: actions.activate(actor, user.pk),
        lambda actor, user: actions.reset_password(actor, user.pk),
    ],
)
def test_only_cluster_admins_do_it(alice: User, bob: User, act: Callable[[User, User], object]) -> None:
    with pytest.raises(NotAllowed):
        act(bob, alice)
    assert entries() == []


def test_who_was_demoted_meanwhile_does_nothing_more(alice: User, carol: User, dora: User) -> None:
    actions.change_role(dora, carol.pk, Role.DATA_SCIENTIST)

    with pytest.raises(Conflict, match="no longer an administrator"):
        actions.deactivate(carol, alice.pk)


def test_a_user_who_is_not_there(carol: User) -> None:
    with pytest.raises(NotFound):
        actions.deactivate(carol, 2**62)


def test_no_secret_is_written_down(alice: User, carol: User) -> None:
    token = make_token(alice, "ci", None).text
    handout = actions.reset_password(carol, alice.pk)

    written = str(list(AuditEntry.objects.values()))
    assert token not in written
    assert handout.path.rstrip("/").rpartition("/")[2] not in written
