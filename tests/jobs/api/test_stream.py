"""Check that a follower of a job gets each change and each line once, wherever the connection was cut."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from core.errors import NotFound
from jobs.files.job_folder import job_folder
from jobs.files.log_lines import PIECE_BYTES
from jobs.models import Job, MetricPoint, Rank
from models_registry.models import RegisteredModelVersion
from tests.factories import UserFactory, set_job
from webapp.job_streams.following import Following, Place, StreamEvent, place_of

pytestmark = pytest.mark.django_db


def begin(job: Job, attempt: int, member_id: str = "h.0.1") -> Path:
    """The log of a rank 0 that has started."""
    set_job(job, state="RUNNING", attempt=attempt)
    Rank.objects.create(
        job=job, attempt=attempt, member_id=member_id, host="h", slot=0, pid=1, started_at=1.0, rank=0, generation=1
    )
    log = job_folder(job).start_attempt(attempt) / "log" / f"{member_id}.h" / "stdout"
    log.parent.mkdir()
    log.write_text("")
    return log


def end(job: Job) -> None:
    set_job(job, state="SUCCEEDED", finished_at=timezone.now())


def new(following: Following) -> list[StreamEvent]:
    """All that can be told now."""
    told = following.look()
    while following.has_more:
        told += following.read()
    return told


def lines(told: list[StreamEvent]) -> list[str]:
    return [line for each in told if each.event == "log" for line in each.data["lines"]]


def test_states_lines_and_metrics_until_the_end(alices_job):
    following = Following(alices_job.owner, alices_job.pk, Place())
    [waiting] = new(following)
    assert (waiting.event, waiting.data["state"], new(following)) == ("state", "PENDING", [])

    log = begin(alices_job, 1)
    log.write_text("one\ntwo\nthr")
    MetricPoint.objects.create(job=alices_job, name="loss", step=1, epoch=0, value=0.5, at=timezone.now())
    told = new(following)
    assert [each.event for each in told] == ["state", "metrics", "log"]
    assert lines(told) == ["one", "two"]
    assert told[1].data["points"][0]["value"] == 0.5

    log.write_text("one\ntwo\nthree\nunended")
    end(alices_job)
    told = new(following)
    assert lines(told) == ["three", "unended"]
    assert (told[-1].event, told[-1].data, following.is_done) == ("end", {"state": "SUCCEEDED"}, True)


def test_of_a_fixed_size_nobody_is_taken_for_rank_0_before_they_have_numbers(alices_job):
    set_job(alices_job, state="RUNNING", attempt=1)
    first, second = (begin(alices_job, 1, member) for member in ("h.0.1", "h.1.1"))
    first.write_text("of rank 0\n")
    second.write_text("of rank 1\n")
    Rank.objects.update(rank=None, generation=0)
    following = Following(alices_job.owner, alices_job.pk, Place())
    assert lines(new(following)) == ["of rank 0"], "an elastic one has somebody who speaks from the start"

    RegisteredModelVersion.objects.update(engine="fixed")
    following = Following(alices_job.owner, alices_job.pk, Place())
    assert lines(new(following)) == []
    Rank.objects.filter(member_id="h.1.1").update(rank=0, generation=1)
    assert lines(new(following)) == ["of rank 1"]


def test_goes_on_behind_each_event_even_into_another_attempt(alices_job):
    first = begin(alices_job, 1)
    first.write_text("".join(f"{number} {'x' * 1000}\n" for number in range(3 * PIECE_BYTES // 1000)) + "cut off")
    told = new(Following(alices_job.owner, alices_job.pk, Place()))
    all_lines = lines(told)
    pieces = [each for each in told if each.event == "log"]
    assert len(pieces) == 4

    begin(alices_job, 2, "h.0.2").write_text("again\n")
    for count, piece in enumerate(pieces, start=1):
        place = place_of(str(piece.place))
        assert place == piece.place
        rest = lines(new(Following(alices_job.owner, alices_job.pk, place)))
        assert [*lines(pieces[:count]), *rest] == [*all_lines, "cut off", "again"]


def test_one_that_may_not_see_it_any_more_is_told_nothing(alices_job):
    following = Following(alices_job.owner, alices_job.pk, Place())
    new(following)
    Job.objects.filter(pk=alices_job.pk).update(owner=UserFactory(username="carol"))
    with pytest.raises(NotFound):
        following.look()


def events(answer: Any) -> list[tuple[str, str, Any]]:
    """Id, name and data."""
    found = []
    for block in b"".join(answer.streaming_content).decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((fields["id"], fields["event"], json.loads(fields["data"])))
    return found


def test_over_http_it_goes_on_behind_the_last_event(alice_api, alices_job):
    log = begin(alices_job, 1)
    log.write_text("one\n")
    address = f"/api/v1/jobs/{alices_job.pk}/stream/"
    answer = alice_api.get(address, {"metrics": "false"}, headers={"Accept": "text/event-stream"})
    assert answer["Content-Type"] == "text/event-stream"
    *_, (last, _, data) = events(answer)
    assert data == {"attempt": 1, "rank": "h.0.1", "lines": ["one"]}

    log.write_text("one\ntwo\n")
    found = events(alice_api.get(address, headers={"Last-Event-ID": last}))
    assert [data["lines"] for _, event, data in found if event == "log"] == [["two"]]
    found = events(alice_api.get(address, {"logs": "false"}))
    assert [event for _, event, _ in found] == ["state"]


@pytest.mark.parametrize(
    ("query", "headers"),
    [({"stream": "stdin"}, {}), ({"logs": "perhaps"}, {}), ({}, {"Last-Event-ID": "7"}), ({}, {"Last-Event-ID": "…"})],
)
def test_what_does_not_fit_is_refused_in_json(alice_api, alices_job, query, headers):
    accept = {"Accept": "text/event-stream"}
    answer = alice_api.get(f"/api/v1/jobs/{alices_job.pk}/stream/", query, headers={**accept, **headers})
    assert answer.status_code == 400
    assert json.loads(answer.content)["code"] == "invalid"
