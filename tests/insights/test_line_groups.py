"""Trainings of a comparison in groups, each of which is one line."""

import pytest

from core.errors import UserError
from insights.comparison import Compared
from insights.line_groups import (
    MOST_GROUPS,
    LineGrouping,
    grouped_results,
    line_groupings,
    requested_grouping,
)
from jobs.models import Job, JobTag
from tests.factories import JobFactory, UserFactory
from tests.scene import Scene


def groups_of(groupings: list[LineGrouping], key: str) -> dict[str, list[int]]:
    [found] = [one for one in groupings if one.key == key]
    assert [group.number for group in found.groups] == list(range(1, len(found.groups) + 1))
    return {group.name: list(group.jobs) for group in found.groups}


def test_trainings_are_grouped_by_what_the_list_is_grouped_by_and_by_settings_that_differ(scene: Scene) -> None:
    rates = {scene.first: {"lr": 0.1}, scene.second: {"lr": 0.02}, scene.done: {"lr": 0.1, "seed": 3}}
    for job, parameters in rates.items():
        job.parameters = parameters
    first, second, done = (job.pk for job in rates)

    groupings = line_groupings(scene.alice, list(rates))

    kinds = ["model", "tag", "instance_group", "dataset"]
    assert [one.key for one in groupings if not one.is_setting] == kinds
    assert groups_of(groupings, "model") == {"digits-cnn": [first, second, done]}
    assert groups_of(groupings, "tag") == {"lr:0.1": [second], "paper-3": [second], "none": [first, done]}
    assert groups_of(groupings, "setting:lr") == {"0.02": [second], "0.1": [first, done]}, "numbers by their value"
    assert groups_of(groupings, "setting:seed") == {"3": [done], "none": [first, second]}
    assert "setting:epochs" not in [one.key for one in groupings], "it does not differ"
    admin = UserFactory(is_staff=True)
    assert groups_of(line_groupings(admin, list(rates)), "owner") == {"alice": [first, second, done]}


def test_only_the_largest_groups_are_drawn(scene: Scene) -> None:
    jobs = [scene.first, scene.second]
    JobTag.objects.bulk_create(JobTag(job=scene.first, name=f"t{number:02}") for number in range(MOST_GROUPS))

    [tags] = [one for one in line_groupings(scene.alice, jobs) if one.key == "tag"]

    assert (len(tags.groups), tags.left_out) == (MOST_GROUPS, 2)


def test_results_of_a_group_are_a_mean_and_a_span(scene: Scene) -> None:
    values = [{"loss": 0.25}, {"loss": 0.75}, {"loss": None}, {}]
    jobs: list[Job] = [JobFactory(owner=scene.alice, final_metrics=metrics) for metrics in values]
    for number, job in enumerate(jobs):
        job.parameters = {"seed": number // 2}

    grouping = requested_grouping(line_groupings(scene.alice, jobs), "setting:seed")

    assert grouping is not None
    rows = grouped_results(jobs, grouping)
    assert Compared("loss", ["0.5 (0.25 to 0.75)", "–"]) in rows
    assert rows[0] == Compared("Steps", ["0", "0"])


def test_another_grouping_is_refused(scene: Scene) -> None:
    groupings = line_groupings(scene.alice, [scene.first, scene.second])

    assert requested_grouping(groupings, "") is None
    with pytest.raises(UserError, match="cannot be grouped by “owner”"):
        requested_grouping(groupings, "owner")
