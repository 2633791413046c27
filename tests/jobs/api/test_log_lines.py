"""Logs as lines, searched and downloaded: of every attempt, and nothing but the job's own."""

import io
import zipfile
from itertools import accumulate

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.files.job_folder import job_folder
from jobs.files.logs import log_list
from jobs.files.search import search_logs
from jobs.models import Job, Rank
from tests.factories import UserFactory, set_job

pytestmark = pytest.mark.django_db
RED = "\x1b[31mError\x1b[0m: no such file\n"


@pytest.fixture
def logs(alices_job):
    """Two attempts; in the second two ranks, of which one wrote in colour."""
    set_job(alices_job, attempt=2)
    folder = job_folder(alices_job)
    for attempt, member_id, rank in ((1, "h.0.1", None), (2, "h.0.1", 0), (2, "h.1.1", 1)):
        Rank.objects.create(
            job=alices_job, attempt=attempt, member_id=member_id, host="h", slot=0, pid=1, started_at=1.0, rank=rank
        )
        written = folder.start_attempt(attempt) / "log" / f"{member_id}.h"
        written.mkdir()
        (written / "stdout").write_text(f"life {attempt} of {member_id}\n" + "step error\n" * 3)
        (written / "stderr").write_text(RED if rank == 1 else "")
    return folder


def _get(api, job: Job, what: str, **query):
    return api.get(f"/api/v1/jobs/{job.pk}/logs/{what}/", query)


def test_every_log_of_every_attempt_is_listed(alice_api, alices_job, logs):
    files = _get(alice_api, alices_job, "files").json()["results"]

    assert [(file["attempt"], file["rank"], file["stream"]) for file in files] == [
        (attempt, member_id, stream)
        for attempt, member_id in ((1, "h.0.1"), (2, "h.0.1"), (2, "h.1.1"))
        for stream in ("stdout", "stderr")
    ]
    assert files[-1]["topic"] == f"log.{alices_job.pk}.2.stderr.h.1.1"
    assert (files[-1]["number"], files[-1]["size_bytes"]) == (1, len(RED))


def test_listing_costs_the_same_however_many_ranks_there_were(alice_api, alices_job, logs):
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert _get(alice_api, alices_job, "files").status_code == 200
        return len(queries)

    before = cost()
    for slot in range(20):
        Rank.objects.create(
            job=alices_job, attempt=2, member_id=f"h.{slot}.2", host="h", slot=slot, pid=1, started_at=1.0
        )

    assert cost() == before


def test_lines_carry_their_colours_beside_their_text(alice_api, alices_job, logs):
    answer = _get(alice_api, alices_job, "lines", rank="1", stream="stderr").json()

    assert (answer["rank"], answer["start"], answer["next"], answer["size"]) == ("h.1.1", 0, len(RED), len(RED))
    assert answer["lines"] == [
        {"at": 0, "spans": [{"text": "Error", "style": "red"}, {"text": ": no such file", "style": ""}], "cut_bytes": 0}
    ]


def test_a_former_life_is_read_by_its_number(alice_api, alices_job, logs):
    former = _get(alice_api, alices_job, "lines", rank="h.0.1", attempt=1).json()
    assert former["lines"][0]["spans"][0]["text"] == "life 1 of h.0.1"
    assert _get(alice_api, alices_job, "lines", rank="1", attempt=1).status_code == 404


@pytest.mark.parametrize("rank", ["0", "h.1.1"])
def test_a_rank_that_writes_nothing_has_no_lines(alice_api, alices_job, logs, rank):
    for file in logs.attempt(2).glob("log/*/*"):
        file.unlink()

    assert _get(alice_api, alices_job, "lines", rank=rank).json()["lines"] == []


def test_a_search_counts_in_all_ranks_and_finds_the_nth(alice_api, alices_job, logs):
    def found(number: int):
        return _get(alice_api, alices_job, "search", q="ERROR", attempt=2, number=number).json()

    first, last, none = found(1), found(7), found(8)

    assert first["count"] == last["count"] == none["count"] == 7
    assert first["match"] == {
        "attempt": 2, "rank": "h.0.1", "stream": "stdout", "at": len("life 2 of h.0.1\n"), "nth": 0
    }  # fmt: skip
    # The place counts in the visible text: colours in between do not count.
    assert last["match"] == {"attempt": 2, "rank": "h.1.1", "stream": "stderr", "at": 0, "nth": 0}
    assert none["match"] is None
    assert _get(alice_api, alices_job, "search", q="error:", attempt=2).json()["count"] == 1


