"""Notes of trainings: written by whoever may change them, kept with their history, never over somebody else's text."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from core.models import AuditEntry
from jobs.actions.notes import write_note
from jobs.models import Note
from tests.scene import Scene


@pytest.fixture
def api(scene: Scene) -> APIClient:
    api = APIClient()
    api.force_login(scene.alice)
    return api


def test_each_text_stays_and_the_newest_is_shown(scene: Scene, api: APIClient) -> None:
    address = f"/api/v1/jobs/{scene.done.pk}/notes/"
    assert api.post(address, {"text": ""}, format="json").status_code == 204
    first = api.post(address, {"text": " Good. \r\n"}, format="json")
    assert (first.status_code, first.json()["number"], first.json()["text"]) == (201, 1, "Good.")
    api.post(address, {"text": "Good."}, format="json")  # the same
    api.post(address, {"text": "Better.", "after": 1}, format="json")
    api.post(address, {"text": ""}, format="json")

    rows = api.get(address).json()["results"]
    assert [(row["number"], row["text"], row["author"]) for row in rows] == [
        (3, "", "alice"),
        (2, "Better.", "alice"),
        (1, "Good.", "alice"),
    ]
    assert not AuditEntry.objects.exists()


def test_what_cannot_be_stored_is_refused(scene: Scene, alices: Client) -> None:
    for text, sentence in [("x" * 20_001, "at most 20,000"), ("a\0", "cannot be stored")]:
        answer = alices.post(f"/jobs/{scene.done.pk}/note/", {"text": text, "after": "0"})
        assert answer.status_code == 400
        assert sentence in answer.content.decode()
    assert not Note.objects.filter(job=scene.done).exists()


def test_nobody_writes_over_a_text_that_they_have_not_seen(scene: Scene, carol: User, alices: Client) -> None:
    write_note(scene.done.pk, "Mine.", "alice", after=0)
    write_note(scene.done.pk, "Carol's.", "carol", after=1)
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.after) == ("carol", {"note": 2})

    answer = alices.post(f"/jobs/{scene.done.pk}/note/", {"text": "Mine, longer.", "after": "1"})
    page = answer.content.decode()
    assert answer.status_code == 409
    assert "carol has saved version 2 meanwhile" in page
    assert ">Mine, longer.</textarea>" in page
    assert 'name="after" value="2"' in page

    saved = alices.post(f"/jobs/{scene.done.pk}/note/", {"text": "Both.", "after": "2"})
    assert saved["Location"] == f"/jobs/{scene.done.pk}/#notes"
    assert Note.objects.filter(job=scene.done)[0].text == "Both."


def test_the_page_shows_it_rendered_with_its_history(scene: Scene, alices: Client) -> None:
    write_note(scene.done.pk, "# Old", "alice")
    write_note(scene.done.pk, "**New** <script>", "alice")
    page = alices.get(f"/jobs/{scene.done.pk}/").content.decode()
    assert "<p><strong>New</strong> &lt;script&gt;</p>" in page
    assert '<pre class="note-source"># Old</pre>' in page
    assert "**New** &lt;script&gt;</textarea>" in page
