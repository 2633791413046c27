"""Bytes that a browser loads of Tidepool, and the time until it shows them.

    python -m benchmarks.pages_in_browser [--long] [--json FILE]

Chromium and the web process on this machine, over a database with a few trainings. *cold* is a browser that has nothing
of Tidepool yet, *warm* one that has seen the page three times. First paint and chart count from the click. Each round
asks the collected static files and, in turns, the competitors: the same page with `static/` served as it lies, and the
page's HTML alone, without any style sheet or script.
"""

import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.results import Result, arguments, result, show
from benchmarks.site import with_database

ROUNDS, LONG_ROUNDS = 5, 25
WARM_UPS = 3
COLLECTED, AS_IT_LIES, HTML_ALONE = "collected", "as it lies in static", "the HTML alone"
COMPARED = (
    ("requests", "", AS_IT_LIES),
    ("bytes", "kB", AS_IT_LIES),
    ("first paint", "ms", AS_IT_LIES),
    ("first paint", "ms", HTML_ALONE),
)
LOADED = """() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .map((entry) => [entry.name, entry.transferSize])"""
FIRST_PAINT = """() => new Promise((resolve) => new PerformanceObserver((list) => {
        const first = list.getEntriesByName("first-contentful-paint")[0];
        if (first) resolve(first.startTime);
    }).observe({ type: "paint", buffered: true }))"""
#: Notes when the curves are drawn and painted.
WATCH_CHART = """new MutationObserver((_, observer) => {
    if (!document.querySelector("[data-chart=metrics] .scatterlayer .trace")) return;
    observer.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => { window.chartAt = performance.now(); }));
}).observe(document, { childList: true, subtree: true });"""


#: Opens the site of this address.
OpenBrowser = Callable[[str], Any]


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    rounds = LONG_ROUNDS if options.long else ROUNDS
    show(with_database(lambda: measure(rounds)), options.json)
    print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)


def measure(rounds: int) -> list[Result]:
    from tests.processes import broker, collect_static_files, web_process
    from tests.scene import build_scene

    scene = build_scene()
    with tempfile.TemporaryDirectory(prefix="tide") as name, ExitStack() as left:
        folder = Path(name)
        collect_static_files(folder / COLLECTED)
        queue = left.enter_context(broker())
        sites = {
            way: left.enter_context(web_process(queue, folder / f"{way}.log", TIDEPOOL_STATIC_ROOT=str(folder / way)))
            for way in (COLLECTED, AS_IT_LIES)
        }
        open_browser = left.enter_context(chromium(folder, scene.alice))
        cold = measure_cold(open_browser, sites, rounds)
        warm = measure_warm(open_browser, sites, rounds, f"/jobs/{scene.first.pk}/")
    return [
        *(
            result(f"overview, cold: {what}", unit, cold[what][COLLECTED], competitor, cold[what][competitor])
            for what, unit, competitor in COMPARED
        ),
        result("a training, warm: its chart", "ms", warm[COLLECTED], AS_IT_LIES, warm[AS_IT_LIES]),
    ]


def measure_cold(open_browser: OpenBrowser, sites: dict[str, str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Requests, kilobytes and milliseconds of each way, in browsers that run already and whose caches are emptied."""
    seen: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    ways = (COLLECTED, AS_IT_LIES, HTML_ALONE)
    contexts = {way: open_browser(sites.get(way, sites[COLLECTED])) for way in ways}
    for _ in range(rounds):
        for way, context in contexts.items():
            for what, value in visit(context, alone=way == HTML_ALONE).items():
                seen[what][way].append(value)
    for context in contexts.values():
        context.close()
    return seen


def measure_warm(open_browser: OpenBrowser, sites: dict[str, str], rounds: int, address: str) -> dict[str, list[float]]:
    """Milliseconds until the chart of each way."""
    times: dict[str, list[float]] = {}
    contexts = {way: open_browser(site) for way, site in sites.items()}
    for way, context in contexts.items():
        times[way] = []
        for _ in range(WARM_UPS):
            chart_at(context, address)
    for _ in range(rounds):
        for way, context in contexts.items():
            times[way].append(chart_at(context, address))
    for context in contexts.values():
        context.close()
    return times


@contextmanager
def chromium(folder: Path, user: Any) -> Iterator[OpenBrowser]:
    """Opens browsers that have a cache on the disk, as people's have, and a log-in."""
    from django.conf import settings
    from playwright.sync_api import sync_playwright

    from benchmarks.site import signed_in
    from tests.processes import NO_CHROMIUM, find_chromium

    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    cookie = signed_in(user).cookies[settings.SESSION_COOKIE_NAME]
    with sync_playwright() as playwright:

        def open_browser(site: str) -> Any:
            context = playwright.chromium.launch_persistent_context(
                tempfile.mkdtemp(dir=folder),
                executable_path=find_chromium() or sys.exit(NO_CHROMIUM),
                args=["--no-sandbox", "--disable-gpu"],
                base_url=site,
                viewport={"width": 1440, "height": 900},
            )
            context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": site}])
            return context

        yield open_browser


def visit(context: Any, *, alone: bool) -> dict[str, float]:
    page = context.new_page()
    context.new_cdp_session(page).send("Network.clearBrowserCache")
    if alone:
        page.route("**/static/**", lambda route: route.abort())
    page.goto("/")
    if not alone:
        page.wait_for_selector("[data-chart=gpus] .main-svg")
    loaded = dict(page.evaluate(LOADED))
    # Browsers ask for it when they like: it counts, whether that was already or not, unless the page has it in itself.
    icon = page.locator("link[rel=icon]").evaluate("(link) => link.href")
    seen = {
        "requests": float(len({name for name in loaded.keys() | {icon} if not name.startswith("data:")})),
        "bytes": sum(loaded.values()) / 1000,
        "first paint": page.evaluate(FIRST_PAINT),
    }
    page.close()
    return seen


def chart_at(context: Any, address: str) -> float:
    """Milliseconds until the curves of a training are on the screen."""
    page = context.new_page()
    page.add_init_script(WATCH_CHART)
    page.goto(address)
    at: float = page.wait_for_function("() => window.chartAt").json_value()
    page.close()
    return at


if __name__ == "__main__":
    main()
