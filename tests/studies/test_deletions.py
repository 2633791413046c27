"""Deleting what only a study refers to is refused with a sentence that names the study."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from accounts import actions as accounts
from core.errors import Conflict
from core.roles import Role
from jobs.actions.groups import delete_instance_group
from models_registry.actions import delete_model
from studies.models import Study
from tests.factories import DatasetVersionFactory, InstanceGroupFactory, RegisteredModelVersionFactory
from tests.html import html_of
from tests.scene import Scene

pytestmark = pytest.mark.django_db


@pytest.fixture
def study(scene: Scene) -> Study:
    """Return the scene's study with a model, a dataset and a group that nothing else refers to."""
    study = scene.study
    study.model = RegisteredModelVersionFactory(model__owner=study.owner)
    study.dataset = DatasetVersionFactory(dataset__owner=study.owner)
    study.instance_group = InstanceGroupFactory()
    study.save()
    return study


def refusal(api: Client, address: str) -> str:
    answer = api.delete(f"/api/v1/{address}/")
    assert (answer.status_code, answer.json()["code"]) == (409, "in_use"), answer.content
    return str(answer.json()["error"])


def test_an_instance_group(study: Study, carol_api: APIClient) -> None:
    group = study.instance_group
    said = refusal(carol_api, f"instance-groups/{group.pk}")
    assert said == f"{group.name} is the group of the study {study}: stop the group instead of deleting it."
    study.delete()
    assert carol_api.delete(f"/api/v1/instance-groups/{group.pk}/").status_code == 204


def test_a_dataset(study: Study, alices: Client) -> None:
    assert study.dataset is not None
    dataset = study.dataset.dataset
    said = f"{dataset.name} cannot be deleted: it is the data of the study {study}."
    assert refusal(alices, f"datasets/{dataset.pk}") == said
    page = alices.post(f"/datasets/{dataset.pk}/delete/", follow=True)
    assert (page.status_code, said in html_of(page)) == (200, True)


def test_a_model(study: Study, alices: Client) -> None:
    model = study.model.model
    said = f"The model {model.name} cannot be deleted: it is the code of the study {study}."
    assert refusal(alices, f"models/{model.pk}") == said
    page = alices.post(f"/models/{model.pk}/delete/", follow=True)
    assert (page.status_code, said in html_of(page)) == (200, True)


def test_a_model_names_no_study_of_somebody_else(study: Study) -> None:
    model = study.model.model
    Study.objects.update(owner=User.objects.get(username="bob"))
    with pytest.raises(Conflict, match="it is the code of 1 study"):
        delete_model(model, model.owner)


def test_several_studies(study: Study, carol: User) -> None:
    second = Study.objects.get(pk=study.pk)
    second.pk, second.name = None, "Widths"
    second.save(force_insert=True)
    with pytest.raises(Conflict) as refused:
        delete_instance_group(study.instance_group_id, carol)
    named = f"{study.instance_group.name} is the group of 2 studies, such as "
    assert refused.value.message.startswith(named)


def test_a_user(study: Study, carol: User) -> None:
    erin = accounts.invite(carol, "erin", Role.DATA_SCIENTIST).user
    Study.objects.update(owner=erin)
    with pytest.raises(Conflict) as refused:
        accounts.withdraw_invitation(carol, erin.pk)
    assert refused.value.message == f"erin owns the study {study}: deactivate the account instead."
