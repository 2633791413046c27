"""Alice and Bob are data scientists, Carol and Dora administer the cluster."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.factories import UserFactory


@pytest.fixture
def dora(db: None) -> User:
    return UserFactory(username="dora", is_staff=True)


@pytest.fixture
def open_as() -> Callable[[User], Client]:
    """A browser in which this user is logged in."""

    def logged_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return logged_in
