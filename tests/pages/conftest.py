"""Alice, Bob and staff look at the same cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.scene import Scene, build_scene


@pytest.fixture
def scene(db: None, home: Path) -> Scene:
    return build_scene()


@pytest.fixture
def alices(scene: Scene) -> Client:
    return _logged_in(scene.alice)


@pytest.fixture
def bobs(scene: Scene) -> Client:
    return _logged_in(User.objects.get(username="bob"))


@pytest.fixture
def carols(scene: Scene, carol: User) -> Client:
    """Carol is staff."""
    return _logged_in(carol)


@pytest.fixture
def training(scene: Scene) -> dict[str, object]:
    """What the Train form sends."""
    return {
        "model": scene.model.model_id,
        "dataset": scene.dataset.dataset_id,
        "name": "mine",
        "instance_group": scene.first.instance_group_id,
        "min_slots": 1,
        "max_slots": 8,
        "priority": 5000,
        "parameters": "",
        "exactness": "sum",
    }


def _logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client
