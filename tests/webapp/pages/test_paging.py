"""Every list pages by key: all rows once, back again, and a place that is none is refused with a sentence."""

import re
from collections.abc import Callable
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client

from core.pages import PAGE_SIZE
from jobs.models import InstanceGroup
from tests.factories import (
    DatasetVersionFactory,
    InstanceGroupFactory,
    JobFactory,
    ModelTemplateFactory,
    RegisteredModelVersionFactory,
    UserFactory,
)
from tests.html import html_of

pytestmark = pytest.mark.django_db

MORE = PAGE_SIZE + 7
#: Address -> how its rows are made, and what each of them is known by.
LISTS: dict[str, tuple[Callable[[int], object], str]] = {
    "/jobs/": (JobFactory.create_batch, r'data-href="/jobs/(\d+)/"'),
    "/datasets/": (DatasetVersionFactory.create_batch, r'data-href="/datasets/(\d+)/"'),
    "/models/": (RegisteredModelVersionFactory.create_batch, r'data-href="/models/(\d+)/"'),
    "/models/templates/": (ModelTemplateFactory.create_batch, r'data-href="/models/templates/(\d+)/"'),
    "/models/new/": (ModelTemplateFactory.create_batch, r'name="template" value="(\d+)"'),
    "/instance-groups/": (InstanceGroupFactory.create_batch, r'data-href="/instance-groups/(\d+)/"'),
    "/users/?search=user": (UserFactory.create_batch, r'data-href="/users/(\d+)/"'),
}


def rows_and_neighbours(client: Client, path: str, row: str) -> tuple[list[str], dict[str, str]]:
    """Return the rows of the page, and the addresses of the pages before and after it."""
    answer = client.get(path)
    assert answer.status_code == 200
    content = html_of(answer)
    links = re.findall(r'href="([^"]*)" rel="(prev|next)"', content)
    return re.findall(row, content), {rel: f"{path.partition('?')[0]}{unescape(link)}" for link, rel in links}


@pytest.mark.parametrize("path", LISTS)
def test_pages_follow_each_other_and_lead_back(carol: User, carols: Client, path: str) -> None:
    make, row = LISTS[path]
    make(MORE)

    first, beside = rows_and_neighbours(carols, path, row)
    second, there = rows_and_neighbours(carols, beside["next"], row)

    assert (len(first), "prev" in beside) == (PAGE_SIZE, False)
    assert len(second) >= MORE - PAGE_SIZE
    assert not set(first) & set(second)
    assert rows_and_neighbours(carols, there["prev"], row)[0] == first


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("place", ["after=x", "before=~", "after=a~%F0%9F%98%80"])
def test_a_place_that_is_none_is_refused(carols: Client, path: str, place: str) -> None:
    answer = carols.get(f"{path}{'&' if '?' in path else '?'}{place}")

    assert answer.status_code == 400
    assert "start with the first page" in html_of(answer)


@pytest.mark.parametrize("path", LISTS)
def test_no_row_is_lost_when_others_come_between(carols: Client, path: str) -> None:
    make, row = LISTS[path]
    make(MORE)
    first, beside = rows_and_neighbours(carols, path, row)

    make(3)
    second, _ = rows_and_neighbours(carols, beside["next"], row)

    assert not set(first) & set(second)


def test_names_that_are_equal_but_for_case_page_as_well(carols: Client) -> None:
    for number in range(MORE):
        InstanceGroupFactory(name=f"{'Group' if number % 2 else 'group'} <{number}> & ~")
    first, beside = rows_and_neighbours(carols, "/instance-groups/", LISTS["/instance-groups/"][1])
    second, _ = rows_and_neighbours(carols, beside["next"], LISTS["/instance-groups/"][1])

    assert len({*first, *second}) == InstanceGroup.objects.count()
