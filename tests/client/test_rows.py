"""Rows of the client are those of the API's schema, and read answers of older and newer sites."""

import runpy
from datetime import UTC, datetime

import pytest
from tidepool.client.decoding import decoded
from tidepool.client.rows import Event, JobInfo, Reason, Term, Why

from tests.test_architecture import ROOT

AT = "2026-11-27T11:23:00Z"


def test_rows_are_those_of_the_schema() -> None:
    script = runpy.run_path(str(ROOT / "scripts/client-rows"))
    for name, source in script["modules"](script["schema_components"]()).items():
        assert source == (script["CLIENT"] / name).read_text(), (
            "the API's answers have changed: run .venv/bin/python scripts/client-rows"
        )


def test_times_and_rows_within_a_row_are_decoded() -> None:
    reason = {"code": "RESUMED", "params": {"slots": 2}, "text": "It goes on."}
    event = decoded(Event, {"seq": 3, "old": "a", "new": "b", "reason": reason, "actor": "", "at": AT})
    assert (event.at, event.reason) == (datetime(2026, 11, 27, 11, 23, tzinfo=UTC), Reason(**reason))
    why = decoded(Why, {"text": "", "terms": [{"name": "share", "value": "2", "job": None}], "remedies": []})
    assert (why.terms, why.remedies) == ((Term(name="share", value="2", job=None),), ())


def test_fields_of_a_newer_site_are_left_out_and_those_that_an_older_one_lacks_are_empty() -> None:
    job = decoded(JobInfo, {"id": 7, "reason": {}, "submitted_at": AT, "finished_at": AT, "new_in_9_0": 1})
    assert (job.is_over, job.tags, job.queue_position, job.error, job.final_metrics) == (True, (), None, None, {})


def test_a_row_without_its_time_is_refused() -> None:
    with pytest.raises(TypeError, match="at"):
        decoded(Event, {"seq": 3, "reason": {}})
