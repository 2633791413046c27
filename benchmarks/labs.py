"""Jobs without a control plane, and their competitors by plain DistributedDataParallel."""

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.runtime.lab import Lab, running_forkserver
from tests.waiting import PATIENCE_SECONDS, wait_until

__all__ = ["HERE", "laboratory", "median_step", "plain_ddp", "running", "steps_of", "torchrun", "until"]

HERE = Path(__file__).resolve().parent


@contextmanager
def laboratory(level: str = "") -> Iterator[tuple[Path, Path]]:
    """(a forkserver's socket, a folder for its jobs). level: the highest level of isolation of its jobs."""
    with tempfile.TemporaryDirectory(prefix="tide") as name, running_forkserver(Path(name), level=level) as forkserver:
        yield forkserver, Path(name)


@contextmanager
def running(
    forkserver: Path, folder: Path, script: str, *arguments: object, slots: int, **launch: Any
) -> Iterator[Lab]:
    """A job whose script lies here, unless `code_folder` says where."""
    launch = {"code_folder": str(HERE), **launch}
    lab = Lab(forkserver, folder, script, arguments=[*map(str, arguments)], sizes={"a": slots}, **launch)
    try:
        yield lab
    finally:
        lab.stop()


def plain_ddp(*arguments: object) -> list[str]:
    return [str(HERE / "plain_ddp.py"), *map(str, arguments)]


def torchrun(log: Path, options: list[str], script: list[str]) -> subprocess.Popen[bytes]:
    # Without the first torchrun of 2.13 may wait for ever for the store of the round before.
    environment = os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", *options, *script]
    with log.open("ab") as file:
        return subprocess.Popen(command, env=environment, stdout=file, stderr=file)


def steps_of(folder: Path) -> list[tuple[float, int, int]]:
    """(Unix seconds, step, world size) of each step that `plain_ddp.py` made there."""
    file = folder / "steps.txt"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [(float(at), int(step), int(size)) for at, step, size in map(str.split, lines)]


def until(
    found: Callable[[], list[Any]], count: int, story: Callable[[], str], seconds: float = PATIENCE_SECONDS
) -> list[Any]:
    """The list that `found` returns as soon as it has so many entries."""
    return list(wait_until(lambda: len(now := found()) >= count and now, story, seconds))


def median_step(moments: list[float]) -> float:
    return statistics.median(late - early for early, late in itertools.pairwise(moments))
