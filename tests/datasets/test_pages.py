"""The datasets pages: two steps to a new one, what a check has found, and who may take it back."""

import io
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from core import uploads
from core.file_sources import Source
from datasets.actions import DatasetRegistration, register
from datasets.inspection_queue import claim_next, note_progress
from datasets.models import Dataset, DatasetVersion
from datasets.queries import datasets_live
from datasets.views import class_table
from tests.core.archives import zip_of
from tests.factories import DatasetFactory, DatasetVersionFactory, JobFactory
from tests.notices import levels
from tests.scene import Scene


def address_of(version: DatasetVersion) -> str:
    return f"/datasets/{version.dataset_id}/"


@pytest.fixture
def folders(home: Path) -> Path:
    root = Path(settings.TIDEPOOL_DATA_ROOTS[0])
    for name in ("parts/a", "parts/b"):
        (root / name).mkdir(parents=True)
        (root / name / "x.csv").write_text("a,b\n1,2\n")
    return root


def test_first_the_kind_in_ibms_order_and_words(scene: Scene, alices: Client) -> None:
    page = alices.get("/datasets/new/").content.decode()
    places = [page.index(f"<strong>{words}") for words in ("Images for Object Classification", "CSV Files", "Any")]

    assert places == sorted(places)
    assert "Dataset name" not in page
    assert alices.get("/datasets/new/?kind=lmdb").content.decode().count("<strong>") >= 3


def test_then_the_form_in_ibms_order(scene: Scene, alices: Client) -> None:
    page = alices.get("/datasets/new/?kind=csv&name=mine").content.decode()
    words = ["Dataset name", "Training folder", "Validation folder", "Testing folder", "Create", "Cancel"]

    places = [page.index(text, page.index("<h1>")) for text in words]
    assert places == sorted(places)
    assert 'value="mine"' in page


def test_separate_folders_make_one_dataset(scene: Scene, alices: Client, folders: Path) -> None:
    given = {"name": "two", "kind": "csv", "training": "parts/a", "testing": str(folders / "parts/b")}
    page = alices.post("/datasets/new/", given, follow=True).content.decode()

    assert "two has been registered and checked. Trainings can use it." in page
    assert str(folders / "parts/a") in page
    assert "First rows" in page


def test_an_uploaded_file_works_without_scripts(scene: Scene, alices: Client) -> None:
    archive = zip_of({"train/a.csv": b"a,b\n1,2\n"})
    archive.name = "d.zip"
    given = {"name": "up", "kind": "csv", "source": "upload", "file": archive}
    response = alices.post("/datasets/new/", given)

    version = DatasetVersion.objects.get(dataset__name="up")
    assert response.headers["Location"] == address_of(version)
    assert version.state == "READY"


def test_a_finished_upload_is_taken(scene: Scene, alices: Client) -> None:
    content = zip_of({"a.csv": b"a,b\n1,2\n"}).getvalue()
    upload = uploads.begin(scene.alice, "d.zip", len(content))
    uploads.append(upload, 0, io.BytesIO(content))
    form = {"name": "", "kind": "csv", "source": "upload", "upload": upload.pk}
    kept = alices.post("/datasets/new/", form).content.decode()
    assert f'name="upload" value="{upload.pk}"' in kept

    made = alices.post("/datasets/new/", {**form, "name": "up"}, follow=True)
    assert levels(made) == ["success"]
    assert DatasetVersion.objects.get(dataset__name="up").state == "WAITING"


@pytest.mark.parametrize(
    ("values", "field", "sentence"),
    [
        ({}, "training", "Choose the folder with the training data."),
        ({"source": "upload"}, "file", "Choose the file to upload."),
        ({"training": "/etc"}, "training", "outside the allowed folders"),
        ({"training": "parts/a", "testing": "gone"}, "testing", "path does not exist"),
        ({"training": "parts/a", "name": "x" * 300}, "name", "300 characters"),
    ],
)
def test_what_does_not_fit_is_said_and_kept(
    scene: Scene, alices: Client, folders: Path, values: dict, field: str, sentence: str
) -> None:
    before = Dataset.objects.count()
    page = alices.post("/datasets/new/", {"name": "mine", "kind": "csv", "description": "my words", **values})

    content = page.content.decode()
    assert sentence in content
    assert f'id="id_{field}_error"' in content
    assert "my words" in content
    assert Dataset.objects.count() == before


@pytest.mark.parametrize("upload", ["0", "x", "9" * 30, "424242"])
def test_an_upload_of_nobody_is_said(scene: Scene, alices: Client, upload: str) -> None:
    form = {"name": "up", "kind": "csv", "source": "upload", "upload": upload}
    assert alices.post("/datasets/new/", form).status_code == 200
    assert not Dataset.objects.filter(name="up").exists()


def test_a_preview_shows_samples_and_classes(scene: Scene, bobs: Client) -> None:
    page = bobs.get(address_of(scene.dataset)).content.decode()
    assert 'alt="An image of the class 1"' in page
    sample = bobs.get(f"/api/v1/datasets/{scene.dataset.dataset_id}/versions/1/samples/0/")
    assert sample.headers["Content-Type"] == "image/png"

    assert '<progress max="6" value="6"' in page


