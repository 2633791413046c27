"""Secrets of users in a training's processes: what ranks get, and what reaches logs, journals and command lines."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tidepool.protocol import GivenSecret
from tidepool.secret_masks import MASK, Mask

from tests.runtime.lab import Lab
from tests.waiting import wait_until

TOKEN = "hf_canary_0123456789"
PEM = "-----BEGIN KEY-----\ncanary+line+one\ncanary+line+two\n-----END KEY-----\n"
GIVEN = [GivenSecret("HF_TOKEN", TOKEN), GivenSecret("KEY_FILE", PEM, is_file=True)]

SCRIPT = """
import os, subprocess, sys
token, path = os.environ["HF_TOKEN"], os.environ["KEY_FILE"]
key = open(path).read()
# Lengths and digests tell whether the values have arrived, without the values.
print("arrived", len(token), len(key), flush=True)
os.write(1, token[:7].encode()); os.write(1, token[7:].encode() + b" in two parts" + os.linesep.encode())
for line in key.splitlines():
    print("line", line, flush=True)
child = "import os; print('child', os.environ['HF_TOKEN'] + '.', len(open(os.environ['KEY_FILE']).read()))"
subprocess.run([sys.executable, "-c", child])
try:
    open(path, "w").write("other")
except OSError as error:
    print("refused", type(error).__name__, flush=True)
print(token, file=sys.stderr, flush=True)
"""

KILLED = """
import os
for n in range(20000):
    print(n, os.environ["HF_TOKEN"])
print("hf_can", end="", flush=True)
os.kill(os.getpid(), 9)
"""


def everything_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def make(make_lab: Callable[..., Lab], tmp_path: Path, source: str, *, slots: int = 1, engine: str = "single") -> Lab:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(source)
    options = {"engine": engine, "min_slots": slots, "code_folder": str(code), "user_secrets": GIVEN}
    lab = make_lab("train.py", sizes={"a": slots}, **options)
    for name in ("checkpoint", "model"):
        (lab.folder / name).mkdir()
    lab.size(slots)
    return lab


def logged(lab: Lab, stream: str) -> list[str]:
    return "".join(path.read_text() for path in sorted(lab.folder.glob(f"log/*/{stream}"))).splitlines()


def test_a_script_gets_variables_and_files_and_its_log_has_no_value(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = make(make_lab, tmp_path, SCRIPT)
    [end] = wait_until(lambda: list(lab.exits().values()), lab.story)
    assert end["code"] == 0, lab.story()
    assert logged(lab, "stdout") == [
        f"arrived {len(TOKEN)} {len(PEM)}",
        f"{MASK} in two parts",
        *[f"line {MASK}"] * 4,
        f"child {MASK}. {len(PEM)}",
        "refused PermissionError",
    ]
    assert MASK in logged(lab, "stderr")
    found = everything_below(lab.folder)
    assert TOKEN.encode() not in found
    assert b"canary" not in found.replace(b"hf_canary", b""), "no line of the file either"


def test_ranks_of_a_gang_have_masked_logs_and_errors(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    source = (
        'import os\nprint("token is", os.environ["HF_TOKEN"])\nraise ValueError("refused: " + os.environ["HF_TOKEN"])\n'
    )
    lab = make(make_lab, tmp_path, source, slots=2, engine="fixed")
    ends = wait_until(lambda: len(lab.exits()) == 2 and list(lab.exits().values()), lab.story)
    assert {end["error"]["message"] for end in ends} == {f"refused: {MASK}"}
    assert logged(lab, "stdout").count(f"token is {MASK}") == 2
    assert TOKEN.encode() not in everything_below(lab.folder)


def test_a_rank_that_is_killed_leaves_all_that_it_wrote(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    lab = make(make_lab, tmp_path, KILLED)
    wait_until(lambda: lab.exits(), lab.story)
    lines = logged(lab, "stdout")
    assert lines[-1] == "hf_can", "the beginning of a value that never came"
    assert lines[:-1] == [f"{n} {MASK}" for n in range(20000)]


@pytest.mark.parametrize("seed", range(20))
def test_a_mask_finds_values_however_they_arrive(seed: int) -> None:
    chance = random.Random(seed)
    values = ["abababab", "abababababXYZ", "bababbab", "12345678"]
    words = [*values, "ab", "aba", "x", "1234567", " ", "XYZ"]
    text = "".join(chance.choice(words) for _ in range(200))
    mask, whole = Mask(values), Mask(values)
    data, written, place = text.encode(), b"", 0
    while place < len(data):
        size = chance.randrange(1, 20)
        written += mask.feed(data[place : place + size])
        place += size
    written += mask.rest()
    assert written.decode() == whole.text(text)
    assert not any(value in written.decode() for value in values)


def test_text_without_values_is_not_held_back() -> None:
    mask = Mask(["secret-value"])
    assert mask.feed(b"step 1\n") == b"step 1\n"
    assert mask.feed(b"sec") == b""
    assert mask.feed(b"onds 3\n") == b"seconds 3\n"
    assert Mask([]).feed(b"anything") == b"anything"
