"""Cost of the client: seconds to the first line of a training's log, of `import tidepool`, and of commands.

    python -m benchmarks.tools [--long] [--json FILE] [--pyspark PYTHON]

The stack runs as `manage.py up` starts it, in a home of its own, and is warm: one training went before. The client is
the command line in processes of its own, as a shell starts it. Competitors: an empty Python for what only has to start,
and the same script without a cluster for what has to come to its first line. Beside `TorchDistributor.run` of an empty
function stands pyspark's in local mode, where `--pyspark` names a Python that has pyspark and torch. What MLflow costs
`benchmarks.tracking` measures.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tidepool.client.api import Client
from tidepool.distributor import TorchDistributor

from benchmarks.results import Result, arguments, result, show
from tests.journey.running_stack import ROOT, RunningStack, free_port

_SCRIPT = "print('here', flush=True)\n"
_PATIENCE_SECONDS = 120
_PYSPARK_SECONDS = 600
_PYSPARK = """
import json, sys, time
from pyspark.sql import SparkSession
SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
from pyspark.ml.torch.distributor import TorchDistributor
def empty():
    pass
seconds = []
for _ in range(int(sys.argv[1])):
    begun = time.monotonic()
    TorchDistributor(num_processes=1, local_mode=True, use_gpu=False).run(empty)
    seconds.append(time.monotonic() - begun)
print(json.dumps(seconds))
"""


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--pyspark", metavar="PYTHON", help="a Python with pyspark and torch, to stand beside")
    options = parser.parse_args()
    runs = 20 if options.long else 7
    with tempfile.TemporaryDirectory(prefix="tidepool-") as folder:
        script = Path(folder) / "first.py"
        script.write_text(_SCRIPT)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEPOOL_")}
        environment |= {"PYTHONPATH": str(ROOT / "runtime"), "XDG_CONFIG_HOME": folder}
        empty = _times(runs, ["-c", "pass"], environment)
        imported = _times(runs, ["-c", "import tidepool"], environment)
        idle = _processor(runs, ["-c", "pass"], environment)
        importing = _processor(runs, ["-c", "import tidepool"], environment)
        alone = [_to_first_line([str(script)], environment) for _ in range(runs)]
        stack = RunningStack(Path(folder) / "home", free_port())
        stack.start()
        try:
            with stack.api() as api:
                token = api.post("me/token/").json()["token"]
            environment |= {"TIDEPOOL_URL": stack.url, "TIDEPOOL_TOKEN": token}
            run = ["-m", "tidepool", "run", str(script)]
            first = [_to_first_line(run, environment) for _ in range(runs + 1)][1:]
            listed = _times(runs, ["-m", "tidepool", "ps"], environment)
            worked = _processor(runs, ["-m", "tidepool", "ps"], environment)
            helped = _times(runs, ["-m", "tidepool", "--help"], environment)
            called = _calls(runs, stack.url, token)
        finally:
            stack.stop()
        beside = _pysparks(3, options.pyspark, environment) if options.pyspark else []
    results: list[Result] = [
        result(
            "TorchDistributor.run of an empty function", "s", called, "pyspark, local mode" if beside else "", beside
        ),
        result("tidepool run to first line", "s", first, "python first.py", alone),
        result("python first.py", "s", alone),
        result("import tidepool", "s", imported, "python -c pass", empty),
        result("import tidepool, less Python", "ms", [1000 * max(0.0, each - min(empty)) for each in imported]),
        result("tidepool ps", "s", listed, "python -c pass", empty),
        result("tidepool --help", "s", helped, "python -c pass", empty),
        result("python -c pass", "s", empty),
        result("tidepool ps, processor time", "s", worked, "python -c pass", idle),
        result("import tidepool, processor time", "s", importing, "python -c pass", idle),
    ]
    show(results, options.json)


def _empty() -> None:
    pass


def _calls(runs: int, url: str, token: str) -> list[float]:
    """Calls of one distributor; the first, which loads what packs, is left out."""
    seconds = []
    with Client(url, token) as client:
        distributor = TorchDistributor(client=client)
        for _ in range(runs + 1):
            begun = time.monotonic()
            distributor.run(_empty)
            seconds.append(time.monotonic() - begun)
    return seconds[1:]


def _pysparks(runs: int, python: str, environment: dict[str, str]) -> list[float]:
    kept = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    words = [python, "-c", _PYSPARK, str(runs + 1)]
    ended = subprocess.run(words, env=kept, check=True, stdout=subprocess.PIPE, text=True, timeout=_PYSPARK_SECONDS)
    seconds: list[float] = json.loads(ended.stdout.splitlines()[-1])
    return seconds[1:]


def _times(runs: int, words: list[str], environment: dict[str, str]) -> list[float]:
    """The first, which compiles, is left out."""
    return [_time(words, environment) for _ in range(runs + 1)][1:]


def _processor(runs: int, words: list[str], environment: dict[str, str]) -> list[float]:
    """Processor time, user and system: what a busy machine does not change as much."""
    return [_used(words, environment) for _ in range(runs)]


def _used(words: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _time(words, environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _time(words: list[str], environment: dict[str, str]) -> float:
    begun = time.monotonic()
    subprocess.run(
        [sys.executable, *words], env=environment, check=True, capture_output=True, timeout=_PATIENCE_SECONDS
    )
    return time.monotonic() - begun


def _to_first_line(words: list[str], environment: dict[str, str]) -> float:
    """Return the time from the start of the process until the script's line comes out of it."""
    begun = time.monotonic()
    with subprocess.Popen(
        [sys.executable, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.monotonic() - begun
        process.stdout.read()
    assert line.strip() == "here", line
    return seconds


if __name__ == "__main__":
    main()
