"""Costs of a study with many trials, and what early stopping with live growth saves of its GPU time.

    python -m benchmarks.studies [--only site|runs] [--trials 1000] [--long] [--json FILE]

`site`: the page of a study with 1,000 trials, the time until a sampler has proposed the next one, and the memory of a
process that has done so, in a database of its own. Processor time.

`runs`: 40 trials of `benchmarks/searched` on `manage.py up` with 8 virtual GPUs. The same values, drawn at random, are
tried twice: each trial on one GPU to its end; and by ASHA, with trials that grow up to 8 GPUs. Steps sleep, so that
eight GPUs need no eight processors. `idle` is the part of the GPUs that no trial held, from the first submission to the
last end; `error` the best value. `--long`: with three seeds.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import django
import httpx

from benchmarks.results import Result, arguments, result, show
from benchmarks.site import content_of, cpu_of, looked_after, signed_in, with_database

REPEATS, GPUS, RUN_TRIALS = 7, 8, 40
#: Sampler -> number of finished trials before the next one; the Gaussian process takes at most 500.
SAMPLERS = {"tpe": 1000, "random": 1000, "cmaes": 1000, "gp": 100}
SPACE = {
    "lr": {"kind": "log_uniform", "low": 1e-4, "high": 0.3},
    "momentum": {"kind": "uniform", "low": 0.0, "high": 0.95},
    "width": [32, 64, 128],
}
MODEL = Path(__file__).parent / "searched"


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", choices=["site", "runs"], default="")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--memory-of", default="", help="a sampler: print the memory of a process that asked it")
    options = parser.parse_args()
    if options.memory_of:
        print(_memory_after(options.memory_of))
        return
    found: list[Result] = []
    if options.only != "runs":
        found += with_database(lambda: site(options.trials))
        found += [memory(sampler) for sampler in SAMPLERS]
    if options.only != "site":
        found += runs(range(1, 4) if options.long else [1])
    show(found, options.json)


# --- The site ---------------------------------------------------------------------------------------------------------


def site(trials: int) -> list[Result]:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from studies.rows import past_trials, search_of
    from studies.samplers import propose

    study = make_study(trials)
    looked_after()
    client, found = signed_in(study.owner), []
    for name, address in {
        "page": f"/studies/{study.pk}/",
        "page, its changing part": f"/studies/{study.pk}/now/",
        "figures": f"/studies/{study.pk}/figures.json",
    }.items():
        with CaptureQueriesContext(connection) as captured:
            content_of(client, address)
        queries = len(captured)
        times = [cpu_of(lambda address=address: content_of(client, address)) for _ in range(REPEATS)]
        found += [result(name, "ms", times), result(f"{name}: queries", "", [queries])]
    for sampler, count in SAMPLERS.items():
        study.sampler = sampler

        def ask(count: int = min(count, trials)) -> None:
            propose(search_of(study), past_trials(study)[:count], count)

        ask()
        found.append(result(f"next proposal, {sampler}", "ms", [cpu_of(ask) for _ in range(REPEATS)]))
    return found


def make_study(trials: int) -> Any:
    """Return a study with so many complete trials, each with a training that has a curve."""
    from django.utils import timezone

    from jobs.models import Job
    from studies.models import Study, Trial
    from tests.many_jobs import make_many_jobs

    make_many_jobs(trials, newest=0)
    jobs = list(Job.objects.order_by("pk")[:trials])
    now = timezone.now()
    study = Study.objects.create(
        name="many", owner=jobs[0].owner, model=jobs[0].model, instance_group=jobs[0].instance_group, space=SPACE,
        metric="loss", goal="minimize", reason="Trials are submitted as GPUs become free.", created_at=now,
    )  # fmt: skip
    Trial.objects.bulk_create(
        Trial(
            study=study, number=number, job=job, values=values, state="COMPLETE", value=value_of(values),
            attributes={}, created_at=now, finished_at=now,
        )
        for number, (job, values) in enumerate(zip(jobs, drawn(trials), strict=True))
    )  # fmt: skip
    return study


def drawn(count: int) -> list[dict[str, Any]]:
    """Return values of trials, drawn at random."""
    from studies.samplers import propose
    from studies.space import parse_space
    from studies.trials import Search

    search = Search(parse_space(SPACE), "random", "minimize", seed=0)
    return [proposal.values for number in range(count) if (proposal := propose(search, [], number)) is not None]


def value_of(values: dict[str, Any]) -> float:
    return float((values["lr"] - 0.03) ** 2 + (values["momentum"] - 0.5) ** 2 + 1 / values["width"])


def memory(sampler: str) -> Result:
    words = [sys.executable, "-m", "benchmarks.studies", "--memory-of", sampler]
    megabytes = float(subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()[-1])
    return result(f"controller's memory, {sampler}", "MB", [megabytes])


def _memory_after(sampler: str) -> float:
    """Return the most memory of this process, in MB, once the controller's modules have proposed a trial."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    import studies.background  # noqa: F401  what the controller's process has loaded
    from studies.samplers import propose
    from studies.space import parse_space
    from studies.trials import PastTrial, Search

    search, count = Search(parse_space(SPACE), sampler, "minimize", seed=0), SAMPLERS[sampler]
    values = enumerate(drawn(count))
    propose(search, [PastTrial(number, each, "complete", value_of(each), {}, {}) for number, each in values], count)
    # Not `ru_maxrss`, which counts the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


