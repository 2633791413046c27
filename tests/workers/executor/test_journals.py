"""Journals are read from the acknowledged entry on, sent again when nobody acknowledges, and never pile up."""

import json
import os
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tidepool.journal import Journal, entries_in, read_journal
from tidepool.protocol import CheckpointPublished, DesiredJob, RankExited, RankStarted
from tidepool.safe_open import ForeignFileError

from jobs.control.intake import MESSAGE_BYTES
from tests.runtime.process_tree import launch_spec
from tests.workers.executor.embedded import desired_job
from workers.executor.journals import Journals

SHIM = "3.1.shim.host-a"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journals(tmp_path: Path, clock: Clock) -> Journals:
    return Journals("host-a", tmp_path / "journals.json", clock)


ENTRIES = {
    "rank_started": RankStarted("host-a.0.1", 0, 1000, 1.0, at=1.0),
    "rank_exited": RankExited("host-a.0.1", 0, 1000, code=0, at=2.0),
    "checkpoint": CheckpointPublished(1, 0, "checkpoint/step-1", 1, "", at=3.0),
}


@pytest.fixture
def desired(tmp_path: Path) -> DesiredJob:
    return desired_job(launch_spec(tmp_path, ""), [0], lead=True)


def record(desired: DesiredJob, *kinds: str) -> None:
    write(Path(desired.launch.folder) / "journal" / "shim.host-a.jsonl", *kinds)


def write(path: Path, *kinds: str) -> list[int]:
    with closing(Journal(path)) as journal:
        return [journal.append(ENTRIES[kind]) for kind in kinds]


def write_steps(desired: DesiredJob, first: int, last: int) -> None:
    with (Path(desired.launch.folder) / "metrics.jsonl").open("a") as file:
        file.writelines(f"{json.dumps({'step': step})}\n" for step in range(first, last + 1))


def write_recorded(path: Path, *iterations: int) -> None:
    records = [
        {
            "meta": {"time": 1767268800000},
            "grouplabel": "train",
            "etimes": {"iteration": {"type": 2, "value": str(iteration)}},
            "values": {"loss": {"type": 3, "value": "0.5"}},
        }
        for iteration in iterations
    ]
    with path.open("a") as file:
        file.writelines(f"{json.dumps(each)}\n" for each in records)


def numbers(journals: Journals, limit: int = 500) -> list[int]:
    return [entry.number for entry in journals.take(limit)]


def test_entries_are_taken_once_while_an_answer_may_still_come(journals: Journals, desired: DesiredJob) -> None:
    journals.follow(desired)
    record(desired, "rank_started", "rank_exited")
    entries = journals.take(500)
    assert [(entry.journal, entry.number, entry.kind) for entry in entries] == [
        (SHIM, 1, "rank_started"),
        (SHIM, 2, "rank_exited"),
    ]
    assert journals.take(500) == []
    record(desired, "rank_started")
    assert numbers(journals) == [3]


def test_entries_without_acknowledgement_are_sent_again(journals: Journals, desired: DesiredJob, clock: Clock) -> None:
    journals.follow(desired)
    record(desired, "rank_started", "rank_exited", "rank_started")
    assert numbers(journals) == [1, 2, 3]
    journals.acknowledge({SHIM: 1})
    clock.now += 6.0
    assert numbers(journals) == [2, 3]
    journals.acknowledge({SHIM: 3, "9.1.metrics": 5})
    clock.now += 6.0
    assert not journals.has_unsent()


def test_a_lost_report_is_sent_again_though_news_keep_coming(
    journals: Journals, desired: DesiredJob, clock: Clock
) -> None:
    journals.follow(desired)
    for second in range(4):
        clock.now = second * 2.0
        record(desired, "rank_started")
        taken = numbers(journals)
    assert taken == [1, 2, 3, 4]


def test_what_could_not_be_sent_is_taken_again_at_once(journals: Journals, desired: DesiredJob) -> None:
    journals.follow(desired)
    record(desired, "rank_started", "rank_exited")
    first = journals.take(500)
    journals.acknowledge({SHIM: 1})
    record(desired, "rank_started")
    second = journals.take(500)
    assert [entry.number for entry in second] == [3]
    journals.put_back(second)
    assert numbers(journals) == [3]
    journals.put_back(first)
    assert numbers(journals) == [2, 3], "the first is stored, and is not sent again"


