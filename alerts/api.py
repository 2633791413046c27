"""`/api/v1/alerts/…`: a user's own channels, rules, quiet hours and messages. Nobody else sees them."""

from typing import Any

from django.urls import path
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from alerts import actions, queries
from alerts.alert_kinds import ChannelKind, Kind
from alerts.models import AlertRule, Channel, Delivery, QuietHours
from core.errors import NotFound
from core.rest import NamedPages, Pages, ReferenceField, StrictSerializer, signed_in, validated

__all__ = ["urlpatterns"]

_GONE = {204: OpenApiResponse(description="It is gone.")}


class ChannelInput(StrictSerializer):
    name = serializers.CharField(max_length=1000, trim_whitespace=False)
    kind = serializers.ChoiceField(ChannelKind.choices)
    address = serializers.CharField(max_length=2000, help_text="Never shown again but masked.")


class ChannelOutput(serializers.ModelSerializer[Channel]):
    address = serializers.CharField(source="masked", help_text="Masked.")

    class Meta:
        model = Channel
        fields = ["id", "name", "kind", "address", "created_at"]


class NewChannelOutput(ChannelOutput):
    secret = serializers.CharField(help_text="What messages to a webhook are signed with. Shown only now.")

    class Meta(ChannelOutput.Meta):
        fields = [*ChannelOutput.Meta.fields, "secret"]


class RuleInput(StrictSerializer):
    channel = serializers.IntegerField(min_value=1, max_value=2**63 - 1)
    kind = serializers.ChoiceField(Kind.choices)
    group = ReferenceField(
        required=False, allow_null=True, default=None, help_text="Instance group, by id or name. null: your trainings."
    )
    minutes = serializers.IntegerField(
        required=False, allow_null=True, default=None, help_text="Of training_waits and gpus_idle: how long it lasts."
    )


class RuleOutput(serializers.ModelSerializer[AlertRule]):
    group = serializers.CharField(source="group.name", allow_null=True, default=None)

    class Meta:
        model = AlertRule
        fields = ["id", "channel", "kind", "group", "minutes", "created_at"]


class QuietInput(StrictSerializer):
    begins = serializers.TimeField()
    ends = serializers.TimeField(help_text="Before `begins`: on the next day.")
    time_zone = serializers.CharField(max_length=64, default="UTC")


class QuietOutput(serializers.ModelSerializer[QuietHours]):
    class Meta:
        model = QuietHours
        fields = ["begins", "ends", "time_zone"]


class DeliveryOutput(serializers.ModelSerializer[Delivery]):
    alerts = serializers.IntegerField(source="alert_count", help_text="How many it tells of.")

    class Meta:
        model = Delivery
        fields = ["id", "channel", "state", "is_test", "alerts", "created_at", "tries", "sent_at", "problem"]


class Channels(ListAPIView[Channel]):
    """One's own channels."""

    serializer_class = ChannelOutput
    pagination_class = NamedPages

    def get_queryset(self) -> Any:
        return queries.channels(signed_in(self.request))

    @extend_schema(request=ChannelInput, responses={201: NewChannelOutput})
    def post(self, request: Request) -> Response:
        """Add one. The secret of a webhook is shown only in this answer."""
        made = actions.add_channel(signed_in(request), **validated(ChannelInput, request.data))
        answer = {**ChannelOutput(made.row).data, "secret": made.secret}
        return Response(answer, status=201, headers={"Cache-Control": "no-store"})


class ChannelDetail(GenericAPIView[Channel]):
    serializer_class = ChannelOutput

    @extend_schema(responses=_GONE)
    def delete(self, request: Request, channel: int) -> Response:
        """Remove it, with its rules and with what was not sent yet."""
        actions.remove_channel(signed_in(request), channel)
        return Response(status=204)


class ChannelTest(GenericAPIView[Channel]):
    @extend_schema(request=None, responses={202: DeliveryOutput})
    def post(self, request: Request, channel: int) -> Response:
        """Send a test, also in quiet hours. The list of deliveries says what became of it."""
        user = signed_in(request)
        made = actions.test_channel(user, channel)
        return Response(DeliveryOutput(queries.deliveries(user).get(pk=made.pk)).data, status=202)


class Rules(ListAPIView[AlertRule]):
    """One's own rules."""

    serializer_class = RuleOutput
    pagination_class = Pages

    def get_queryset(self) -> Any:
        return queries.rules(signed_in(self.request))

    @extend_schema(request=RuleInput, responses={201: RuleOutput})
    def post(self, request: Request) -> Response:
        """Add one: the channel is told of things of this kind from now on."""
        given = validated(RuleInput, request.data)
        row = actions.add_rule(signed_in(request), given.pop("channel"), **given)
        return Response(RuleOutput(row).data, status=201)


class RuleDetail(GenericAPIView[AlertRule]):
    serializer_class = RuleOutput

    @extend_schema(responses=_GONE)
    def delete(self, request: Request, rule: int) -> Response:
        actions.remove_rule(signed_in(request), rule)
        return Response(status=204)


class MyQuietHours(GenericAPIView[QuietHours]):
    """Between these times of the day nothing is sent."""

    serializer_class = QuietOutput
    refuses_with = (404,)

    def get(self, request: Request) -> Response:
        row = queries.quiet_hours(signed_in(request))
        if row is None:
            raise NotFound("You have no quiet hours: alerts are sent at any time.")
        return Response(QuietOutput(row).data)

    @extend_schema(request=QuietInput, responses=QuietOutput)
    def put(self, request: Request) -> Response:
        row = actions.set_quiet_hours(signed_in(request), **validated(QuietInput, request.data))
        return Response(QuietOutput(row).data)

    @extend_schema(responses=_GONE)
    def delete(self, request: Request) -> Response:
        if not actions.end_quiet_hours(signed_in(request)):
            raise NotFound("You have no quiet hours: there is nothing to end.")
        return Response(status=204)


class Deliveries(ListAPIView[Delivery]):
    """Messages to one's own channels, the newest first. Kept for 30 days."""

    serializer_class = DeliveryOutput
    pagination_class = Pages

    def get_queryset(self) -> Any:
        return queries.deliveries(signed_in(self.request))


urlpatterns = [
    path("alerts/channels/", Channels.as_view(), name="alert-channels"),
    path("alerts/channels/<int:channel>/", ChannelDetail.as_view(), name="alert-channel"),
    path("alerts/channels/<int:channel>/test/", ChannelTest.as_view(), name="alert-channel-test"),
    path("alerts/rules/", Rules.as_view(), name="alert-rules"),
    path("alerts/rules/<int:rule>/", RuleDetail.as_view(), name="alert-rule"),
    path("alerts/quiet-hours/", MyQuietHours.as_view(), name="alert-quiet-hours"),
    path("alerts/deliveries/", Deliveries.as_view(), name="alert-deliveries"),
]
