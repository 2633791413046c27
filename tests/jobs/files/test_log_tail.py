"""Check that what ranks write reaches the watchers of their log, once, and nobody else."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from core.hub import Client
from jobs.files.log_tail import MAX_BEHIND_BYTES, LogTails, LogTopic, log_topic_parts
from jobs.files.logs import Log
from tests.waiting import PATIENCE_SECONDS

TOPIC = "log.7.1.stdout.gpu-host-1.0.1"


@pytest.fixture
def log(tmp_path: Path) -> Log:
    (tmp_path / "stdout").write_text("before\n")
    return Log(1, "gpu-host-1.0.1", "gpu-host-1", "stdout", 0, 1, False, tmp_path / "stdout", tmp_path)


def write(log: Log, text: str) -> None:
    with log.path.open("a") as file:
        file.write(text)


async def frame(client: Client) -> dict[str, Any]:
    frame: dict[str, Any] = json.loads(await asyncio.wait_for(client.next_frame(), PATIENCE_SECONDS))
    return frame


def texts(frame: dict[str, Any]) -> list[str]:
    shown = [*frame["data"]["lines"], *([frame["data"]["unfinished"]] if frame["data"]["unfinished"] else [])]
    return ["".join(span["text"] for span in line["spans"]) for line in shown]


async def test_new_lines_come_with_their_places(log: Log) -> None:
    tails, client = LogTails(seconds=0.01), Client()
    tails.subscribe(client, TOPIC, log, after=7)
    write(log, "one\ntw")
    first = await frame(client)
    write(log, "o\n")
    second = await frame(client)
    tails.leave(client)

    assert (first["from_seq"], first["seq"], texts(first)) == (7, 13, ["one", "tw"])
    # The line that had not ended comes again as a whole, at the same place.
    assert (second["from_seq"], second["seq"], texts(second)) == (13, 15, ["two"])
    assert second["data"]["after"] == first["data"]["next"] == 11


async def test_who_knows_less_reads_again(log: Log) -> None:
    tails, early, late = LogTails(seconds=0.01), Client(), Client()
    tails.subscribe(early, TOPIC, log, after=7)
    tails.subscribe(late, TOPIC, log, after=3)

    assert (await frame(late))["kind"] == "reset"
    write(log, "for both\n")
    assert texts(await frame(early)) == texts(await frame(late)) == ["for both"]
    tails.leave(early)
    tails.leave(late)


async def test_who_writes_faster_than_anybody_reads_is_not_followed_line_by_line(log: Log) -> None:
    tails, client = LogTails(seconds=0.01), Client()
    tails.subscribe(client, TOPIC, log, after=7)
    write(log, ("x" * 99 + "\n") * (MAX_BEHIND_BYTES // 100 + 100))
    skipped = await frame(client)
    write(log, "last\n")

    assert skipped["kind"] == "reset"
    assert texts(await frame(client)) == ["last"]
    tails.leave(client)


async def test_a_log_that_nobody_watches_is_not_read(log: Log) -> None:
    tails, client = LogTails(seconds=0.01), Client()
    tails.subscribe(client, TOPIC, log, after=7)
    tails.unsubscribe(client, TOPIC)
    write(log, "unseen\n")
    tails.subscribe(client, TOPIC, log, after=14)
    write(log, "seen\n")

    assert texts(await frame(client)) == ["seen"]
    tails.leave(client)


@pytest.mark.parametrize(
    ("topic", "parts"),
    [
        (TOPIC, LogTopic(7, 1, "stdout", "gpu-host-1.0.1")),
        ("log.7.1.stdin.x", None),
        ("log.x.1.stdout.y", None),
        ("log.7.1.stdout.", None),
        ("job.7", None),
        ("cluster", None),
        ("log.²." + "1.stdout.y", None),
    ],
)
def test_a_topic_names_one_log(topic: str, parts: LogTopic | None) -> None:
    assert log_topic_parts(topic) == parts