def test_who_answers_late_is_not_flooded(journals: Journals, desired: DesiredJob, clock: Clock) -> None:
    journals.follow(desired)
    record(desired, "rank_started")
    sent_at = []
    for second in range(100):
        clock.now = float(second)
        if numbers(journals):
            sent_at.append(second)
    assert sent_at == [0, 6, 17, 38, 79]
    journals.acknowledge({SHIM: 1})
    record(desired, "rank_exited")
    assert numbers(journals) == [2]
    clock.now += 6.0
    assert numbers(journals) == [2]


def test_bare_lines_are_steps_numbered_by_position(journals: Journals, desired: DesiredJob) -> None:
    journals.follow(desired)
    write_steps(desired, 11, 12)
    assert not journals.has_urgent()
    entries = journals.take(500)
    assert [(entry.number, entry.kind, entry.data["step"]) for entry in entries] == [(1, "step", 11), (2, "step", 12)]


def test_a_line_that_is_still_being_written_waits(journals: Journals, desired: DesiredJob) -> None:
    journals.follow(desired)
    path = Path(desired.launch.folder) / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"ste')
    assert numbers(journals) == [1]
    journals.acknowledge({"3.1.metrics": 1})
    assert not journals.has_unsent()
    path.write_text('{"step": 1}\n{"step": 2}\n')
    assert numbers(journals) == [2]


def test_a_chatty_journal_leaves_room_for_the_others(journals: Journals, desired: DesiredJob) -> None:
    journals.follow(desired)
    write_steps(desired, 1, 900)
    record(desired, "rank_started")
    entries = journals.take(500)
    assert len(entries) == 500
    assert any(entry.journal == SHIM for entry in entries)


def test_metrics_wait_for_an_answer_and_nothing_else_does(
    journals: Journals, desired: DesiredJob, clock: Clock
) -> None:
    journals.follow(desired)
    write_steps(desired, 1, 3)
    assert numbers(journals, 2) == [1, 2]
    record(desired, "rank_exited")
    assert [entry.kind for entry in journals.take(500)] == ["rank_exited"]
    journals.acknowledge({"3.1.metrics": 2})
    assert numbers(journals) == [3]
    clock.now += 6.0
    assert numbers(journals) == [1, 3], "neither was answered"


def test_a_checkpoint_is_no_news_that_hurries(journals: Journals, desired: DesiredJob) -> None:
    journals.follow(desired)
    record(desired, "checkpoint")
    assert journals.has_unsent()
    assert not journals.has_urgent()
    record(desired, "rank_exited")
    assert journals.has_urgent()
    assert numbers(journals) == [1, 2]


def test_an_outage_of_hours_holds_a_bounded_number_in_memory(journals: Journals, desired: DesiredJob) -> None:
    journals.follow(desired)
    write_steps(desired, 1, 10_000)
    assert len(journals.take(20_000)) == 2000
    journals.acknowledge({"3.1.metrics": 2000})
    assert numbers(journals)[0] == 2001


def test_the_next_executor_goes_on_behind_what_was_acknowledged(
    journals: Journals, desired: DesiredJob, tmp_path: Path
) -> None:
    journals.follow(desired)
    write_steps(desired, 1, 4)
    journals.take(500)
    journals.acknowledge({"3.1.metrics": 3})
    after = Journals("host-a", tmp_path / "journals.json")
    after.recall()
    assert numbers(after) == [4]


def test_what_a_plain_script_records_keeps_its_steps_over_executors(tmp_path: Path, desired: DesiredJob) -> None:
    """Iterations that begin anew are counted on from the lines before, which have been acknowledged."""
    plain = msgspec.structs.replace(desired, launch=msgspec.structs.replace(desired.launch, engine="single"))
    journals = Journals("host-a", tmp_path / "journals.json")
    journals.follow(plain)
    folder, file = Path(desired.launch.folder), Path("log", "host-a.0.1", "evaluation-metrics.txt")
    path = folder / file
    path.parent.mkdir(parents=True)
    (folder / "evaluation-metrics.txt").symlink_to(file)
    assert not journals.has_unsent()
    write_recorded(path, 1, 2, 3)
    assert not journals.has_urgent()
    entries = journals.take(500)
    assert [(entry.journal, entry.kind, entry.data["step"]) for entry in entries] == [
        ("3.1.recorded", "recorded", step) for step in (1, 2, 3)
    ]
    journals.acknowledge({"3.1.recorded": 3})
    write_recorded(path, 1, 2)
    after = Journals("host-a", tmp_path / "journals.json")
    after.recall()
    assert [(entry.number, entry.data["step"]) for entry in after.take(500)] == [(4, 4), (5, 5)]


