"""Run loops of the corpus through patterns of sizes, one line for each run.

    PYTHONPATH=runtime python -m tests.loops [NAME...] [--pattern P]... [--seed N] [--jobs 1] [--out FOLDER]

The exit code is 1 if a run was wrong. `--out` keeps the files of the runs that were.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.loops.loop import Loop, corpus
from tests.loops.patterns import PATTERNS
from tests.loops.played import play
from tests.loops.twins import Course, run_twin
from tests.loops.verdict import judge
from tests.runtime.lab import running_forkserver


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="loops; all of the corpus if none is named")
    parser.add_argument("--pattern", action="append", choices=PATTERNS, help="all but `random` if none is named")
    parser.add_argument("--seed", type=int, default=0, help="of the pattern `random`")
    parser.add_argument("--jobs", type=int, default=1, help="loops that run at once")
    parser.add_argument("--out", type=Path, help="folder for the files of wrong runs")
    options = parser.parse_args()
    patterns = options.pattern or [name for name in PATTERNS if name != "random"]
    verdicts: dict[str, Counter[str]] = {name: Counter() for name in patterns}
    temporary = tempfile.TemporaryDirectory(prefix="tide", ignore_cleanup_errors=True)
    with temporary as folder, running_forkserver(Path(folder)) as forkserver:

        def run_loop(loop: Loop) -> None:
            try:
                course = run_twin(loop, Path(folder, loop.name))
            except AssertionError as error:
                print(f"{loop.name:28} WRONG: {error}", flush=True)
                verdicts[patterns[0]]["WRONG"] += 1
                return
            for pattern in patterns:
                runs = Path(folder, loop.name, pattern)
                verdicts[pattern][_told(loop, course, pattern, options.seed, forkserver, runs, options.out)] += 1

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(run_loop, corpus(options.names)))
    _print_table(verdicts)
    return 1 if any(counts["WRONG"] for counts in verdicts.values()) else 0


def _told(loop: Loop, course: Course, pattern: str, seed: int, forkserver: Path, folder: Path, out: Path | None) -> str:
    """Play the pattern to the loop, with its files in the folder; print and return the verdict."""
    begun_at = time.monotonic()
    played = play(loop, PATTERNS[pattern](course, random.Random(f"{loop.name} {seed}")), forkserver, folder)
    verdict = judge(loop, course, played)
    seconds = time.monotonic() - begun_at
    print(f"{loop.name:28} {pattern:13}{seconds:5.1f} s  [{played.sizes()}]  {verdict}", flush=True)
    if verdict.kind == "WRONG":
        how = f"--pattern {pattern}" + (f" --seed {seed}" if pattern == "random" else "")
        print(f"    python -m tests.loops {loop.name} {how}", flush=True)
        if out is not None:
            no_sockets = shutil.ignore_patterns("*.sock")
            shutil.copytree(folder, out / loop.name / pattern, dirs_exist_ok=True, ignore=no_sockets)
    return verdict.kind


def _print_table(verdicts: dict[str, Counter[str]]) -> None:
    kinds = ["trained", "differs", "refused", "WRONG"]
    print(f"\n{'pattern':13}" + "".join(f"{kind:>9}" for kind in kinds))
    for pattern, counts in verdicts.items():
        print(f"{pattern:13}" + "".join(f"{counts[kind]:9}" for kind in kinds))


if __name__ == "__main__":
    sys.exit(main())
