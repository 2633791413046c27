"""Ten trainings that are slow by one known cause: the cause that is named, its share, and what the advice on it brings.

    python -m benchmarks.slow_trainings [--only WORDS ...] [--json FILE]

Each training of `tests/runtime/slow_trainings.py` runs as it is, and as somebody would run it who has followed the
advice. `share` is the fraction of the time in the advice, `truth` what the cause has really taken,
`promised` the bound that the advice names, and `came` how many times as many samples per second were made. A disk, a
network and a host are held back by the kernel, which needs root and control groups of version 1.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.results import Result, arguments, result, show

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")


def main() -> None:
    import django

    django.setup()
    from tests.runtime.slow_trainings import SLOW

    parser = arguments(__doc__ or "")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="WORDS", help="trainings with one of these in their name"
    )
    options = parser.parse_args()
    found = list[Result]()
    for training in SLOW:
        if any(words in training.name for words in options.only):
            found += (results := _measured(training))
            show(results, None)
    if options.json:
        show(found, options.json)


def _measured(training: Any) -> list[Result]:
    from tests.runtime.slow_trainings import answered, slowed_by

    answers = []
    for slow in (True, False):
        with tempfile.TemporaryDirectory(prefix="tide", dir="/tmp") as folder, training.run(Path(folder), slow) as lab:
            answers.append(answered(training, lab))
    first, then = answers
    print(first, flush=True)
    came = then.steps_per_second * training.followed_batch / (first.steps_per_second * training.batch)
    truth = slowed_by(first, then) if first.truth is None else first.truth
    name = f"{training.name}, named {first.code or 'nothing'}"
    return [
        result(f"{name}: share", "%", [first.share * 100]),
        result(f"{name}: truth", "%", [truth * 100]),
        result(f"{name}: promised", "x", [first.speedup]),
        result(f"{name}: came", "x", [came]),
        result(f"{name}: part of the promised gain that came", "%", [100 * (came - 1) / (first.speedup - 1)]),
    ]


if __name__ == "__main__":
    main()
