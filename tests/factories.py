"""Rows for tests: each with the least that its constraints ask for."""

from datetime import timedelta
from typing import Any

import factory
from django.conf import settings
from django.utils import timezone

from datasets.models import Dataset, DatasetVersion
from jobs.messages import message
from jobs.models import InstanceGroup, Job, JobEvent, JobRun, SlotClaim
from jobs.states import JobState, Reason
from models_registry.models import ModelTemplate, RegisteredModel, RegisteredModelVersion
from workers.models import CapacityPoint, Host, ResourceGroup, Slot

__all__ = [
    "RUN_COLUMNS",
    "DatasetFactory",
    "DatasetVersionFactory",
    "HostFactory",
    "InstanceGroupFactory",
    "JobEventFactory",
    "JobFactory",
    "ModelTemplateFactory",
    "RegisteredModelFactory",
    "RegisteredModelVersionFactory",
    "ResourceGroupFactory",
    "SlotClaimFactory",
    "SlotFactory",
    "UserFactory",
    "host_with_slots",
    "set_job",
]

PASSWORD = "correct horse battery"
RUN_COLUMNS = frozenset(field.name for field in JobRun._meta.get_fields()) - {"job"}


class UserFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = settings.AUTH_USER_MODEL
        skip_postgeneration_save = True

    username = factory.Sequence(lambda n: f"user-{n}")
    password = factory.django.Password(PASSWORD)


class DatasetFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Dataset

    name = factory.Sequence(lambda n: f"dataset-{n}")
    owner = factory.SubFactory(UserFactory)


class DatasetVersionFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = DatasetVersion

    dataset = factory.SubFactory(DatasetFactory)
    number = factory.Sequence(lambda n: n + 1)
    path = factory.LazyAttribute(lambda version: f"{settings.TIDEPOOL_DATA_ROOTS[0]}/{version.dataset.name}")
    state = DatasetVersion.State.READY
    size_bytes = 4
    file_count = 1


class ModelTemplateFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = ModelTemplate

    name = factory.Sequence(lambda n: f"template-{n}")
    owner = factory.SubFactory(UserFactory)
    path = factory.LazyAttribute(lambda template: f"{settings.TIDEPOOL_MODEL_ROOTS[0]}/{template.name}")
    entry_point = "main.py"
    digest = "0" * 64
    taken_at = factory.LazyFunction(timezone.now)


class RegisteredModelFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = RegisteredModel

    name = factory.Sequence(lambda n: f"model-{n}")
    owner = factory.SubFactory(UserFactory)


class RegisteredModelVersionFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = RegisteredModelVersion

    model = factory.SubFactory(RegisteredModelFactory)
    number = factory.Sequence(lambda n: n + 1)
    path = factory.LazyAttribute(lambda version: f"{settings.TIDEPOOL_MODEL_ROOTS[0]}/{version.model.name}")
    entry_point = "main.py"
    digest = "0" * 64


class HostFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Host

    name = factory.Sequence(lambda n: f"gpu-host-{n + 1}")
    state = Host.State.ONLINE
    ncpus = 8
    ngpus = 4
    memory_bytes = 16 * 1024**3
    virtual = True
    handshake = True
    last_report_at = factory.LazyFunction(timezone.now)


class SlotFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Slot

    host = factory.SubFactory(HostFactory)
    index = factory.Sequence(lambda n: n)
    virtual = True
    device_model = "virtual GPU (CPU)"


class ResourceGroupFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = ResourceGroup

    name = factory.Sequence(lambda n: f"resource-group-{n}")


class InstanceGroupFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = InstanceGroup

    name = factory.Sequence(lambda n: f"instance-group-{n}")
    resource_group = factory.SubFactory(ResourceGroupFactory)
    preemption = True


class JobFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Job

    name = factory.Sequence(lambda n: f"job-{n}")
    owner = factory.SubFactory(UserFactory)
    model = factory.SubFactory(RegisteredModelVersionFactory)
    dataset = factory.SubFactory(DatasetVersionFactory)
    instance_group = factory.SubFactory(InstanceGroupFactory)
    max_slots = 8
    reason_params = factory.LazyFunction(lambda: message("submitted"))
    submitted_at = factory.LazyFunction(timezone.now)

    @classmethod
    def _create(cls, model_class: type[Job], *args: Any, **values: Any) -> Job:
        """Values of the run are its: `JobFactory(step=5).run.step == 5`."""
        of_run = {name: values.pop(name) for name in RUN_COLUMNS & values.keys()}
        job: Job = super()._create(model_class, *args, **values)
        job.run = JobRun.objects.create(job=job, **of_run)
        return job


class JobEventFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = JobEvent

    job = factory.SubFactory(JobFactory)
    seq = factory.Sequence(lambda n: n + 1)
    new = JobState.PENDING
    reason = Reason.SUBMITTED
    detail = factory.LazyFunction(lambda: message("submitted"))
    actor = "system"
    at = factory.LazyFunction(timezone.now)


class SlotClaimFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = SlotClaim

    slot = factory.SubFactory(SlotFactory)
    job = factory.SubFactory(JobFactory)
    attempt = 1
    claimed_at = factory.LazyFunction(timezone.now)


def set_job(job: Job, **values: Any) -> None:
    """Write columns of a job or of its run as they cannot change by themselves. The object stays as it is."""
    for model in (Job, JobRun):
        of_model = {name: value for name, value in values.items() if (name in RUN_COLUMNS) == (model is JobRun)}
        if of_model:
            model.objects.filter(pk=job.pk).update(**of_model)


def host_with_slots(name: str = "gpu-host-1", slots: int = 4) -> Host:
    """An online virtual host and its slots, which the pool has had for two days."""
    host = HostFactory(name=name, ngpus=slots)
    CapacityPoint.objects.create(host=host, at=timezone.now() - timedelta(days=2), slots=slots)
    for index in range(slots):
        SlotFactory(host=host, index=index)
    return host
