"""Pages and bulk actions of a running stack while 300 trainings wait for its 8 GPUs.

    python -m benchmarks.busy_cluster [--json FILE] [--jobs 300]

The stack runs as `manage.py up` starts it, in a home of its own, with all that competes for processor and database: the
scheduler, eight ranks that train, reports of hosts. Elapsed time, until the last byte has come. Then all
trainings are stopped, as the list of jobs does: until the answer, and until the last of them is over.
"""

import re
import tempfile
import time
from pathlib import Path

import httpx

from benchmarks.results import Result, arguments, result, show
from tests.journey.running_stack import RunningStack, free_port
from tests.waiting import wait_until

REPEATS = 9
PAGES = {"fair share": "/fair-share/", "overview": "/", "list of jobs": "/jobs/"}
PRIORITIES = (1000, 2500, 5000, 5000, 10000)
PATIENCE_SECONDS = 900.0


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--jobs", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidepool-") as home:
        stack = RunningStack(Path(home), free_port())
        stack.start()
        try:
            with stack.api() as api:
                results = measure(stack, api, options.jobs)
        finally:
            stack.stop()
    show(results, options.json)


def measure(stack: RunningStack, api: httpx.Client, jobs: int) -> list[Result]:
    api.timeout = httpx.Timeout(PATIENCE_SECONDS)
    numbers = [submit(api, number) for number in range(jobs)]
    wait_until(lambda: api.get("jobs/?state=RUNNING").json()["results"], "some train", PATIENCE_SECONDS)
    results = []
    browser = signed_in(stack)
    for name, address in PAGES.items():
        times, text = [], ""
        for _ in range(REPEATS):
            begun = time.monotonic()
            text = browser.get(address).raise_for_status().text
            times.append(1000 * (time.monotonic() - begun))
        results.append(result(name, "ms", times))
        results.append(result(f"{name}: rows of tables", "", [text.count("<tr")]))
    begun = time.monotonic()
    stop(api, numbers)
    answered = time.monotonic() - begun
    wait_until(lambda: not api.get("jobs/?state=active").json()["results"], "all are over", PATIENCE_SECONDS)
    over = time.monotonic() - begun
    name = f"stop {jobs} trainings"
    return [*results, result(name, "s", [answered]), result(f"{name}: until all are over", "s", [over])]


def submit(api: httpx.Client, number: int) -> int:
    job = {
        "name": f"busy-{number}",
        "model": "digits-cnn",
        "dataset": "digits",
        "instance_group": "sig-elastic",
        "max_slots": 1 + number % 4,
        "priority": PRIORITIES[number % len(PRIORITIES)],
        "parameters": {"epochs": 1000},
    }
    return int(api.post("jobs/", json=job).raise_for_status().json()["id"])


def signed_in(stack: RunningStack) -> httpx.Client:
    browser = httpx.Client(base_url=stack.url, timeout=PATIENCE_SECONDS, trust_env=False)
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get("/login/").raise_for_status().text)
    assert token
    form = {"username": "admin", "password": stack.password, "csrfmiddlewaretoken": token[1]}
    answer = browser.post("/login/", data=form, headers={"Referer": f"{stack.url}/login/"})
    assert answer.status_code == 302, answer.text
    return browser


def stop(api: httpx.Client, jobs: list[int]) -> None:
    answer = api.post("jobs/bulk/", json={"action": "cancel", "jobs": jobs}).raise_for_status().json()
    assert answer["done"] == jobs, answer["refused"][:3]


if __name__ == "__main__":
    main()
