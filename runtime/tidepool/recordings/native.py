"""Flame graphs with functions of C: py-spy, a child of the rank, looks into it where it is installed and may do so.

A child stays behind the training's walls, so it needs no right that the script has not. https://github.com/benfred/py-spy
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tidepool.procfs import be_traced_by
from tidepool.protocol import FlameAnswer, RecordingProblem, RecordingRequest, SampledFunction, SampledThread

__all__ = ["MOST_LATE_SECONDS", "record_native_flame"]

#: Samples in a second. All threads stop for each, for as long as py-spy reads their stacks.
_SAMPLES_PER_SECOND: Final = 10
_MOST_SECONDS: Final = 60
#: Longest time that py-spy takes for the names of functions, beside that of recording: torch has millions of them.
MOST_LATE_SECONDS: Final = 60
#: Largest number of functions in a stack, the outermost ones, and of distinct stacks. C++ has several for each of
#: Python's.
_MOST_FRAMES: Final = 512
_MOST_STACKS: Final = 5000
_MOST_BYTES: Final = 128 * 2**20
#: Ends of files with Python's functions, as Cython and interpreters name them; "<string>" and the like are also some.
_PYTHON: Final = (".py", ".pyx", ".ipynb")
_THREAD: Final = re.compile(r'^Thread \S+ "(?P<name>.*)"$', re.DOTALL)
#: Shell that waits until it may be traced from, and becomes py-spy.
_GATE: Final = ("/bin/sh", "-c", 'read -r _ && exec "$@"', "sh")


def record_native_flame(request: RecordingRequest, log_dir: Path) -> FlameAnswer:
    """Have py-spy sample this process for `request.amount` seconds, at least 1 and at most 60."""
    program = shutil.which("py-spy", path=Path(sys.executable).parent) or shutil.which("py-spy")
    if program is None:
        return _without(request, "no_py_spy")
    seconds = max(1, min(request.amount, _MOST_SECONDS))
    with TemporaryDirectory(prefix="flame-", dir=log_dir) as folder:
        target = Path(folder, "flame.json")
        try:
            error = _recorded(program, seconds, target)
        except subprocess.TimeoutExpired:
            error = f"py-spy has not ended {MOST_LATE_SECONDS} s after the recording"
        if error:
            return _without(request, "failed", error[:300])
        with target.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        return _without(request, "failed", "py-spy has written too much: record fewer seconds")
    return _answer(request, json.loads(content), seconds)


def _recorded(program: str, seconds: int, target: Path) -> str:
    """Write speedscope's form. Return py-spy's last words where it has failed; "": it has not."""
    options = ["--native", "--idle", "--function", "--format", "speedscope"]
    numbers = ["--rate", str(_SAMPLES_PER_SECOND), "--duration", str(seconds), "--pid", str(os.getpid())]
    command = [*_GATE, program, "record", *options, *numbers, "--output", str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        try:
            be_traced_by(child.pid)
            _, words = child.communicate(b"\n", timeout=seconds + MOST_LATE_SECONDS)
        finally:
            child.kill()
            be_traced_by(0)
    if child.returncode == 0 and target.exists():
        return ""
    lines = words.decode(errors="replace").strip().splitlines()
    return f"py-spy: {lines[-1]}" if lines else f"py-spy has ended with {child.returncode}"


def _answer(request: RecordingRequest, found: Mapping[str, Any], seconds: float) -> FlameAnswer:
    functions, left_out, threads = dict[SampledFunction, int](), 0, []
    places = [functions.setdefault(_function(frame), len(functions)) for frame in found["shared"]["frames"]]
    own = threading.current_thread().name
    for profile in found["profiles"]:
        name = _name(profile["name"])
        if name == own:
            continue
        counts = Counter(tuple(places[each] for each in sample[:_MOST_FRAMES]) for sample in profile["samples"])
        kept = counts.most_common(_MOST_STACKS)
        left_out += counts.total() - sum(count for _, count in kept)
        stacks = [list(stack) for stack, _ in kept]
        is_main = name == threading.main_thread().name
        threads.append(SampledThread(name[:128], is_main, stacks, [count for _, count in kept]))
    threads.sort(key=lambda thread: (not thread.is_main, thread.name))
    return FlameAnswer(
        request.number,
        seconds=seconds,
        samples=max((len(profile["samples"]) for profile in found["profiles"]), default=0),
        functions=[*functions],
        threads=threads,
        left_out=left_out,
        is_native=True,
    )


def _name(profile: str) -> str:
    found = _THREAD.match(profile)
    return found["name"] if found else profile


def _function(frame: Mapping[str, Any]) -> SampledFunction:
    name, file = str(frame["name"]), str(frame["file"] or "")
    is_native = not (file.endswith(_PYTHON) or file.startswith("<"))
    if is_native and name.startswith("0x"):
        name = "(no name)"
    return SampledFunction(name[:256], file[:1024], max(0, int(frame["line"] or 0)), is_native)


def _without(request: RecordingRequest, problem: RecordingProblem, detail: str = "") -> FlameAnswer:
    return FlameAnswer(request.number, problem, detail)