# --- Runs on a stack --------------------------------------------------------------------------------------------------


def runs(seeds: Sequence[int]) -> list[Result]:
    from tests.journey.running_stack import RunningStack, free_port

    with tempfile.TemporaryDirectory(prefix="tide-", ignore_cleanup_errors=True) as home:
        words = ("--hosts", "2", "--slots-per-host", str(GPUS // 2), "--broker", "auto")
        stack = RunningStack(Path(home), free_port(), words)
        stack.start()
        try:
            with stack.api() as api:
                register(stack, api)
                fixed, asha = [], []
                for seed in seeds:
                    fixed.append(run(stack, api, f"fixed-{seed}", seed=seed, pruner="none", max_slots=1, at_once=GPUS))
                    asha.append(run(stack, api, f"asha-{seed}", seed=seed, pruner="asha", max_slots=GPUS))
        finally:
            stack.stop()
    found = []
    for name, unit in {"GPU-seconds": "s", "seconds": "s", "error": "", "idle": "%"}.items():
        before = [each[name] for each in fixed]
        found.append(result(f"{name}, one GPU each to the end", unit, before))
        found.append(result(f"{name}, ASHA with growth", unit, [each[name] for each in asha], "one GPU each", before))
    ratios = [each["error"] / other["error"] for each, other in zip(asha, fixed, strict=True)]
    return [*found, result("best value of ASHA over the other's", "", ratios)]


def register(stack: Any, api: httpx.Client) -> None:
    shutil.copytree(MODEL, stack.home / "models" / "searched")
    model = {"name": "searched", "framework": "PyTorch", "path": str(stack.home / "models" / "searched")}
    api.post("models/", json={**model, "entry_point": "train.py", "engine": "elastic"}).raise_for_status()


def run(stack: Any, api: httpx.Client, name: str, **search: Any) -> dict[str, float]:
    from tests.waiting import wait_until

    space = {key: SPACE[key] for key in ("lr", "momentum")}
    asked = {"name": name, "model": "searched", "instance_group": "sig-elastic", "space": space, "metric": "error"}
    search = {"sampler": "random", "trials": RUN_TRIALS, **search}
    study = api.post("studies/", json={**asked, **search}).raise_for_status().json()["id"]
    address = f"studies/{study}/"
    wait_until(lambda: api.get(address).json()["state"] == "FINISHED", lambda: api.get(address).text, 1800)
    trials = api.get(f"{address}trials/", params={"limit": RUN_TRIALS}).json()["results"]
    began, ended = (pick(datetime.fromisoformat(trial[at]) for trial in trials)
                    for pick, at in ((min, "created_at"), (max, "finished_at")))  # fmt: skip
    seconds, held = (ended - began).total_seconds(), gpu_seconds(stack.home, [trial["job"] for trial in trials])
    best = api.get(address).json()["best"]["value"]
    return {"GPU-seconds": held, "seconds": seconds, "error": best, "idle": 100 * (1 - held / (GPUS * seconds))}


def gpu_seconds(home: Path, jobs: list[int]) -> float:
    """Return the time for which these trainings held GPUs, from the stack's database."""
    marks = ",".join("?" * len(jobs))
    held = "SELECT sum(86400 * (julianday(released_at) - julianday(claimed_at))) FROM jobs_slotclaim"
    with closing(sqlite3.connect(f"file:{home / 'tidepool.sqlite3'}?mode=ro", uri=True)) as database:
        return float(database.execute(f"{held} WHERE job_id IN ({marks})", jobs).fetchone()[0])


if __name__ == "__main__":
    main()