def test_a_refused_one_says_why_and_is_checked_again(scene: Scene, alices: Client, bobs: Client) -> None:
    address = address_of(scene.refused)
    assert "train.csv has 2 fields in row 4, but 3 columns" in alices.get(address).content.decode()
    assert "Check again" not in bobs.get(address).content.decode()
    assert "Only the owner" in bobs.post(f"{address}versions/1/check/", follow=True).content.decode()
    alices.post(f"{address}versions/1/check/")

    scene.refused.refresh_from_db()
    assert scene.refused.state == "WAITING"


def test_texts_of_files_are_text(scene: Scene, alices: Client, home: Path) -> None:
    folder = home / "data/evil"
    folder.mkdir()
    (folder / "a.csv").write_text("<script>alert(1)</script>,label\n1,<b>x</b>\n2,y\n")
    version = register(scene.alice, DatasetRegistration("<i>evil", Source(path="evil"), kind="csv"))

    page = alices.get(address_of(version)).content.decode()
    assert "&lt;script&gt;alert(1)" in page
    for markup in ("<script>alert", "<b>x", "<i>evil"):
        assert markup not in page


def test_a_dataset_in_use_is_not_deleted(scene: Scene, alices: Client) -> None:
    address = address_of(scene.dataset)
    page = alices.get(address).content.decode()
    assert "Cannot be deleted: used by" in page
    assert "Delete dataset" not in page.split("<dialog")[0]

    assert levels(alices.post(f"{address}delete/", follow=True)) == ["error"]
    assert Dataset.objects.filter(pk=scene.dataset.dataset_id).exists()


def test_owners_and_staff_delete(scene: Scene, alices: Client, bobs: Client, carols: Client) -> None:
    address = address_of(scene.refused)
    assert "Delete dataset" not in bobs.get(address).content.decode()
    assert levels(bobs.post(f"{address}delete/", follow=True)) == ["error"]
    assert alices.get(address).status_code == 200
    assert levels(carols.post(f"{address}delete/", follow=True)) == ["success"]
    assert alices.get(address).status_code == 404


def test_versions_are_shown_and_deleted_one_by_one(scene: Scene, alices: Client) -> None:
    second = DatasetVersionFactory(dataset=scene.dataset.dataset, number=2)
    address = address_of(second)
    assert "This is version 1." in alices.get(f"{address}?version=1").content.decode()
    for version in ("3", "x", "-1", "9" * 40):
        assert alices.get(f"{address}?version={version}").status_code == 404
    assert levels(alices.post(f"{address}versions/2/delete/", follow=True)) == ["success"]
    assert levels(alices.post(f"{address}versions/1/delete/", follow=True)) == ["error"]
    assert [version.number for version in scene.dataset.dataset.versions.all()] == [1]


@pytest.mark.parametrize("path", ["delete/", "versions/1/delete/", "versions/1/check/"])
def test_nothing_changes_by_a_link_or_without_a_token(scene: Scene, alices: Client, path: str) -> None:
    assert alices.get(f"{address_of(scene.refused)}{path}").status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(scene.alice)
    assert strict.post(f"{address_of(scene.refused)}{path}").status_code == 403


def test_the_page_of_a_dataset_costs_the_same_however_many_versions_and_jobs(scene: Scene, alices: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert alices.get(address_of(scene.dataset)).status_code == 200
        return len(captured)

    before = queries()
    for number in range(2, 8):
        version = DatasetVersionFactory(dataset=scene.dataset.dataset, number=number)
        JobFactory(owner=scene.alice, dataset=version, model=scene.model, instance_group=scene.first.instance_group)
    assert queries() == before
    assert before <= 15


def test_what_is_fetched_is_what_was_published(scene: Scene, alices: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[dict] = []
    monkeypatch.setattr("datasets.inspection_queue.publish", lambda topic, kind, data: published.append(data))
    version = DatasetVersionFactory(dataset=DatasetFactory(), state="WAITING", size_bytes=None, file_count=None)
    number = version.dataset_id
    claim = claim_next(version.created_at)
    assert claim is not None
    note_progress(claim, 0.5)

    fetched = alices.get(f"/datasets/live.json?id={number}&id=424242&id=x").json()
    assert fetched["state"][str(number)] == published[-1][str(number)] == datasets_live([number])["state"][str(number)]
    assert fetched["state"]["424242"] == {"state": "DELETED"}


def test_classes_are_ordered_by_size_then_number() -> None:
    parts = [
        {"role": "training", "classes": {"10": 1, "2": 1, "a": 5}},
        {"role": "testing", "classes": {"2": 0, "b": 1}},
    ]
    table = class_table({"parts": parts})
    assert table is not None
    assert [name for name, _ in table.rows] == ["a", "2", "10", "b"]
    assert (table.heads, table.most, table.more) == (["Training", "Testing"], 5, 0)
    assert class_table({}) is None
