"""Processor time of a browser in which Overview or Cluster stays open while the trainings only go on.

    python -m benchmarks.open_page_cpu [--long] [--json FILE]

Chromium and the web process on this machine, over a database in which two trainings hold GPUs and nothing else happens.
The figures are the time that the page's main thread worked (`TaskDuration` of Chromium's own metrics), in percent of
the time that the page was open: 20 s for each window of the chart, or 60 s with `--long`.
"""

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.pages_in_browser import chromium
from benchmarks.results import Result, arguments, result, show
from benchmarks.site import with_database

SECONDS, LONG_SECONDS = 20, 60
#: Seconds from the load until what happens once has happened.
SETTLED = 5
ADDRESSES = {"Overview": "/", "Cluster": "/cluster/"}
WINDOWS = {"15 min": 15, "1 h": 60, "24 h": 1440}


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    seconds = LONG_SECONDS if options.long else SECONDS
    show(with_database(lambda: measure(seconds)), options.json)


def measure(seconds: int) -> list[Result]:
    from tests.processes import broker, collect_static_files, web_process
    from tests.scene import build_scene

    scene = build_scene()
    results = []
    with tempfile.TemporaryDirectory(prefix="tide") as name, ExitStack() as left:
        folder = Path(name)
        collect_static_files(folder / "static")
        queue = left.enter_context(broker())
        site = left.enter_context(web_process(queue, folder / "web.log", TIDEPOOL_STATIC_ROOT=str(folder / "static")))
        context = left.enter_context(chromium(folder, scene.alice))(site)
        for title, address in ADDRESSES.items():
            for window, minutes in WINDOWS.items():
                share = work_of(context, address, minutes, seconds)
                print(f"{title}, {window}: {share:.1f} %", file=sys.stderr)
                results.append(result(f"{title}, {window}", "%", [share]))
        context.close()
    return results


def work_of(context: Any, address: str, minutes: int, seconds: int) -> float:
    page = context.new_page()
    page.add_init_script(f"localStorage.setItem('tidepool-window', '{minutes}')")
    page.goto(address)
    page.wait_for_selector("#live-dot[data-status=connected]")
    time.sleep(SETTLED)
    metrics = context.new_cdp_session(page)
    metrics.send("Performance.enable", {"timeDomain": "timeTicks"})

    def worked() -> float:
        found = metrics.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))

    before, since = worked(), time.monotonic()
    page.wait_for_timeout(seconds * 1000)
    share = 100 * (worked() - before) / (time.monotonic() - since)
    page.close()
    return share


if __name__ == "__main__":
    main()
