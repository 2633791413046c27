"""User namespaces that show the files of this process's user as another one's."""

import os
from collections.abc import Iterator

import pytest
from tidepool.confine import identity


@pytest.fixture(autouse=True)
def _namespaces() -> Iterator[None]:
    if os.getuid() != 0:
        pytest.skip("only root may map another user")
    yield
    identity.forget_namespaces()


def open_namespaces() -> list[str]:
    """Return the descriptors of user namespaces that this process has open."""
    found = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [place for place in found if os.path.lexists(place) and os.readlink(place).startswith("user:")]


def test_a_namespace_is_made_once_for_each_user() -> None:
    first, other = identity.owner_namespace(70001), identity.owner_namespace(70002)
    assert identity.owner_namespace(70001) == first
    assert os.fstat(first).st_ino != os.fstat(other).st_ino


def test_a_training_keeps_none_open() -> None:
    identity.owner_namespace(70001)
    identity.owner_namespace(70002)
    assert len(open_namespaces()) == 2
    identity.forget_namespaces()
    assert open_namespaces() == []


def test_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_MOST_NAMESPACES", 2)
    for user in range(70001, 70005):
        identity.owner_namespace(user)
    assert len(open_namespaces()) == 2
    kept = identity.owner_namespace(70004)
    assert identity.owner_namespace(70004) == kept
