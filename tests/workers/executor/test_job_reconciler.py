"""Steps of one job's reconciler, whose environment a test prepares."""

from pathlib import Path
from unittest.mock import create_autospec

from tests.runtime.process_tree import launch_spec
from tests.workers.executor.embedded import desired_job
from workers.executor.config import ExecutorConfig
from workers.executor.environments.cache import Environments
from workers.executor.forkserver import Forkservers
from workers.executor.job_reconciler import JobReconciler
from workers.executor.limits import JobLimits
from workers.executor.seals import Seals


def test_what_waits_for_its_environment_is_tried_in_each_cycle(tmp_path: Path) -> None:
    environments = create_autospec(Environments, instance=True)
    environments.ask.return_value = None
    config = ExecutorConfig(tmp_path, "host-a", "", 1, "127.0.0.1", None)
    job = desired_job(launch_spec(tmp_path, "", requirements="timm"), [0], lead=True)
    limits = JobLimits(config.slot_limits, config.mark)
    parts = create_autospec(Forkservers, instance=True), environments, job, limits, Seals(config, limits)
    reconciler = JobReconciler(config, *parts)
    for _ in range(3):
        reconciler.reconcile(may_start=True)
    assert environments.ask.call_count == 3 * 2, "for the shim, and for the coordinator"
