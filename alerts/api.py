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

_GONE = {204: OpenApiResponse(description="Deleted.")}


class ChannelInput(StrictSerializer):
    name = serializers.CharField(max_length=1000, trim_whitespace=False)
    kind = serializers.ChoiceField(ChannelKind.choices)
    address = serializers.CharField(max_length=2000, help_text="The response only contains it masked.")


class ChannelOutput(serializers.ModelSerializer[Channel]):
    address = serializers.CharField(source="masked", help_text="Masked.")

    class Meta:
        model = Channel
        fields = ["id", "name", "kind", "address", "created_at"]


class NewChannelOutput(ChannelOutput):
    secret = serializers.CharField(help_text="Secret that signs messages to a webhook. Only this response contains it.")

    class Meta(ChannelOutput.Meta):
        fields = [*ChannelOutput.Meta.fields, "secret"]


class RuleInput(StrictSerializer):
    channel = serializers.IntegerField(min_value=1, max_value=2**63 - 1)
    kind = serializers.ChoiceField(Kind.choices)
    group = ReferenceField(
        required=False, allow_null=True, default=None, help_text="Instance group, by id or name. null: your trainings."
    )
    minutes = serializers.IntegerField(
        required=False, allow_null=True, default=None, help_text="Minimum duration of training_waits and gpus_idle."
    )


class RuleOutput(serializers.ModelSerializer[AlertRule]):
    group = serializers.CharField(source="group.name", allow_null=True, default=None)

    class Meta:
        model = AlertRule
        fields = ["id", "channel", "kind", "group", "minutes", "created_at"]


class QuietInput(StrictSerializer):
    begins = serializers.TimeField()
    ends = serializers.TimeField(help_text="A time before `begins` is on the next day.")
    time_zone = serializers.CharField(max_length=64, default="UTC")


class QuietOutput(serializers.ModelSerializer[QuietHours]):
    class Meta:
        model = QuietHours
        fields = ["begins", "ends", "time_zone"]


class DeliveryOutput(serializers.ModelSerializer[Delivery]):
    alerts = serializers.IntegerField(source="alert_count", help_text="Number of events in the message.")

    class Meta:
        model = Delivery
        fields = ["id", "channel", "state", "is_test", "alerts", "created_at", "tries", "sent_at", "problem"]


class Channels(ListAPIView[Channel]):
    """The user's channels."""

    serializer_class = ChannelOutput
    pagination_class = NamedPages

    def get_queryset(self) -> Any:
        return queries.channels(signed_in(self.request))

    @extend_schema(request=ChannelInput, responses={201: NewChannelOutput})
    def post(self, request: Request) -> Response:
        """Add a channel. Only this response contains the secret of a webhook."""
        made = actions.add_channel(signed_in(request), **validated(ChannelInput, request.data))
        answer = {**ChannelOutput(made.row).data, "secret": made.secret}
        return Response(answer, status=201, headers={"Cache-Control": "no-store"})


class ChannelDetail(GenericAPIView[Channel]):
    serializer_class = ChannelOutput

    @extend_schema(responses=_GONE)
    def delete(self, request: Request, channel: int) -> Response:
        """Delete the channel with its rules and unsent messages."""
        actions.remove_channel(signed_in(request), channel)
        return Response(status=204)


class ChannelTest(GenericAPIView[Channel]):
    @extend_schema(request=None, responses={202: DeliveryOutput})
    def post(self, request: Request, channel: int) -> Response:
        """Send a test message, also in quiet hours. The list of deliveries shows its result."""
        user = signed_in(request)
        made = actions.test_channel(user, channel)
        return Response(DeliveryOutput(queries.deliveries(user).get(pk=made.pk)).data, status=202)


class Rules(ListAPIView[AlertRule]):
    """The user's rules."""

    serializer_class = RuleOutput
    pagination_class = Pages

    def get_queryset(self) -> Any:
        return queries.rules(signed_in(self.request))

    @extend_schema(request=RuleInput, responses={201: RuleOutput})
    def post(self, request: Request) -> Response:
        """Add a rule: the channel receives alerts of this kind from now on."""
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
    """The user's quiet hours: no alerts are sent between these times of the day."""

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
            raise NotFound("You have no quiet hours to delete.")
        return Response(status=204)


class Deliveries(ListAPIView[Delivery]):
    """Messages to the user's channels, newest first. They are kept for 30 days."""

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
