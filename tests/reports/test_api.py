"""The REST API of reports."""

from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from reports import actions
from tests.scene import Scene

LIST = "/api/v1/reports/"


def _api(name: str) -> APIClient:
    api = APIClient()
    api.force_login(User.objects.get(username=name))
    return api


def test_a_report_from_creation_to_a_public_link(scene: Scene, settings: Any) -> None:
    settings.TIDEPOOL_PUBLIC_REPORT_DAYS = 7
    api = _api("alice")
    made = api.post(LIST, {"title": "Rates"}, format="json")
    assert (made.status_code, made.json()["readers"], made.json()["blocks"]) == (201, "owner", 0)
    address = f"{LIST}{made.json()['id']}/"
    offered = api.get(f"{LIST}figures/?jobs={scene.first.pk},{scene.done.pk}").json()
    assert {"key": "chart:Loss", "title": "Loss"} in offered

    jobs = {"jobs": [scene.first.pk, scene.done.pk], "figures": ["chart:Loss", "table:results"]}
    chart, table = api.post(f"{address}blocks/", jobs, format="json").json()
    assert (chart["kind"], chart["sources"][0]) == ("chart", [scene.first.pk, scene.first.name])
    assert len(chart["data"]["lines"]) == 2
    [text] = api.post(f"{address}blocks/", {"text": "Good."}, format="json").json()
    changed = api.patch(f"{address}blocks/{text['id']}/", {"text": "Better.", "after": 0, "place": 0}, format="json")
    assert (changed.json()["text"], changed.json()["place"], changed.json()["edits"]) == ("Better.", 0, 1)
    late = api.patch(f"{address}blocks/{text['id']}/", {"text": "Best.", "after": 0}, format="json")
    assert (late.status_code, late.json()["code"]) == (409, "newer_text")
    assert api.delete(f"{address}blocks/{table['id']}/").status_code == 204
    rows = api.get(f"{address}blocks/?page_size=1").json()
    assert [row["id"] for row in rows["results"]] == [text["id"]]
    assert [row["id"] for row in api.get(rows["next"]).json()["results"]] == [chart["id"]]

    link = api.post(f"{address}links/", {"days": 3}, format="json")
    assert (link.status_code, link.headers["Cache-Control"]) == (201, "no-store")
    path = link.json()["address"].removeprefix("http://testserver")
    assert Client().get(path).status_code == 200
    [listed] = api.get(f"{address}links/").json()["results"]
    assert (listed["uses"], "address" in listed) == (1, False)
    assert api.get(address).json()["is_public"]
    assert api.delete(f"{address}links/{listed['id']}/").status_code == 204
    assert Client().get(path).status_code == 410
    assert api.patch(address, {"title": "Again", "readers": "everybody"}, format="json").json()["title"] == "Again"
    assert _api("bob").get(address).json()["owner"] == "alice"
    assert _api("bob").get(f"{address}links/").status_code == 403
    assert api.delete(address).status_code == 204
    assert api.get(address).status_code == 404


def test_errors_name_their_field(scene: Scene) -> None:
    api = _api("alice")
    address = f"{LIST}{scene.report.pk}/"
    for sent, field in [
        ({}, "text"),
        ({"text": "a", "jobs": [1]}, "text"),
        ({"text": " "}, "text"),
        ({"jobs": []}, "jobs"),
        ({"jobs": [scene.first.pk], "figures": []}, "figures"),
        ({"jobs": [scene.first.pk], "figures": ["chart:Nonsense"]}, "figures"),
        ({"txt": "a"}, "txt"),
    ]:
        answer = api.post(f"{address}blocks/", sent, format="json")
        assert (answer.status_code, list(answer.json()["fields"])) == (400, [field]), sent
    answer = api.post(LIST, {"title": "x" * 201}, format="json")
    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["title"])
    answer = api.post(f"{address}links/", {"days": 3}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
    stranger = User.objects.get(username="bob")
    actions.set_readers(scene.alice, scene.report.pk, "everybody")
    assert _api(stranger.username).post(f"{address}blocks/", {"text": "a"}, format="json").status_code == 403
    bobs = actions.make_report(stranger, "His").pk
    sent = {"jobs": [scene.first.pk], "figures": ["chart:Loss"]}
    assert _api("bob").post(f"{LIST}{bobs}/blocks/", sent, format="json").status_code == 404
