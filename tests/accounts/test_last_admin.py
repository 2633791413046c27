"""Two administrators who shut each other out in the same moment: one of them stays."""

import threading
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connection

from accounts import actions
from core.errors import Conflict, NotAllowed
from core.roles import Role
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db(transaction=True)

Act = Callable[[User, User], object]


def give_up(actor: User, other: User) -> object:
    return actions.change_role(actor, actor.pk, Role.DATA_SCIENTIST)


def demote(actor: User, other: User) -> object:
    return actions.change_role(actor, other.pk, Role.VIEWER)


def deactivate(actor: User, other: User) -> object:
    return actions.deactivate(actor, other.pk)


def reset(actor: User, other: User) -> object:
    return actions.reset_password(actor, other.pk)


@pytest.mark.parametrize("act", [give_up, demote, deactivate, reset])
def test_one_administrator_stays(act: Act) -> None:
    for round_number in range(5):
        pair = [UserFactory(username=f"{name}-{round_number}", is_staff=True) for name in ("carol", "dora")]
        refused = at_the_same_time(act, pair)

        able = [user for user in User.objects.filter(is_staff=True, is_active=True) if user.has_usable_password()]
        assert (len(able), len(refused)) == (1, 1)
        assert isinstance(refused[0], Conflict | NotAllowed)
        User.objects.all().delete()


def at_the_same_time(act: Act, pair: list[User]) -> list[Exception]:
    barrier, refused = threading.Barrier(2), []

    def run(actor: User, other: User) -> None:
        try:
            barrier.wait(10)
            act(actor, other)
        except Exception as error:
            refused.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(actor, other)) for actor, other in (pair, pair[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return refused
