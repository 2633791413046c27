"""Uploads in pieces: the file on disk says how far it is, whatever was cut."""

import fcntl
import io
import os
import shutil
from collections import namedtuple
from datetime import timedelta

import pytest
from django.utils import timezone

from core import uploads
from core.errors import Conflict, NotFound, UserError
from core.models import Upload

pytestmark = pytest.mark.django_db


@pytest.fixture
def upload(alice, home):
    return uploads.begin(alice, "data.zip", 10)


def test_pieces_add_up(upload):
    assert uploads.append(upload, 0, io.BytesIO(b"01234")) == 5
    assert uploads.received(upload) == 5
    assert uploads.append(upload, 5, io.BytesIO(b"56789")) == 10
    assert uploads.finished_file(upload).read_bytes() == b"0123456789"


@pytest.mark.parametrize("offset", [0, 4, 6, -1])
def test_a_piece_that_does_not_follow_says_where_to_go_on(upload, offset):
    uploads.append(upload, 0, io.BytesIO(b"01234"))
    with pytest.raises(Conflict, match="byte 5,") as caught:
        uploads.append(upload, offset, io.BytesIO(b"x"))
    assert caught.value.code == "offset"


class _Cut(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        if self.tell():
            raise OSError("connection reset")
        return super().read(3)


@pytest.mark.parametrize("content", [_Cut(b"0123456"), io.BytesIO(b"x" * 11), io.BytesIO(b"")])
def test_a_piece_that_cannot_be_stored_whole_leaves_nothing(upload, content):
    uploads.append(upload, 0, io.BytesIO(b"01"))
    with pytest.raises((OSError, UserError)):
        uploads.append(upload, 2, content)
    assert uploads.received(upload) == 2


def test_two_at_once_do_not_mix(upload):
    uploads.append(upload, 0, io.BytesIO(b"01"))
    with uploads.file_of(upload).open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Conflict, match="is being written"):
            uploads.append(upload, 2, io.BytesIO(b"23"))


@pytest.mark.parametrize(
    ("name", "size", "field"),
    [
        ("x.exe", 1, "name"),
        ("a/b.zip", 1, "name"),
        ("", 1, "name"),
        ("a.zip", 0, "size_bytes"),
        ("a.zip", 2**40, "size_bytes"),
    ],
)
def test_limits_are_said_before_anything_is_sent(alice, home, name, size, field):
    with pytest.raises(UserError) as caught:
        uploads.begin(alice, name, size)
    assert list(caught.value.fields) == [field]
    assert not Upload.objects.exists()


def test_a_full_disk_is_said(alice, home, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(9, 4, 5))
    with pytest.raises(UserError) as caught:
        uploads.begin(alice, "a.zip", 6)
    assert caught.value.code == "disk_full"


def test_nobody_fills_the_disk_with_beginnings(alice, home):
    for _ in range(20):
        uploads.begin(alice, "a.zip", 1)
    with pytest.raises(Conflict, match="20 unfinished uploads"):
        uploads.begin(alice, "a.zip", 1)


def test_others_do_not_have_it(upload, alice, carol):
    assert uploads.find_upload(alice, upload.pk) == upload
    for user, number in ((carol, upload.pk), (alice, 2**70), (alice, 0)):
        with pytest.raises(NotFound):
            uploads.find_upload(user, number)


def test_what_nobody_goes_on_with_is_removed(upload, alice):
    now = timezone.now() + timedelta(days=3)
    fresh = uploads.begin(alice, "b.zip", 10)
    os.utime(uploads.file_of(fresh), (now.timestamp(), now.timestamp()))
    assert uploads.prune(now) == 1
    assert list(Upload.objects.all()) == [fresh]
    assert not uploads.file_of(upload).exists()
