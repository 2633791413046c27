"""The list of jobs in the API: what it takes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from jobs.queries.listing import ACTIVE, FINISHED, ORDERS, PERIODS
from jobs.states import JobState

__all__ = ["JobQuery"]


class JobQuery(serializers.Serializer[Any]):
    """What `jobs.queries.listing.parsed_filter` understands."""

    state = serializers.ChoiceField([ACTIVE, FINISHED, *JobState], required=False)
    search = serializers.CharField(required=False, help_text="Part of the name, or the number.")
    owner = serializers.CharField(required=False, help_text="User name.")
    model = serializers.CharField(required=False, help_text="Name.")
    dataset = serializers.CharField(required=False, help_text="Name.")
    instance_group = serializers.CharField(required=False, help_text="Name.")
    within = serializers.ChoiceField(list(PERIODS), required=False, help_text="Submitted since then.")
    submitted_after = serializers.DateTimeField(required=False, help_text="Then or later.")
    submitted_before = serializers.DateTimeField(required=False)
    sort = serializers.ChoiceField(list(ORDERS), required=False, help_text="`ended` leaves out what is not over.")
