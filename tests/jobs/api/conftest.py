"""Something to submit: code, data and a group with GPUs."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from jobs import actions
from jobs.models import InstanceGroup, Job
from tests.factories import (
    DatasetVersionFactory,
    InstanceGroupFactory,
    RegisteredModelVersionFactory,
    ResourceGroupFactory,
    host_with_slots,
)


@pytest.fixture
def group(db: None) -> InstanceGroup:
    host_with_slots("gpu-host-1", 4)
    return InstanceGroupFactory(name="sig-elastic", resource_group=ResourceGroupFactory(name="ComputeHostsGPU"))


@pytest.fixture
def submission(home: Path, group: InstanceGroup) -> dict[str, Any]:
    """A job's JSON that is accepted."""
    for folder, file in (("data/digits", "train.npz"), ("models/cnn", "main.py")):
        (home / folder).mkdir(parents=True)
        (home / folder / file).write_text("x = 1\n")
    DatasetVersionFactory(dataset__name="digits", path=str(home / "data/digits"))
    RegisteredModelVersionFactory(model__name="cnn", path=str(home / "models/cnn"), entry_point="main.py")
    return {
        "name": "T1",
        "model": "cnn",
        "dataset": "digits",
        "instance_group": "sig-elastic",
        "min_slots": 1,
        "max_slots": 4,
        "priority": 5000,
        "parameters": {"epochs": 2},
    }


@pytest.fixture
def alices_job(alice: User, submission: dict[str, Any]) -> Job:
    return actions.submit(actions.Submission(**submission), alice)