def test_matches_are_counted_across_the_pieces_in_which_a_log_is_read(alices_job, logs):
    line = "x" * 1000 + " needle Needle\n"
    (logs.attempt(2) / "log" / "h.0.1.h" / "stdout").write_text(line * 3_000)

    chosen = log_list(alices_job, attempt=2, rank="h.0.1", stream="stdout")
    found = search_logs(chosen, "needle", 5_000)

    assert (found.count, found.is_complete) == (6_000, True)
    assert found.match
    assert (found.match.at, found.match.nth) == (len(line) * 2_499, 1)


#: Written text, and the number of times that "needle" is visible in it.
SEEN = [
    ("needle", 1),
    ("ne\x1b[31medle\x1b[0m NEEDLE", 2),
    ("windows needle\r", 1),
    ("needle 10 %\rneedle 20 %\r30 % needle", 1),
    ("needle 10 %\r100 %", 0),
    ("needle \x1b[32m10 %\x1b[0m\r\x1b[32m100 %\x1b[0m", 0),
    ("\x1b]0;needle\x07title", 0),
    ("\x1b[2Kne\x1b[1Gedle", 1),
]


def test_what_is_searched_is_what_people_see(alices_job, logs):
    (logs.attempt(2) / "log" / "h.0.1.h" / "stdout").write_bytes("".join(f"{line}\n" for line, _ in SEEN).encode())
    chosen = log_list(alices_job, attempt=2, rank="h.0.1", stream="stdout")

    places = [search_logs(chosen, "needle", number).match for number in range(1, 8)]

    starts = list(accumulate((len(line.encode()) + 1 for line, _ in SEEN), initial=0))
    expected = [(starts[place], nth) for place, (_, count) in enumerate(SEEN) for nth in range(count)]
    assert [(match.at, match.nth) for match in places if match] == expected


def test_a_text_over_two_lines_is_nowhere(alice_api, alices_job, logs):
    assert _get(alice_api, alices_job, "search", q="1\nError").json()["count"] == 0


def test_a_search_that_takes_too_long_says_so(alices_job, logs):
    clock = iter(range(0, 1000, 6))

    found = search_logs(log_list(alices_job, attempt=2), "error", 1, clock=lambda: next(clock))

    assert (found.count, found.is_complete) == (3, False)


@pytest.mark.parametrize("query", [{}, {"q": ""}, {"q": "x" * 201}, {"q": "x", "number": 0}, {"q": "x", "stream": "y"}])
def test_a_search_that_makes_no_sense_is_refused_with_a_sentence(alice_api, alices_job, logs, query):
    answer = _get(alice_api, alices_job, "search", **query)

    assert answer.status_code == 400
    assert answer.json()["fields"]


def test_one_log_is_downloaded_as_it_was_written_and_all_as_a_zip(alice_api, alices_job, logs):
    one = _get(alice_api, alices_job, "download", rank="1", stream="stderr")
    assert one.getvalue() == RED.encode()
    assert one["Content-Disposition"] == f'attachment; filename="job-{alices_job.pk}-2-h.1.1-stderr.log"'
    every = _get(alice_api, alices_job, "download")
    with zipfile.ZipFile(io.BytesIO(every.getvalue())) as archive:
        assert {name.split("/")[0] for name in archive.namelist()} == {"attempt-1", "attempt-2"}
        assert archive.read("attempt-2/log/h.1.1.h/stderr") == RED.encode()


@pytest.mark.parametrize("what", ["files", "lines", "search", "download"])
def test_the_logs_of_others_do_not_exist(client, alices_job, logs, what):
    client.force_login(UserFactory())
    assert _get(client, alices_job, what, q="x").status_code == 404
    client.logout()
    assert _get(client, alices_job, what, q="x").status_code == 401
