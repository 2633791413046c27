"""The demo's history, which What if replays."""

from typing import Any

import pytest
from tidepool.client.api import Client

from webapp.tutorial.history import COUNT, KINDS, PACED, leave_history
from webapp.tutorial.play import Api, Tutorial


class Site(Api):
    """Keeps what is asked of it."""

    def __init__(self, *models: str) -> None:
        self.models = models
        self.submitted: list[dict[str, Any]] = []

    def get(self, path: str, **query: str | int) -> Any:
        assert path == "models/"
        return {"results": [{"name": name} for name in self.models]}

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        assert path == "jobs/"
        self.submitted.append(body or {})
        return {"id": len(self.submitted)}


class Uploads(Client):
    def __init__(self) -> None:
        self.added: list[Any] = []

    def add_model(self, name: str, path: Any, **given: Any) -> Any:
        self.added.append((name, path, given["entry_point"]))


@pytest.mark.parametrize("is_there", [False, True])
def test_trainings_that_scale_and_that_do_not_take_turns(is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("webapp.tutorial.history.time.sleep", pauses.append)
    site, uploads = Site(*["paced"] * is_there), Uploads()
    leave_history(Tutorial(site, lambda sentence: None, 1.0, 0.0, slots=8), uploads)
    assert uploads.added == ([] if is_there else [("paced", PACED, "train.py")])
    assert [job["parameters"] for job in site.submitted] == [*KINDS.values()] * (COUNT // 2)
    assert {(job["model"], job["min_slots"], job["max_slots"]) for job in site.submitted} == {("paced", 1, 8)}
    assert len({job["name"] for job in site.submitted}) == COUNT == len(pauses) + 1
