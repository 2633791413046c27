"""Folders of the server and uploads in pieces by REST: as a client would use them, and as it must not."""

from pathlib import Path

import pytest
from rest_framework.test import APIClient

from core.errors import UserError
from core.folders import listing
from core.models import Upload
from datasets.models import DatasetVersion
from tests.core.archives import tar_of, zip_of

pytestmark = pytest.mark.django_db
FOLDERS = "/api/v1/folders/"
UPLOADS = "/api/v1/uploads/"
OCTETS = "application/octet-stream"


def send(api: APIClient, upload: int, offset: object, content: bytes):
    return api.patch(f"{UPLOADS}{upload}/", content, content_type=OCTETS, headers={"Upload-Offset": str(offset)})


@pytest.fixture
def tree(home: Path) -> Path:
    for name in ("b/inner", "a", ".hidden", "uploads/x", "sets/y"):
        (home / "data" / name).mkdir(parents=True)
    (home / "data/file.csv").write_text("1,2\n")
    (home / "secret").mkdir()
    (home / "data/out").symlink_to(home / "secret")
    (home / "data/in").symlink_to(home / "data/b")
    (home / "data/gone").symlink_to(home / "data/nothing")
    return home / "data"


def test_folders_first_then_files_and_nothing_that_leads_out(alice_api, tree):
    found = alice_api.get(FOLDERS).json()
    assert [(entry["name"], entry["is_folder"]) for entry in found["entries"]] == [
        ("a", True),
        ("b", True),
        ("in", True),
        ("file.csv", False),
    ]
    assert (found["is_root"], found["trail"]) == (True, [["data", str(tree)]])
    inner = alice_api.get(FOLDERS, {"path": found["entries"][2]["path"]}).json()
    assert inner["path"] == str(tree / "b")
    assert [step[0] for step in inner["trail"]] == ["data", "b"]


@pytest.mark.parametrize("path", ["/etc", "..", "a/../..", "out", "/", "\0", "file.csv", "nothing", "x" * 5000])
def test_what_is_outside_or_no_folder_is_refused(alice_api, tree, path):
    answer = alice_api.get(FOLDERS, {"path": path})
    assert answer.status_code == 400
    assert list(answer.json()["fields"]) == ["path"]


def test_large_folders_come_in_pages(alice_api, tree):
    for number in range(450):
        (tree / "a" / f"{number:03}").mkdir()
    seen, after = [], ""
    while True:
        page = alice_api.get(FOLDERS, {"path": "a", "after": after}).json()
        assert len(page["entries"]) <= 200
        seen += [entry["name"] for entry in page["entries"]]
        if not (after := page["next"]):
            break
    assert seen == [f"{number:03}" for number in range(450)]


def test_several_roots_are_listed_first(tree, home):
    (home / "more").mkdir()
    found = listing("", [tree, home / "more"])
    assert [entry.path for entry in found.entries] == [str(tree), str(home / "more")]
    assert listing(str(home / "more"), [tree, home / "more"]).trail == [("more", str(home / "more"))]


