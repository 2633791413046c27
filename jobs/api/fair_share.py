"""`/api/v1/fair-share/`."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.insight.fair_share import fair_share_page

__all__ = ["FairShare"]


class GroupShareOutput(serializers.Serializer[Any]):
    id = serializers.IntegerField(allow_null=True, help_text="null: the viewer may not see which group it is.")
    name = serializers.CharField()
    resource_group = serializers.CharField()
    started = serializers.BooleanField()
    quota = serializers.IntegerField(allow_null=True)
    weight = serializers.IntegerField()
    wants = serializers.IntegerField(help_text="The most that its trainings can use.")
    deserved = serializers.FloatField(help_text="Its part now, by quota, weight and what it asks for.")
    held = serializers.IntegerField()
    target = serializers.IntegerField(help_text="What it has once everything has changed hands.")
    borrowed = serializers.IntegerField(help_text="Held beyond its quota, of quotas of others.")
    lent = serializers.IntegerField(help_text="Of its quota, held by others.")


class SharedPoolOutput(serializers.Serializer[Any]):
    resource_groups = serializers.ListField(child=serializers.CharField())
    total = serializers.IntegerField()
    free = serializers.IntegerField()
    groups = GroupShareOutput(many=True)


class JobShareOutput(serializers.Serializer[Any]):
    job = serializers.IntegerField()
    name = serializers.CharField()
    visible = serializers.BooleanField(help_text="False: it is another user's, without its name.")
    group = serializers.CharField()
    priority = serializers.IntegerField()
    held = serializers.IntegerField()
    deserved = serializers.IntegerField()
    wants = serializers.IntegerField()


class FairShareOutput(serializers.Serializer[Any]):
    pools = SharedPoolOutput(many=True, help_text="Instance groups that share GPUs stand together.")
    waiting = serializers.ListField(child=serializers.CharField(), help_text="Sentences: who waits for whom.")
    jobs = JobShareOutput(many=True, help_text="Those that hold most first, at most 100.")
    more = serializers.IntegerField(help_text="Trainings that are not listed.")


class FairShare(GenericAPIView[Any]):
    """The GPUs that each instance group and training is entitled to, holds, borrows and lends."""

    serializer_class = FairShareOutput
    pagination_class = None

    def get(self, request: Request) -> Response:
        return Response(FairShareOutput(fair_share_page(request.user)).data)
