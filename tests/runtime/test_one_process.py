"""Scripts of one process that holds several slots: its start, its processes, its devices, and its end."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tidepool import json_sockets, procfs
from tidepool.protocol import ShimStatus, decode

from tests.runtime.lab import Lab
from tests.waiting import wait_until

#: One program that starts its own processes, as PyTorch's tutorial has it.
SPAWN = """
import os, socket, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def main(rank, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    total = torch.ones(1) * (rank + 1)
    dist.all_reduce(total)
    print(f"rank {rank} sum {total.item()}", flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(main, args=(port,), nprocs=2)
    print("joined", os.environ.get("WORLD_SIZE"), flush=True)
"""

#: One program whose processes save when they are told to end, if its argument says so.
SAVES = """
import os, pathlib, signal, subprocess, sys, time

CHILD = '''
import os, pathlib, signal, sys, time
folder = pathlib.Path(os.environ["CHECKPOINT_DIR"])
def save(number, frame):
    time.sleep(0.3)
    (folder / f"saved-{sys.argv[1]}").touch()
    sys.exit(0)
if sys.argv[2] == "save":
    signal.signal(signal.SIGTERM, save)
(folder / f"child-{sys.argv[1]}").write_text(str(os.getpid()))
time.sleep(600)
'''
children = [subprocess.Popen([sys.executable, "-c", CHILD, str(number), sys.argv[1]]) for number in range(2)]
codes = [child.wait() for child in children]
print("ended", codes, flush=True)
"""

SEES = """
import json, os, pathlib
pathlib.Path(os.environ["LOG_DIR"], "seen.json").write_text(json.dumps(dict(os.environ)))
"""


@pytest.fixture
def make_single(make_lab: Callable[..., Lab], tmp_path: Path) -> Callable[..., Lab]:
    def make(source: str, *arguments: str, slots: int = 2, **given: Any) -> Lab:
        code = tmp_path / "code"
        code.mkdir()
        (code / "train.py").write_text(source)
        options = {"engine": "single", "min_slots": slots, "code_folder": str(code), **given}
        lab = make_lab("train.py", arguments=list(arguments), sizes={"a": slots}, **options)
        for name in ("checkpoint", "model"):
            (lab.folder / name).mkdir()
        return lab

    return make


def printed(lab: Lab) -> str:
    """Return what its script has printed; gloo of older torch prints of its connections."""
    text = "".join(path.read_text() for path in sorted(lab.folder.glob("log/*/stdout")))
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("[Gloo]"))


def test_a_program_that_starts_its_own_processes_is_started_once(make_single: Callable[..., Lab]) -> None:
    lab = make_single(SPAWN)
    lab.size(2)
    [end] = wait_until(lambda: list(lab.exits().values()), lab.story)
    assert end["code"] == 0, lab.story()
    lines = printed(lab).splitlines()
    assert sorted(lines[:2]) == ["rank 0 sum 3.0", "rank 1 sum 3.0"]
    assert lines[2:] == ["joined None"]
    active = lab.active()
    assert (active["world_size"], [member["slot"] for member in active["members"]]) == (2, [0, 1])
    assert {member["member_id"] for member in active["members"]} == {"a.0.1"}


def statuses(lab: Lab) -> list[tuple[str, int]]:
    with json_sockets.connect(lab.folder / "shim.a.sock") as connection:
        lines = json_sockets.Lines()
        while not (found := lines.feed(connection.recv(65536))):
            pass
        return [(rank.member_id, rank.slot) for rank in decode(ShimStatus, found[0]).ranks]


def begun(lab: Lab) -> list[int]:
    """Return the pids of the script's own processes, once both have begun."""
    files = sorted((lab.folder / "checkpoint").glob("child-*"))
    pids = [int(text) for file in files if (text := file.read_text())]
    return pids if len(pids) == 2 else []


@pytest.mark.parametrize("way", ["save", "die"])
def test_a_stop_reaches_the_processes_that_it_has_started(make_single: Callable[..., Lab], way: str) -> None:
    lab = make_single(SAVES, way)
    lab.size(2)
    children = [lab.process("a", pid) for pid in wait_until(lambda: begun(lab), lab.story)]
    assert statuses(lab) == [("a.0.1", 0), ("a.0.1", 1)], "both slots are in use to its end"
    began = time.monotonic()
    lab.end(grace_seconds=60.0)
    assert time.monotonic() - began < 30.0
    assert not any(procfs.runs(child) for child in children)
    saved = sorted(path.name for path in (lab.folder / "checkpoint").glob("saved-*"))
    assert saved == (["saved-0", "saved-1"] if way == "save" else [])
    assert ("ended [0, 0]" in printed(lab)) == (way == "save")


def test_it_sees_all_of_its_devices(make_single: Callable[..., Lab]) -> None:
    lab = make_single(SEES, slots=3, virtual=False)
    lab.target(("a", 0), ("a", 1), ("a", 2))
    wait_until(lambda: lab.exits(), lab.story)
    [file] = lab.folder.glob("log/*/seen.json")
    seen = json.loads(file.read_text())
    assert (seen["CUDA_VISIBLE_DEVICES"], seen.get("RANK")) == ("0,1,2", None)
    assert seen["CHECKPOINT_DIR"] == str(lab.folder / "checkpoint")
