"""Through the whole product, behind walls: a training gets its secrets, and no value is found anywhere else."""

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import psutil
import pytest
from tidepool.client.api import Client
from tidepool.client.errors import JobFailed

from tests.journey.running_stack import RunningStack, manage

pytestmark = pytest.mark.journey

CANARY = "canary_5up3r-53cr3t_of_alice"
KEY = "-----BEGIN KEY-----\ncanary+line+of+the+key\n-----END KEY-----\n"
SCRIPT = """
import os, subprocess, sys
token, path = os.environ["HF_TOKEN"], os.environ["KEY_FILE"]
print("lengths", len(token), len(open(path).read()), flush=True)
print("it is", token, flush=True)
print(open(path).read(), file=sys.stderr, flush=True)
subprocess.run(["sh", "-c", 'echo child "$HF_TOKEN"; cat "$KEY_FILE"'], check=True)
open(os.path.join(os.environ["RESULT_DIR"], "written-by-the-script"), "w").write(token)
raise ValueError("refused: " + token)
"""


@pytest.fixture(scope="module")
def client(stack: RunningStack) -> Iterator[Client]:
    with stack.api() as api:
        token = api.post("me/token/").json()["token"]
    with Client(stack.url, token) as made:
        yield made


def files_with(folder: Path, *texts: str) -> set[str]:
    """Return the names of the files below the folder that contain one of the texts."""
    wanted = [text.encode() for text in texts]
    found = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path.name for path in found if any(text in path.read_bytes() for text in wanted)}


def watch_command_lines(seen: set[str], over: Event) -> None:
    while not over.wait(0.02):
        for process in psutil.process_iter(["cmdline"]):
            if "canary" in " ".join(process.info["cmdline"] or ()):
                seen.add(str(process.info["cmdline"]))


def test_a_secret_is_given_and_found_nowhere_else(stack: RunningStack, client: Client, tmp_path: Path) -> None:
    for secret in ({"name": "HF_TOKEN", "value": CANARY}, {"name": "KEY_FILE", "value": KEY, "is_file": True}):
        made = client.connection.json("POST", "secrets/", json=secret)
        assert "value" not in made
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    seen, over = set[str](), Event()
    watcher = Thread(target=watch_command_lines, args=(seen, over))
    watcher.start()
    try:
        job = client.submit(script, name="canary", secrets="HF_TOKEN KEY_FILE")
        with pytest.raises(JobFailed, match=r"refused: \*\*\*"):
            job.wait()
    finally:
        over.set()
        watcher.join()
    log = "".join(job.logs())
    assert f"lengths {len(CANARY)} {len(KEY)}" in log
    assert "it is ***" in log
    assert "child ***" in log
    answers = [client.connection.get(f"jobs/{job.id}/{part}") for part in ("", "events/", "provenance/", "ranks/")]
    answers.append(client.connection.get("secrets/"))
    assert "canary_5" not in json.dumps(answers)
    dump = manage(stack.home, "dumpdata").stdout
    assert '"HF_TOKEN"' in dump
    assert "canary_5" not in dump
    assert "canary+line" not in dump
    with sqlite3.connect(stack.home / "tidepool.sqlite3") as database:
        assert "canary_5" not in "\n".join(database.iterdump())
    assert files_with(stack.home, "canary_5", "canary+line") == {"written-by-the-script"}
    assert not seen
    held = subprocess.run(["grep", "-l", "canary_5", "-r", str(stack.home / "run")], capture_output=True, check=False)
    assert held.stdout == b""
