from pathlib import Path

import pytest
from django.contrib.auth.models import User

from jobs.models import InstanceGroup
from models_registry.models import RegisteredModelVersion
from tests.factories import (
    DatasetVersionFactory,
    InstanceGroupFactory,
    RegisteredModelVersionFactory,
    ResourceGroupFactory,
    host_with_slots,
)
from wmla.identifiers import identities


@pytest.fixture
def group(db: None) -> InstanceGroup:
    """With two hosts of four GPUs."""
    for name in ("gpu-host-1", "gpu-host-2"):
        host_with_slots(name)
    return InstanceGroupFactory(
        name="sig-elastic", resource_group=ResourceGroupFactory(name="ComputeHostsGPU", slot_rule="ngpus")
    )


@pytest.fixture
def sig_id(group: InstanceGroup) -> str:
    return identities().group_id(group.pk)


@pytest.fixture
def data(home: Path) -> Path:
    """Folders as in the tutorial."""
    for name in ("train_db", "test_db"):
        (home / "data/cifar10" / name).mkdir(parents=True)
        (home / "data/cifar10" / name / "batch").write_bytes(b"1234")
    return home / "data/cifar10"


@pytest.fixture
def code(home: Path) -> Path:
    """A model in IBM's style: two ways to run it, and one that declares a setting."""
    folder = home / "models/resnet"
    (folder / "net").mkdir(parents=True)
    (folder / "main.py").write_text("x = 1\n")
    (folder / "elastic-main.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float)\n"
    )
    (folder / "net/layers.py").write_text("y = 2\n")
    return folder


@pytest.fixture
def model(alice: User, code: Path, data: Path) -> RegisteredModelVersion:
    """Alice's, ready to be trained on a dataset that is READY."""
    DatasetVersionFactory(dataset__name="cifar10", dataset__owner=alice, path=str(data))
    return RegisteredModelVersionFactory(
        model__name="resnet",
        model__owner=alice,
        number=1,
        path=str(code),
        entry_point="elastic-main.py",
        default_dataset="cifar10",
        settings={"optimizer": "Adam", "epochs": 3},
    )
