"""Time from a change to every page that is open, in a real browser on a loaded machine.

    python -m benchmarks.open_pages [--long] [--json FILE]

`manage.py up` in a home of its own, a training on all eight virtual GPUs, another one that waits, and a process
for each processor that does nothing but compute. Chromium has Overview, Cluster, Hosts, the list of jobs and the
page of the one that waits open. A host is drained and taken back, and the priority of the training that waits is
changed, by REST. The time counts from before the request is sent until the page shows it.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import httpx
from playwright.sync_api import Page, sync_playwright

from benchmarks.results import arguments, result, show
from tests.journey.running_stack import RunningStack, free_port
from tests.processes import NO_CHROMIUM, find_chromium

ROUNDS, LONG_ROUNDS = 6, 30
HOST = "gpu-host-2"
BURN = "while True: pass"
#: Expressions that are true once a page shows a host as drained (`{}`: the word), and a priority.
OF_HOST = {
    "Overview": "document.querySelector('[data-host=gpu-host-2] h3')?.textContent.includes('Draining') === {}",
    "Cluster": "document.getElementById('host-gpu-host-2')?.textContent.includes('draining') === {}",
    "Hosts": "(document.querySelector('[data-host=gpu-host-2] .state')?.dataset.state === 'DRAINING') === {}",
}
OF_PRIORITY = {
    "Jobs": "document.querySelector('#jobs tr[data-job=\"{job}\"] [data-field=priority]')?.textContent === '{value}'",
    "Training": "document.querySelector('#facts [data-field=priority]')?.textContent === '{value}'",
}
#: Notes the moment at which what was asked for is there.
WATCH = """condition => { window.seenAt = null; const look = () => { if (condition()) window.seenAt = Date.now();
    else setTimeout(look, 5); }; look(); }"""


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    times: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="tide", ignore_cleanup_errors=True) as folder, ExitStack() as left:
        stack = RunningStack(Path(folder), free_port())
        stack.start()
        left.callback(stack.stop)
        for _ in range(os.cpu_count() or 1):
            left.callback(subprocess.Popen([sys.executable, "-c", BURN]).kill)
        password = (Path(folder) / "admin-password").read_text().strip()
        api = left.enter_context(httpx.Client(base_url=stack.url, auth=("admin", password), timeout=60))
        _, waits = (_submit(api, name) for name in ("first", "waits"))
        playwright = left.enter_context(sync_playwright())
        chromium = find_chromium() or sys.exit(NO_CHROMIUM)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        pages = _open(browser.new_context(base_url=stack.url), password, waits)
        for number in range(LONG_ROUNDS if options.long else ROUNDS):
            is_drained = number % 2 == 0
            verb, word = ("drain", "true") if is_drained else ("resume", "false")
            seen = {name: text.format(word) for name, text in OF_HOST.items()}
            _measure(api, pages, seen, times, "POST", f"/api/v1/hosts/{HOST}/{verb}/")
            value = 1000 + number
            seen = {name: text.format(job=waits, value=value) for name, text in OF_PRIORITY.items()}
            _measure(api, pages, seen, times, "PATCH", f"/api/v1/jobs/{waits}/", json={"priority": value})
        browser.close()
    print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    everywhere = [value for values in times.values() for value in values]
    show([*(result(name, "s", values) for name, values in times.items()), result("all", "s", everywhere)], options.json)


def _submit(api: httpx.Client, name: str) -> int:
    given = {"name": name, "model": "digits-cnn", "dataset": "digits", "instance_group": "sig-elastic"}
    limits = {"min_slots": 8, "max_slots": 8, "parameters": {"epochs": 5000}}
    return int(api.post("/api/v1/jobs/", json={**given, **limits}).raise_for_status().json()["id"])


def _open(context: object, password: str, job: int) -> dict[str, Page]:
    addresses = {
        "Overview": "/",
        "Cluster": "/cluster/",
        "Hosts": "/hosts/",
        "Jobs": "/jobs/",
        "Training": f"/jobs/{job}/",
    }
    pages = {}
    for name, address in addresses.items():
        page: Page = context.new_page()  # type: ignore[attr-defined]
        page.set_default_timeout(120_000)
        page.goto(address)
        if "/login/" in page.url:
            page.fill("[name=username]", "admin")
            page.fill("[name=password]", password)
            page.keyboard.press("Enter")
            page.wait_for_selector("#live-dot", state="attached")
            page.goto(address)
        page.wait_for_selector("#live-dot[data-status=connected]")
        pages[name] = page
    return pages


def _measure(
    api: httpx.Client,
    pages: dict[str, Page],
    seen: dict[str, str],
    times: dict[str, list[float]],
    method: str,
    address: str,
    **content: object,
) -> None:
    for name, condition in seen.items():
        pages[name].evaluate(f"({WATCH})(() => {condition})")
    sent = time.time()
    api.request(method, address, **content).raise_for_status()  # type: ignore[arg-type]
    for name in seen:
        at = pages[name].wait_for_function("() => window.seenAt").json_value()
        times[name].append(at / 1000 - sent)


if __name__ == "__main__":
    main()