def test_what_an_elastic_script_records_is_in_its_steps_already(journals: Journals, desired: DesiredJob) -> None:
    journals.follow(desired)
    write_recorded(Path(desired.launch.folder) / "evaluation-metrics.txt", 1)
    assert not journals.has_unsent()


def test_a_released_jobs_journals_are_followed_to_their_end(
    journals: Journals, desired: DesiredJob, tmp_path: Path
) -> None:
    journals.follow(desired)
    record(desired, "rank_exited")
    journals.release((3, 1))
    assert numbers(journals) == [1]
    journals.acknowledge({SHIM: 1})
    assert json.loads((tmp_path / "journals.json").read_text()) == {}


def test_an_unreadable_journal_does_not_silence_the_others(journals: Journals, desired: DesiredJob) -> None:
    journals.follow(desired)
    (Path(desired.launch.folder) / "plans.jsonl").write_text("no json\n")
    write_steps(desired, 1, 1)
    assert numbers(journals) == [1]


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        '"text"',
        "[" * 100_000,
        '{"kind": "lost", "data": ' + "[" * 900 + "]" * 900 + "}",
        '{"kind": "lost", "data": []}',
        '{"kind": 5, "data": {}}',
        '{"kind": "' + "k" * 1000 + '", "data": {}}',
        '{"kind": "lost", "data": {"x": "' + "x" * 2**20 + '"}}',
    ],
)
def test_a_line_that_a_script_has_written_does_not_silence_the_others(
    journals: Journals, desired: DesiredJob, line: str
) -> None:
    """An entry that is none would make the whole report invalid, and the host silent."""
    journals.follow(desired)
    (Path(desired.launch.folder) / "plans.jsonl").write_text(f"{line}\n")
    write_steps(desired, 1, 1)
    assert numbers(journals) == [1]


