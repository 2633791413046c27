"""A new home is ready for the tutorial, and filling it again changes nothing."""

import numpy as np
import pytest
from django.conf import settings
from django.contrib.auth.models import User

from datasets.digits import write_digits
from datasets.models import DatasetVersion
from jobs.models import InstanceGroup
from models_registry.models import RegisteredModelVersion
from webapp.initial_data import fill_home
from workers.models import ResourceGroup

pytestmark = pytest.mark.django_db


def test_filling_twice(home):
    fill_home("a long password")
    fill_home("another password")
    assert User.objects.get().check_password("a long password")
    version = RegisteredModelVersion.objects.get()
    assert (version.model.name, version.entry_point, version.compat) == ("digits-cnn", "elastic-main.py", ["wmla"])
    assert version.parameters == {"epochs": 20}
    assert DatasetVersion.objects.get().file_count == 2
    assert dict(ResourceGroup.objects.values_list("name", "slot_rule")) == {
        "ComputeHosts": "ncpus*2",
        "ComputeHostsGPU": "ngpus",
    }
    group = InstanceGroup.objects.get()
    assert (group.name, group.policy, group.preemption) == ("sig-elastic", "fairshare", True)
    assert group.resource_group.name == "ComputeHostsGPU"
    assert (settings.TIDEPOOL_MODEL_ROOTS[0] / "digits-cnn" / "elastic-main.py").is_file()


def test_without_the_examples_it_is_as_after_an_installation(home):
    fill_home("a long password", examples=False)
    assert User.objects.get().is_superuser
    assert list(ResourceGroup.objects.values_list("name", flat=True)) == ["ComputeHosts"]
    assert not InstanceGroup.objects.exists()
    assert not DatasetVersion.objects.exists()
    assert not RegisteredModelVersion.objects.exists()


def test_the_digits_are_the_same_each_time(tmp_path):
    write_digits(tmp_path / "one")
    write_digits(tmp_path / "two")
    for name, count in (("train.npz", 1438), ("test.npz", 359)):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
        with np.load(tmp_path / "one" / name) as part:
            assert part["images"].shape == (count, 1, 8, 8)
            assert part["images"].dtype == np.float32
            assert part["labels"].dtype == np.int64
            assert (part["images"].min(), part["images"].max()) == (0.0, 1.0)
            assert set(part["labels"]) == set(range(10))
