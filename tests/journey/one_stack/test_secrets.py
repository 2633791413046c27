"""Through the whole product, behind walls: a training gets its secrets, and no value is found anywhere else."""

import gzip
import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Thread

import httpx
import psutil
import pytest
from tidepool.client.api import Client
from tidepool.client.errors import JobFailed
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.journey.running_stack import RunningStack, manage
from tests.journey.test_wmla_ports import log_in
from tests.waiting import wait_until

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


#: Trains for ever with the secret in the arguments, variables and closures of all of its functions.
HOLDS = """
import os, sys, threading, time, torch

class Holder:
    def __init__(self, token):
        self.token = token

def waits(token, *, key):
    while True:
        time.sleep(0.05)

def step(model, optimizer, token):
    kept = [token, Holder(token), {"token": token}]
    loss = model(torch.rand(8, 4)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return kept

def train(token, key):
    threading.Thread(target=waits, args=(token,), kwargs={"key": key}, daemon=True).start()
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    print("trains", flush=True)
    while True:
        step(model, optimizer, token)
        time.sleep(0.02)

train(os.environ["HF_TOKEN"], open(os.environ["KEY_FILE"]).read())
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
    return {path.name for path in found if any(text in content_of(path) for text in wanted)}


def content_of(path: Path) -> bytes:
    """Return what is in a file, unpacked; b"" if it was removed meanwhile, as processes replace their own."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return b""
    return gzip.decompress(content) if path.suffix == ".gz" else content


def watch_processes(lines: set[str], holders: set[str], over: Event) -> None:
    """Add the command lines with a canary, and the programs that have one among their variables."""
    while not over.wait(0.02):
        for process in psutil.process_iter(["cmdline", "name"]):
            if "canary" in " ".join(process.info["cmdline"] or ()):
                lines.add(str(process.info["cmdline"]))
            with suppress(OSError):  # it has ended
                if CANARY.encode() in Path(f"/proc/{process.pid}/environ").read_bytes():
                    holders.add(process.info["name"])


class FrameReader:
    """Keeps all frames of the live socket while it is open, of the topics that the pages of a job follow."""

    def __init__(self, stack: RunningStack) -> None:
        with httpx.Client(base_url=stack.url, trust_env=False, timeout=30) as browser:
            log_in(browser, stack.url, stack.password)
            cookie = f"tidepool_session={browser.cookies['tidepool_session']}"
        live = f"{stack.url.replace('http:', 'ws:')}/ws/live/"
        # A busy machine may take longer to answer a ping than the client waits for.
        options = {"additional_headers": {"Cookie": cookie}, "proxy": None, "ping_interval": None}
        self._open = ExitStack()
        self._socket = self._open.enter_context(connect(live, origin=Origin(stack.url), **options))
        self.frames: list[str] = []
        self._thread = Thread(target=self._read)
        self._thread.start()

    def follow(self, topic: str) -> None:
        self._socket.send(json.dumps({"subscribe": topic, "after": 0}))

    def topics(self) -> set[str]:
        return {str(json.loads(frame)["topic"]) for frame in self.frames}

    def close(self) -> None:
        self._open.close()
        self._thread.join()

    def _read(self) -> None:
        with suppress(ConnectionClosed):
            while True:
                self.frames.append(str(self._socket.recv()))


def test_a_secret_is_given_and_found_nowhere_else(stack: RunningStack, client: Client, tmp_path: Path) -> None:
    for secret in ({"name": "HF_TOKEN", "value": CANARY}, {"name": "KEY_FILE", "value": KEY, "is_file": True}):
        made = client.connection.json("POST", "secrets/", json=secret)
        assert "value" not in made
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    lines, holders, over = set[str](), set[str](), Event()
    watcher = Thread(target=watch_processes, args=(lines, holders, over))
    watcher.start()
    frames = FrameReader(stack)
    try:
        frames.follow("cluster")
        job = client.submit(script, name="canary", secrets="HF_TOKEN KEY_FILE")
        for topic in (f"job.{job.id}", "jobs"):
            frames.follow(topic)
        with pytest.raises(JobFailed, match=r"refused: \*\*\*"):
            job.wait()
        wait_until(lambda: '"FAILED"' in "".join(frames.frames), lambda: f"the end in {frames.frames[-5:]}")
    finally:
        over.set()
        watcher.join()
        frames.close()
    assert {"cluster", f"job.{job.id}"} <= frames.topics()
    assert "canary_5" not in "".join(frames.frames)
    assert "canary+line" not in "".join(frames.frames)
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
    assert not lines
    assert holders <= {"sh", "cat"}, "what the script has started"
    held = subprocess.run(["grep", "-l", "canary_5", "-r", str(stack.home / "run")], capture_output=True, check=False)
    assert held.stdout == b""


def test_no_record_of_what_a_rank_does_has_a_secret(stack: RunningStack, client: Client, tmp_path: Path) -> None:
    """Stacks, flame graphs and traces name functions and lines, and no value of an argument or variable."""
    for secret in ({"name": "HOLDS_TOKEN", "value": CANARY}, {"name": "HOLDS_FILE", "value": KEY, "is_file": True}):
        client.connection.json("POST", "secrets/", json=secret)
    script = tmp_path / "holds.py"
    script.write_text(HOLDS.replace("HF_TOKEN", "HOLDS_TOKEN").replace("KEY_FILE", "HOLDS_FILE"))
    job = client.submit(script, name="holds", secrets="HOLDS_TOKEN HOLDS_FILE")
    try:
        wait_until(lambda: "trains" in "".join(job.logs()), "that it trains")
        job.take_stacks()
        stacks = wait_until(lambda: (found := job.stacks()).groups and found, "its stacks")
        job.record_flame(seconds=5)
        flame = wait_until(lambda: (found := job.flame()).text and found, "its flame graph")
        job.record_trace(steps=2)
        trace = wait_until(lambda: (found := job.trace()).text and found, "its trace")
        written = [
            content_of(job.save_flame(tmp_path / "flame.json")),
            content_of(job.save_trace(tmp_path / "trace.json.gz")),
        ]
    finally:
        job.cancel()
    assert (stacks.state, flame.state, trace.state) == ("taken", "recorded", "recorded")
    assert all("holds.py line" in repr(record) for record in (stacks, flame)), "it is the script that is shown"
    told = "".join([repr(stacks), repr(flame), repr(trace), *(str(each) for each in written), "".join(job.logs())])
    assert "canary_5" not in told
    assert "canary+line" not in told
    assert files_with(stack.home, "canary_5", "canary+line") <= {"written-by-the-script"}, "in a record of the rank"
