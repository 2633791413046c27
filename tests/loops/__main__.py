"""Run loops of the corpus through patterns of sizes, one line for each run.

    PYTHONPATH=runtime python -m tests.loops [NAME...] [--pattern P]... [--seed N] [--jobs 1] [--out FOLDER]

A pattern has a name, or is spelled out: `--pattern 1,resize@8=3,kill-first@12=3`. `--out` keeps files of wrong runs.
A wrong run of the pattern `random` is shrunk to the events that it needs. The exit code is 1 if a run was wrong.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.loops.loop import Loop, corpus
from tests.loops.patterns import PATTERNS, Pattern, pattern_of, shrunk
from tests.loops.played import play
from tests.loops.twins import Course, run_twin
from tests.loops.verdict import Verdict, judge
from tests.runtime.lab import running_forkserver


@dataclass
class _Runs:
    """Runs of the corpus, with what they have in common."""

    forkserver: Path
    folder: Path
    seed: int
    out: Path | None
    #: Numbers of verdicts of each kind, by pattern.
    verdicts: dict[str, Counter[str]] = field(default_factory=dict)

    def run(self, loop: Loop, patterns: list[str]) -> None:
        """Play the patterns to the loop, and print the verdicts."""
        try:
            course = run_twin(loop, self.folder / loop.name / "twin")
        except AssertionError as error:
            print(f"{loop.name:28} WRONG: {error}", flush=True)
            self._count("twin", "WRONG")
            return
        for name in patterns:
            pattern = pattern_of(name, course, random.Random(f"{loop.name} {self.seed}"))
            verdict = self._play(loop, course, name, pattern)
            self._count(name, verdict.kind)
            if verdict.kind == "WRONG" and name == "random":
                smallest = shrunk(pattern, lambda fewer: self._play(loop, course, "shrunk", fewer).kind == "WRONG")
                print(f"    smallest: python -m tests.loops {loop.name} --pattern {smallest}", flush=True)

    def _play(self, loop: Loop, course: Course, name: str, pattern: Pattern) -> Verdict:
        folder, begun_at = Path(tempfile.mkdtemp(dir=self.folder / loop.name)), time.monotonic()
        played = play(loop, pattern, self.forkserver, folder)
        verdict, seconds = judge(loop, course, played), time.monotonic() - begun_at
        print(f"{loop.name:28} {name:13}{seconds:5.1f} s  [{played.sizes()}]  {verdict}", flush=True)
        if verdict.kind == "WRONG":
            print(f"    python -m tests.loops {loop.name} --pattern {pattern}", flush=True)
            if self.out is not None:
                no_sockets = shutil.ignore_patterns("*.sock")
                shutil.copytree(folder, self.out / loop.name / name, dirs_exist_ok=True, ignore=no_sockets)
        return verdict

    def _count(self, pattern: str, kind: str) -> None:
        self.verdicts.setdefault(pattern, Counter())[kind] += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="loops; all of the corpus if none is named")
    parser.add_argument("--pattern", action="append", help=f"all but `random` if none is named: {', '.join(PATTERNS)}")
    parser.add_argument("--seed", type=int, default=0, help="of the pattern `random`")
    parser.add_argument("--jobs", type=int, default=1, help="loops that run at once")
    parser.add_argument("--out", type=Path, help="folder for the files of wrong runs")
    options = parser.parse_args()
    patterns = options.pattern or [name for name in PATTERNS if name != "random"]
    temporary = tempfile.TemporaryDirectory(prefix="tide", ignore_cleanup_errors=True)
    with temporary as folder, running_forkserver(Path(folder)) as forkserver:
        runs = _Runs(forkserver, Path(folder), options.seed, options.out)
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda loop: runs.run(loop, patterns), corpus(options.names)))
    _print_table(runs.verdicts)
    return 1 if any(counts["WRONG"] for counts in runs.verdicts.values()) else 0


def _print_table(verdicts: dict[str, Counter[str]]) -> None:
    kinds = ["trained", "differs", "refused", "WRONG"]
    print(f"\n{'pattern':13}" + "".join(f"{kind:>9}" for kind in kinds))
    for pattern, counts in verdicts.items():
        print(f"{pattern:13}" + "".join(f"{counts[kind]:9}" for kind in kinds))


if __name__ == "__main__":
    sys.exit(main())