def grown(act: Callable[[], object]) -> float:
    """Return by how many MiB this process's memory has grown at most while it acted."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["plans.jsonl", "journal/shim.host-a.jsonl"])
def test_a_line_of_100_megabytes_takes_no_memory_and_silences_nobody(
    journals: Journals, desired: DesiredJob, tmp_path: Path, name: str
) -> None:
    folder = Path(desired.launch.folder)
    (tmp_path / "other").mkdir()
    other = msgspec.structs.replace(desired, job=4, launch=launch_spec(tmp_path / "other", ""))
    for each in (desired, other):
        journals.follow(each)
    (folder / name).parent.mkdir(exist_ok=True)
    with (folder / name).open("wb") as file:
        for _ in range(100):
            file.write(b"x" * 10**6)
    write_steps(other, 1, 2)
    found: list[str] = []
    assert grown(lambda: found.extend(entry.journal for entry in journals.take(500))) < 4
    assert {*found} == {"4.1.metrics"}
    assert grown(lambda: read_journal(folder / name)) < 4


def test_a_million_entries_take_no_memory_and_leave_room_for_others(journals: Journals, desired: DesiredJob) -> None:
    folder = Path(desired.launch.folder)
    line = json.dumps({"number": 1, "kind": "lost", "data": {"x": [{"y": {}}] * 5}}) + "\n"
    (folder / "plans.jsonl").write_text(line * 10**6)
    record(desired, "rank_started")
    journals.follow(desired)
    found: list[str] = []
    assert grown(lambda: found.extend(entry.journal for entry in journals.take(500))) < 32
    assert SHIM in found
    assert len(found) <= 500


def test_readers_of_a_journal_without_end_look_at_its_newest_part(tmp_path: Path) -> None:
    path = tmp_path / "plans.jsonl"
    [_, _] = write(path, "rank_started", "checkpoint")
    with path.open("ab") as file:
        file.write(b'{"number": 3, "kind": "other", "data": {}}\n' * 20_000)
    write(path, "rank_exited")
    assert [*entries_in(path, 2000)] == [ENTRIES["rank_exited"]]
    assert [*entries_in(path)] == [ENTRIES[kind] for kind in ("rank_started", "checkpoint", "rank_exited")]


def test_a_file_that_takes_no_room_keeps_no_reader_and_no_writer_busy(tmp_path: Path) -> None:
    """A script can make a journal as long as the file system allows, of zeros."""
    path = tmp_path / "journal" / "shim.host-a.jsonl"
    write(path, "rank_started")
    os.truncate(path, 2**40)
    assert read_journal(path) == []
    with pytest.raises(ForeignFileError, match="too long"):
        Journal(path)
    assert path.stat().st_size == 2**40, "it is the training's, and is left alone"


@pytest.mark.parametrize("target", ["{theirs}", "../theirs", "log/theirs"])
def test_a_plain_scripts_record_leads_to_no_file_of_anothers(tmp_path: Path, desired: DesiredJob, target: str) -> None:
    plain = msgspec.structs.replace(desired, launch=msgspec.structs.replace(desired.launch, engine="single"))
    folder, theirs = Path(desired.launch.folder), tmp_path / "theirs"
    write_recorded(theirs, 1)
    (folder / "log").mkdir()
    (folder / "log" / "theirs").symlink_to(theirs)
    (folder / "evaluation-metrics.txt").symlink_to(target.format(theirs=theirs))
    journals = Journals("host-a", tmp_path / "journals.json")
    journals.follow(plain)
    assert journals.take(500) == []


@pytest.mark.parametrize("place", ["plans.jsonl", "journal"])
def test_no_link_makes_a_journal_of_anothers_file(
    journals: Journals, desired: DesiredJob, tmp_path: Path, place: str
) -> None:
    theirs = tmp_path / "theirs"
    write(theirs / "shim.host-a.jsonl", "checkpoint")
    with (theirs / "shim.host-a.jsonl").open("a") as file:
        file.write("no line")
    before = (theirs / "shim.host-a.jsonl").read_text()
    link = Path(desired.launch.folder) / place
    link.symlink_to(theirs if place == "journal" else theirs / "shim.host-a.jsonl")
    path = link / "shim.host-a.jsonl" if place == "journal" else link
    journals.follow(desired)
    assert numbers(journals) == []
    assert read_journal(path) == []
    with pytest.raises(ForeignFileError):
        Journal(path)
    assert (theirs / "shim.host-a.jsonl").read_text() == before


def test_a_pipe_in_place_of_a_journal_keeps_nobody_waiting(journals: Journals, desired: DesiredJob) -> None:
    path = Path(desired.launch.folder) / "plans.jsonl"
    os.mkfifo(path)
    journals.follow(desired)
    assert numbers(journals) == []
    assert read_journal(path) == []


def test_a_report_has_no_more_bytes_than_the_control_plane_reads(journals: Journals, desired: DesiredJob) -> None:
    journals.follow(desired)
    lines = [json.dumps({"step": step, "x": "\N{DUCK}" * 30_000}) for step in range(1, 41)]
    (Path(desired.launch.folder) / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    record(desired, "rank_started")
    taken = journals.take(500)
    assert len({entry.journal for entry in taken}) == 2
    assert 1 < len(taken) < 40
    assert len(json.dumps(json.dumps([entry.data for entry in taken]))) * 4 / 3 < MESSAGE_BYTES


def test_a_torn_line_is_cut_off_before_the_next_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "shim.jsonl"
    write(path, "rank_started")
    with path.open("a") as file:
        file.write('{"number":2,"ki')
    assert write(path, "rank_exited") == [2]
    assert read_journal(path) == [ENTRIES["rank_started"], ENTRIES["rank_exited"]]


def test_what_a_superseded_lead_has_written_is_counted_and_left_out(journals: Journals, desired: DesiredJob) -> None:
    folder = Path(desired.launch.folder)
    for number in (1, 2, 1):
        with closing(Journal(folder / "plans.jsonl", number)) as journal:
            journal.append(ENTRIES["checkpoint"])
    lines = [{"step": step, "lead_number": number} for step, number in ((1, 1), (2, 2), (2, 1), (3, 2))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    journals.follow(desired)
    taken = [(entry.journal, entry.number, entry.kind, entry.data.get("step")) for entry in journals.take(10)]
    assert [entry for entry in taken if entry[0] == "3.1.coordinator"] == [
        ("3.1.coordinator", 1, "checkpoint", 1),
        ("3.1.coordinator", 2, "checkpoint", 1),
        ("3.1.coordinator", 3, "superseded", None),
    ]
    assert [entry[3] for entry in taken if entry[0] == "3.1.metrics"] == [1, 2, None, 3]


def test_the_lead_of_acknowledged_entries_is_known_after_a_restart(
    journals: Journals, desired: DesiredJob, tmp_path: Path, clock: Clock
) -> None:
    folder = Path(desired.launch.folder)
    for number in (1, 2, 1):
        with closing(Journal(folder / "plans.jsonl", number)) as journal:
            journal.append(ENTRIES["checkpoint"])
    journals.follow(desired)
    journals.acknowledge({"3.1.coordinator": 2})
    assert journals.acknowledged("3.1.coordinator") == 2
    again = Journals("host-a", tmp_path / "journals.json", clock)
    again.recall()
    assert [(entry.number, entry.kind) for entry in again.take(10)] == [(3, "superseded")]
