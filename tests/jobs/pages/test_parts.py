"""Parts of a training's page, which the page asks for anew when something about them changes."""

import re

from django.test import Client
from django.urls import reverse

from jobs.pages.job.views import job_part
from tests.scene import Scene


def test_each_is_at_the_address_that_its_template_names(alices: Client, scene: Scene) -> None:
    page = alices.get(f"/jobs/{scene.first.pk}/").content.decode()
    asked = set(re.findall(r'hx-get="([^"]+)"', page))
    assert reverse("jobs:part", args=[scene.first.pk, "tags"]) in asked
    for address in asked:
        answer = alices.get(address)
        assert answer.status_code == 200, address
        assert answer.resolver_match.func == job_part, address
