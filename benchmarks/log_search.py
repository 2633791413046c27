"""Time and memory of a search over a very large log.

    python -m benchmarks.log_search [--long] [--json FILE]

A log of 256 MiB (1 GiB with `--long`), written by itself: plain lines, coloured ones, and a progress bar that redraws
each line ten times. `first` is what Enter costs where the log begins with a match, `whole` where there is none at all:
the whole log is counted in both. A search ends after 5 s at the latest and then says how far it came.
"""

import os
import resource
import tempfile
import time
from pathlib import Path

import django

from benchmarks.results import Result, arguments, result, show

REPEATS = 3
_STEP = "2026-03-01 12:00:00 step {0} loss 0.{0} accuracy 97.{0} samples/s 812.5"
KINDS = {
    "plain": _STEP + "\n",
    "coloured": "\x1b[2m2026-03-01\x1b[0m \x1b[32mstep\x1b[0m {0} loss \x1b[1;33m0.{0}\x1b[0m accuracy 97.{0}\r\n",
    "progress bar": "\r".join([_STEP] * 10) + "\n",
}


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, line in KINDS.items():
            file = Path(folder) / "stdout"
            written(file, line, 1024**3 if options.long else 256 * 1024**2)
            results += searches(kind, file)
    show(results, options.json)


def written(file: Path, line: str, size: int) -> None:
    lines = "".join(line.format(number) for number in range(10_000)).encode()
    with file.open("wb") as stream:
        while stream.tell() < size:
            stream.write(lines)


def searches(kind: str, file: Path) -> list[Result]:
    from jobs.files.logs import Log
    from jobs.files.search import search_logs

    log = Log(1, "h.0.1", "h", "stdout", 0, 1, has_ended=True, path=file, inside=file.parent)
    found = []
    for name, needle in (("first", "step 0 "), ("whole", "nothing like it")):
        times, searched = [], True
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(REPEATS):
            begun = time.perf_counter()
            searched = search_logs([log], needle, 1).is_complete
            times.append(time.perf_counter() - begun)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        size = f"{file.stat().st_size / 1024**2:.0f} MiB, {'all' if searched else 'not all'} of it"
        found += [
            result(f"{kind}, {name}: {size}", "s", times),
            result(f"{kind}, {name}: memory", "MiB", [memory / 1024]),
        ]
    return found


if __name__ == "__main__":
    main()
