"""Datasets are registered by path or by upload, in versions, and never by halves."""

import io

import pytest
from django.conf import settings

from core.errors import NotAllowed, UserError
from core.file_sources import Source, Upload
from datasets.actions import DatasetRegistration, register
from datasets.models import Dataset, DatasetVersion
from datasets.queries import datasets, find_dataset
from tests.core.archives import tar_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def digits(home):
    folder = settings.TIDEPOOL_DATA_ROOTS[0] / "digits"
    folder.mkdir(exist_ok=True)
    (folder / "train.csv").write_text("1,2\n")
    return str(folder)


def _uploads() -> list[str]:
    folder = settings.TIDEPOOL_DATA_ROOTS[0] / "uploads"
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


def test_by_path(alice, digits):
    version = register(alice, DatasetRegistration("Digits", Source(path=digits), kind="csv"))
    assert (version.number, version.path, version.file_count, version.size_bytes) == (1, digits, 1, 4)
    assert len(version.digest) == 64
    assert version.dataset.owner == alice


def test_by_upload(alice, home):
    archive = tar_of({"train.csv": b"1,2\n", "test.csv": b"3\n"})
    version = register(alice, DatasetRegistration("Digits up", Source(upload=Upload("digits.tgz", archive))))
    assert version.file_count == 2
    assert version.path.startswith(f"{settings.TIDEPOOL_DATA_ROOTS[0]}/uploads/digits-up-")


def test_registering_again_makes_the_next_version(alice, digits):
    register(alice, DatasetRegistration("digits", Source(path=digits)))
    second = register(alice, DatasetRegistration("digits", Source(path=digits), kind="images"))
    assert second.number == 2
    assert second.dataset.kind == "images"
    [dataset] = datasets()
    assert [version.number for version in dataset.latest] == [2]


def test_the_name_of_another_users_dataset_is_taken(alice, bob, digits):
    register(alice, DatasetRegistration("digits", Source(path=digits)))
    with pytest.raises(NotAllowed, match="choose another name"):
        register(bob, DatasetRegistration("digits", Source(path=digits)))
    assert DatasetVersion.objects.count() == 1


def test_staff_may_add_a_version(alice, carol, digits):
    register(alice, DatasetRegistration("digits", Source(path=digits)))
    assert register(carol, DatasetRegistration("digits", Source(path=digits))).dataset.owner == alice


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "a\0b"}, "name"),
        ({"name": "x" * 256}, "name"),
        ({"kind": "videos"}, "kind"),
        ({"source": Source()}, "path"),
        ({"source": Source(path="/etc")}, "path"),
        ({"source": Source(path="missing")}, "path"),
        ({"source": Source(upload=Upload("x.exe", io.BytesIO(b"MZ")))}, "file"),
    ],
)
def test_what_does_not_fit_leaves_nothing(alice, digits, changes, field):
    before = _uploads()
    with pytest.raises(UserError) as caught:
        register(alice, DatasetRegistration(**{"name": "new", "source": Source(path=digits), **changes}))
    assert list(caught.value.fields) == [field]
    assert not Dataset.objects.exists()
    assert _uploads() == before


def test_an_upload_is_removed_when_it_cannot_be_stored(alice, home, monkeypatch):
    before = _uploads()
    monkeypatch.setattr(DatasetVersion, "save", _fail)
    with pytest.raises(RuntimeError):
        register(alice, DatasetRegistration("new", Source(upload=Upload("d.tgz", tar_of({"a": b"1"})))))
    assert not Dataset.objects.exists()
    assert _uploads() == before


def _fail(*_: object, **values: object) -> None:
    raise RuntimeError("the database is full")


def test_found_by_name_or_id(alice, digits):
    dataset = register(alice, DatasetRegistration("digits", Source(path=digits))).dataset
    assert find_dataset("digits") == find_dataset(dataset.pk) == find_dataset(str(dataset.pk)) == dataset
    for reference in ("nothing", "", "\0", "\ud800", "9" * 18, "9" * 5000, 10**30, "-1", "1.5"):
        assert find_dataset(reference) is None


def test_a_name_of_digits_wins_over_an_id(alice, digits):
    first = register(alice, DatasetRegistration("first", Source(path=digits))).dataset
    named = register(alice, DatasetRegistration(str(first.pk), Source(path=digits))).dataset
    assert find_dataset(str(first.pk)) == named
