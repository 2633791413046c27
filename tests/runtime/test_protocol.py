"""The protocol's JSON: what is accepted, what is refused, and what a journal holds."""

import json
import math
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tidepool.journal import Journal, read_journal
from tidepool.protocol import (
    ActiveMember,
    DesiredMembership,
    GenerationActive,
    Member,
    MemberMessage,
    ProtocolError,
    RankEnd,
    RankExited,
    Restored,
    ShimJoin,
    UnusableCheckpoint,
    decode,
    encode,
    entry_from_json,
    entry_to_json,
    from_json,
    to_json,
)

DESIRED = DesiredMembership(1, 2, 3, [Member("a", 0)])


def test_a_newer_sender_may_add_fields() -> None:
    values = to_json(DESIRED)
    values["later"], values["members"][0]["rack"] = 1, "r"
    assert from_json(DesiredMembership, values) == DESIRED


@pytest.mark.parametrize(
    "changes",
    [{"version": 2}, {"job": "1"}, {"job": True}, {"job": 1.5}, {"members": None}, {"members": [{"host": "a"}]}],
    ids=str,
)
def test_what_does_not_fit_is_refused_by_name(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match=next(iter(changes))):
        from_json(DesiredMembership, to_json(DESIRED) | changes)


@pytest.mark.parametrize("line", [b"{", b"[]", b"{}", b"1"])
def test_lines_that_are_no_message_are_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError, match="DesiredMembership"):
        decode(DesiredMembership, line)


def test_whole_numbers_are_seconds_too() -> None:
    message = decode(MemberMessage, b'{"kind": "alive", "waits_seconds": 2}')
    assert message.waits_seconds == 2.0
    assert isinstance(message.waits_seconds, float)


def test_what_a_script_may_bring_travels() -> None:
    """A file name that is no UTF-8, a number that is none, and one of any size."""
    error = {"kind": "OSError", "message": "b\udcff.csv", "limit": 10**30, "loss": math.nan}
    end = RankEnd("a.0.1", 0, 1, None, True, error)
    [arrived] = decode(ShimJoin, encode(ShimJoin(1, 1, "a", [], [end]))).ended
    assert arrived.error is not None
    assert math.isnan(arrived.error.pop("loss"))
    assert arrived.error == {"kind": "OSError", "message": "b\udcff.csv", "limit": 10**30}


ENTRIES = [
    RankExited("a.0.1", 0, 42, signal=9, at=1.0),
    GenerationActive(2, 1, 7, 1.5, 3, "failure", [ActiveMember("a.0.1", 0, "a", 0)], at=2.0),
    Restored(7, 0, "", [UnusableCheckpoint("checkpoint/step-9", "it is corrupt")], at=3.0),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_an_entry_is_read_as_it_was_written(entry: Any) -> None:
    kind, data = entry_to_json(entry)
    assert entry_from_json(kind, json.loads(json.dumps(data))) == entry


def test_entries_of_unknown_kinds_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "plans.jsonl"
    path.write_text('{"number":1,"kind":"from the future","data":{}}\n')
    with closing(Journal(path)) as journal:
        assert [journal.append(entry) for entry in ENTRIES] == [2, 3, 4]
    assert read_journal(path) == ENTRIES
    line = json.loads(path.read_text().splitlines()[1])
    assert line["number"] == 2
    assert (line["kind"], line["data"]["member_id"]) == ("rank_exited", "a.0.1")
    assert "kind" not in line["data"]
