import platform
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from jobs.models import AttemptSoftware, Environment, Job
from tests.webapp.permissions.matrix import World, build_world


@pytest.fixture(scope="package")
def world(django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One cluster for all, in a transaction around those of the tests: what a request changes is rolled back."""
    home = tmp_path_factory.mktemp("home")
    folders = {"TIDEPOOL_HOME": home, "TIDEPOOL_RESULTS_ROOT": home / "results"}
    roots = {f"TIDEPOOL_{kind}_ROOTS": [home / name] for kind, name in (("DATA", "data"), ("MODEL", "models"))}
    for name in ("data", "models", "results"):
        (home / name).mkdir()
    with django_db_blocker.unblock(), override_settings(**folders, **roots), transaction.atomic():
        world = build_world(home)
        _record_versions(world.scene.first)
        yield world
        transaction.set_rollback(True)


def _record_versions(job: Job) -> None:
    """Record what the job ran, without which it cannot run exactly again."""
    versions = {"psutil": "7.0.0"}
    environment = Environment.objects.create(
        digest="e" * 64, python=platform.python_version(), platform="linux", packages=versions
    )
    AttemptSoftware.objects.create(job=job, attempt=1, host="gpu-host-1", environment=environment)
