"""Time from `git clone` of this commit to a ready stack, by `make demo`: the wait of a newcomer.

    python -m benchmarks.clone [--json FILE]

pip's cache is used as it is: run it twice for the figure with a warm one. There is no competitor to do the same.
"""

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.results import arguments, result, show
from tests.journey.running_stack import ROOT, free_port


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    with tempfile.TemporaryDirectory(prefix="tide") as folder:
        seconds = clone_to_ready(Path(folder))
    show([result("git clone to ready", "s", [seconds])], options.json)


def clone_to_ready(folder: Path) -> float:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEPOOL_", "VIRTUAL_ENV"))}
    begun = time.monotonic()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "tidepool")], check=True)
    demo = subprocess.Popen(
        ["make", "demo", f"ARGS=--port {free_port()}"],
        cwd=folder / "tidepool",
        env=kept,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )
    assert demo.stdout is not None
    with demo.stdout as lines:
        ready = any(line.startswith("Tidepool is ready") for line in lines)
        seconds = time.monotonic() - begun
        if ready:
            os.killpg(demo.pid, signal.SIGINT)
            lines.read()
    demo.wait()
    assert ready, "make demo ended before it was ready"
    return seconds


if __name__ == "__main__":
    main()