def test_a_folder_without_access_is_said(tree, monkeypatch):
    monkeypatch.setattr("os.scandir", lambda _: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.raises(UserError, match="Permission denied"):
        listing("a", [tree])


@pytest.mark.parametrize("query", [{"of": "secrets"}, {"page_size": "0"}, {"page_size": "x"}, {"page_size": "9" * 30}])
def test_odd_questions_are_refused(alice_api, tree, query):
    assert alice_api.get(FOLDERS, query).status_code == 400


def test_folders_of_models(alice_api, home):
    (home / "models/cnn").mkdir()
    assert [entry["name"] for entry in alice_api.get(FOLDERS, {"of": "models"}).json()["entries"]] == ["cnn"]


def test_uploads_in_pieces_and_registers(alice_api, home):
    content = tar_of({"train.csv": b"a,b\n" + b"1,2\n" * 1000}, mode="w").getvalue()
    upload = alice_api.post(UPLOADS, {"name": "d.tar", "size_bytes": len(content)}, format="json").json()
    assert (upload["offset"], upload["chunk_bytes"]) == (0, 4 * 1024**2)
    for start in range(0, len(content), 4096):
        answer = send(alice_api, upload["id"], start, content[start : start + 4096])
        assert answer.status_code == 200, answer.content
    assert answer.json()["offset"] == len(content)
    registered = alice_api.post(
        "/api/v1/datasets/", {"name": "up", "kind": "csv", "upload": upload["id"]}, format="json"
    )
    assert (registered.status_code, registered.json()["latest"]["state"]) == (201, "WAITING")
    assert alice_api.get(f"{UPLOADS}{upload['id']}/").status_code == 404


def test_a_cut_connection_goes_on_where_it_was(alice_api, home):
    content = zip_of({"a.csv": b"1,2\n"}).getvalue()
    upload = alice_api.post(UPLOADS, {"name": "d.zip", "size_bytes": len(content)}, format="json").json()["id"]
    send(alice_api, upload, 0, content[:50])
    again = send(alice_api, upload, 0, content[:50])
    assert (again.status_code, again.json()["code"]) == (409, "offset")
    here = alice_api.get(f"{UPLOADS}{upload}/").json()["offset"]
    assert send(alice_api, upload, here, content[here:]).json()["offset"] == len(content)
    [listed] = alice_api.get(UPLOADS).json()["results"]
    assert listed["id"] == upload


@pytest.mark.parametrize(
    ("offset", "content", "status"),
    [("", b"x", 400), ("-1", b"x", 400), ("x", b"x", 400), ("5", b"x", 409), ("0", b"", 400), ("0", b"x" * 11, 400)],
)
def test_pieces_that_do_not_fit_change_nothing(alice_api, home, offset, content, status):
    upload = alice_api.post(UPLOADS, {"name": "d.zip", "size_bytes": 10}, format="json").json()["id"]
    assert send(alice_api, upload, offset, content).status_code == status
    assert alice_api.get(f"{UPLOADS}{upload}/").json()["offset"] == 0


@pytest.mark.parametrize(
    "values", [{}, {"name": "x.zip"}, {"name": "x.zip", "size_bytes": -1}, {"name": 3, "size_bytes": "x"}]
)
def test_an_upload_that_cannot_be_begun_says_why(alice_api, home, values):
    assert alice_api.post(UPLOADS, values, format="json").status_code == 400
    assert not Upload.objects.exists()


def test_uploads_are_ones_own(alice_api, bob_api, carol_api, home):
    upload = alice_api.post(UPLOADS, {"name": "d.zip", "size_bytes": 3}, format="json").json()["id"]
    send(alice_api, upload, 0, b"abc")
    for api in (bob_api, carol_api):
        assert api.get(UPLOADS).json()["results"] == []
        assert api.get(f"{UPLOADS}{upload}/").status_code == 404
        assert send(api, upload, 3, b"x").status_code == 404
        assert api.delete(f"{UPLOADS}{upload}/").status_code == 404
        assert api.post("/api/v1/datasets/", {"name": "x", "upload": upload}, format="json").status_code == 404
    assert alice_api.delete(f"{UPLOADS}{upload}/").status_code == 204
    assert not Upload.objects.exists()


# --- findings of a version's check ---


@pytest.fixture
def points(alice_api, home) -> str:
    (home / "data/points/cat").mkdir(parents=True)
    picture = b"\x89PNG\r\n\x1a\n" + b"..IEND"
    for number in (1, 2):
        (home / f"data/points/cat/{number}.png").write_bytes(picture)
    answer = alice_api.post("/api/v1/datasets/", {"name": "points", "kind": "images", "path": "points"}, format="json")
    assert answer.json()["latest"]["state"] == "READY"
    return "/api/v1/datasets/points/"


def test_a_version_shows_what_was_found(bob_api, points):
    version = bob_api.get(f"{points}versions/1/").json()
    assert version["summary"]["parts"][0]["classes"] == {"cat": 2}
    assert version["sample_labels"] == ["cat", "cat"]
    picture = bob_api.get(f"{points}versions/1/samples/0/")
    assert (picture.status_code, picture.headers["Content-Type"]) == (200, "image/png")
    assert picture.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert bob_api.get(f"{points}versions/1/samples/2/").status_code == 404
    assert bob_api.get(f"{points}versions/2/").status_code == 404


def test_a_sample_that_has_become_a_link_or_a_page_is_not_shown(alice_api, points, home):
    first, second = (home / f"data/points/cat/{number}.png" for number in (1, 2))
    (home / "secret.png").write_bytes(first.read_bytes())
    first.unlink()
    first.symlink_to(home / "secret.png")
    second.write_text("<script>alert(1)</script>")
    assert alice_api.get(f"{points}versions/1/samples/0/").status_code == 404
    assert alice_api.get(f"{points}versions/1/samples/1/").status_code == 404


def test_deleting_and_checking_again_by_rest(alice_api, bob_api, carol_api, points):
    assert bob_api.delete(points).status_code == 403
    assert bob_api.delete(f"{points}versions/1/").status_code == 403
    assert bob_api.post(f"{points}versions/1/check/").status_code == 403
    assert alice_api.post(f"{points}versions/1/check/").status_code == 409
    assert alice_api.delete(f"{points}versions/1/").status_code == 409
    DatasetVersion.objects.update(state="INVALID", problem="x")
    assert alice_api.post(f"{points}versions/1/check/").json()["state"] == "WAITING"
    assert carol_api.delete(points).status_code == 204
    assert carol_api.delete(points).status_code == 404
