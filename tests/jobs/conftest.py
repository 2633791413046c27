from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from jobs import actions
from jobs.models import InstanceGroup, Job
from models_registry.models import RegisteredModelVersion
from tests.factories import DatasetVersionFactory, InstanceGroupFactory, RegisteredModelVersionFactory
from tests.jobs.cluster import Cluster

Submit = Callable[..., Job]


@pytest.fixture
def cluster(db: None) -> Cluster:
    """Two hosts of four slots that have reported."""
    return Cluster.of("gpu-host-1", "gpu-host-2")


@pytest.fixture
def group(db: None) -> InstanceGroup:
    return InstanceGroupFactory(name="sig-elastic")


@pytest.fixture
def code(home: Path) -> RegisteredModelVersion:
    version = RegisteredModelVersionFactory(model__name="digits-cnn", parameters={"epochs": 2}, compat=["wmla"])
    folder = Path(version.path)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.py").write_text("print('training')\n")
    return version


@pytest.fixture
def given(home: Path, code: RegisteredModelVersion, group: InstanceGroup) -> dict[str, Any]:
    """A submission without mistakes."""
    dataset = DatasetVersionFactory(dataset__name="digits")
    Path(dataset.path).mkdir(parents=True, exist_ok=True)
    return {
        "name": "T1",
        "model": "digits-cnn",
        "dataset": "digits",
        "instance_group": "sig-elastic",
        "max_slots": 8,
        "priority": 5000,
    }


@pytest.fixture
def submit(alice: User, cluster: Cluster, given: dict[str, Any]) -> Submit:
    def submit(**changes: Any) -> Job:
        return actions.submit(actions.Submission(**{**given, **changes}), alice)

    return submit
