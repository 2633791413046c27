"""What a wall costs: a training's first rank, and further ones, with and without it.

    python -m benchmarks.walls [--long] [--json FILE]

One forkserver forks a shim for a job and is told to start a rank, in turns without a wall, behind one, and behind one
that closes a TCP port. Times are from the request to the first line of a script without a session: to the first rank,
which waits for the shim and its wall, and from the wish for a second rank to its line, with the wall there already.
"""

import itertools
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tidepool.confine.wall import Wall

from benchmarks.results import Result, arguments, result, show
from tests.runtime.process_tree import JobReconciler, running_forkserver
from tests.waiting import wait_until
from workers.executor.forkserver import Forkserver

SCRIPT = """
import os, pathlib, time
pathlib.Path(os.environ["RESULT_DIR"], os.environ["TIDEPOOL_SLOT"]).write_text(repr(time.time()))
while True:
    time.sleep(1)
"""
KINDS = ("none", "wall", "wall with a closed port")


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    runs = 60 if options.long else 20
    first: dict[str, list[float]] = {kind: [] for kind in KINDS}
    second: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with running_forkserver() as (forkserver, _), tempfile.TemporaryDirectory() as top:
        for number, kind in itertools.product(range(runs + 1), KINDS):
            figures = _timed(forkserver, Path(top, f"{number}.{KINDS.index(kind)}"), kind)
            if number:  # the first of each warms caches up
                first[kind].append(figures[0])
                second[kind].append(figures[1])
    show([*_results("first rank", first), *_results("further rank", second)], options.json)


def _results(name: str, seconds: dict[str, list[float]]) -> Iterator[Result]:
    for kind, values in seconds.items():
        compared = () if kind == "none" else seconds["none"]
        yield result(
            f"{name}, {kind}", "ms", [value * 1000 for value in values], "none", [each * 1000 for each in compared]
        )


def _timed(forkserver: Forkserver, folder: Path, kind: str) -> tuple[float, float]:
    """Return the seconds to the first line of a job's first rank and of its second one."""
    folder.mkdir()
    wall = None if kind == "none" else _wall(folder, (5432,) if "port" in kind else ())
    begun = time.time()
    job = JobReconciler(forkserver, folder, SCRIPT, wall=wall, engine="elastic", launch_seconds=600.0)
    try:
        job.desired([0])
        first = job.written("0") - begun
        begun = time.time()
        job.desired([0, 1], 2)
        second = job.written("1") - begun
        job.stop(0.0)
        wait_until(lambda: not job.processes())
    finally:
        job.close()
    return first, second


def _wall(folder: Path, ports: tuple[int, ...]) -> Wall:
    for name in ("home", "temporary"):
        (folder / name).mkdir()
    return Wall((str(folder / "home"),), (), (str(folder),), str(folder / "temporary"), ports)


if __name__ == "__main__":
    main()
