"""Fills a new home: an administrator, the digits, a model that learns them, and the groups to train it in.

Without the examples, it matches a new WMLA cluster: an administrator and ComputeHosts.
"""

import shutil

from django.conf import settings
from django.contrib.auth.models import User

from core.file_sources import Source
from datasets.actions import DatasetRegistration
from datasets.actions import register as register_dataset
from datasets.digits import write_digits
from datasets.models import Dataset
from jobs.actions.groups import InstanceGroupSpec, create_instance_group
from jobs.models import InstanceGroup
from models_registry.actions import ModelRegistration, TemplateAddition, add_template
from models_registry.actions import register as register_model
from models_registry.models import ModelTemplate, RegisteredModel
from workers.actions import ResourceGroupSpec, create_resource_group
from workers.models import ResourceGroup

__all__ = ["ADMIN", "fill_home", "has_admin"]

ADMIN = "admin"
_EXAMPLE = "digits-cnn"
_SERVICE = ResourceGroup.Kind.SERVICE


def has_admin() -> bool:
    return User.objects.filter(username=ADMIN).exists()


def fill_home(admin_password: str, *, examples: bool = True) -> None:
    """Add missing objects; existing ones are not changed."""
    admin = User.objects.filter(username=ADMIN).first()
    if admin is None:
        admin = User.objects.create_superuser(ADMIN, password=admin_password)
    _add_resource_group(ResourceGroupSpec("ComputeHosts", "ncpus*2", kind=_SERVICE, description="CPU slots"))
    if not examples:
        return
    _add_resource_group(ResourceGroupSpec("ComputeHostsGPU", "ngpus", description="Every GPU of every host"))
    if not InstanceGroup.objects.filter(name="sig-elastic").exists():
        create_instance_group(
            InstanceGroupSpec("sig-elastic", "ComputeHostsGPU", "elastic-fair-share"), "system", start=True
        )
    if not Dataset.objects.filter(name="digits").exists():
        _add_digits(admin)
    if not RegisteredModel.objects.filter(name=_EXAMPLE).exists():
        _add_model(admin)


def _add_resource_group(group: ResourceGroupSpec) -> None:
    if not ResourceGroup.objects.filter(name=group.name).exists():
        create_resource_group(group, "system")


def _add_digits(owner: User) -> None:
    folder = settings.TIDEPOOL_DATA_ROOTS[0] / "digits"
    write_digits(folder)
    description = "Handwritten digits, 8 x 8 pixels (scikit-learn's bundled copy)."
    register_dataset(
        owner,
        DatasetRegistration("digits", Source(path=str(folder)), kind=Dataset.Kind.IMAGES, description=description),
    )


def _add_model(owner: User) -> None:
    folder = settings.TIDEPOOL_MODEL_ROOTS[0] / _EXAMPLE
    shutil.copytree(
        settings.BASE_DIR / "examples" / _EXAMPLE,
        folder,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    description = "A small convolutional network in the style of WMLA's elastic distributed training."
    template = ModelTemplate.objects.filter(name=_EXAMPLE).first() or add_template(
        owner, TemplateAddition(_EXAMPLE, Source(path=str(folder)), "elastic-main.py", description=description)
    )
    register_model(
        owner,
        ModelRegistration(
            name=_EXAMPLE,
            source=template,
            default_dataset="digits",
            parameters={"epochs": 20},
            compat=["wmla"],
            description=description,
        ),
    )
