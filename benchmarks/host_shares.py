"""Cost of cores and memory in a cycle of the scheduler, in interleaved pairs.

    python -m benchmarks.host_shares [--long] [--json FILE]

The snapshots are those of `benchmarks.scheduler`, 10,000 jobs on 100,000 slots under fair share: one cycle in which all
wait, and a later one. Each cycle is timed beside the same without shares, in turns: with the shares of all hosts, where
nobody asks for more; where a tenth of the jobs ask for two slots' cores with each GPU; and where all do. Times are the
processor's, a cycle's without the garbage collector. The ratio is the median of the ratios of neighbours.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from benchmarks.results import Result, arguments, result, show
from benchmarks.scheduler import SIZES, after_some, many_jobs
from core.process import without_collector
from scheduling.schedule import schedule
from scheduling.snapshot import Share, Snapshot

_SHARE = Share(8, 64 * 1024**3)
_WISH = Share(16, 0)
_REPEATS = 9
#: Variant -> one job of so many asks for more; 0: none does.
_VARIANTS = {"nobody asks": 0, "a tenth asks": 10, "all ask": 1}


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    first = many_jobs("fairshare", *(SIZES[-1] if options.long else SIZES[-2]))
    without, found = after_some(first), list[Result]()
    for name, each in _VARIANTS.items():
        for kind, snapshot in after_some(_shared(first, each)).items():
            found += (results := _compared(f"{name}, {kind}", snapshot, without[kind]))
            show(results, None)
    if options.json:
        show(found, options.json)


def _shared(snapshot: Snapshot, each: int) -> Snapshot:
    """Return the snapshot with the share of each host, of which each so many-th job asks for more."""
    jobs = tuple(replace(job, wish=_WISH) if each and job.id % each == 0 else job for job in snapshot.jobs)
    return replace(snapshot, jobs=jobs, shares={slot.ref.host: _SHARE for slot in snapshot.slots})


def _compared(name: str, snapshot: Snapshot, without: Snapshot) -> list[Result]:
    pairs = [(_seconds(lambda: schedule(snapshot)), _seconds(lambda: schedule(without))) for _ in range(_REPEATS + 1)]
    mine, other = zip(*pairs[1:], strict=True)  # the first ones build caches
    ratios = [first / second for first, second in zip(mine, other, strict=True)]
    return [
        result(name, "ms", [1e3 * each for each in mine], "without shares", [1e3 * each for each in other]),
        result(f"{name}: ratio of pairs", "x", [statistics.median(ratios)]),
    ]


def _seconds(work: Callable[[], object]) -> float:
    with without_collector():
        begun = time.process_time()
        work()
        return time.process_time() - begun


if __name__ == "__main__":
    main()
