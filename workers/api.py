"""`/api/v1/hosts/`, `slots/`, `resource-groups/` and join tokens. Called by `webapp.api` only."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from django.urls import path
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import address_of
from core.dataclass_serializers import output_of
from core.errors import existing
from core.etags import seen_in, with_etag
from core.rest import NamedPages, Pages, StrictSerializer, signed_in, validated
from core.roles import is_cluster_admin, require_cluster_admin
from scheduling.snapshot import Share
from workers import actions, queries
from workers.broker_users import shares_broker
from workers.join_tokens import Invitation, create_join_token, redeem, withdraw_join_token
from workers.models import GpuReading, Host, JoinToken, ResourceGroup, Slot
from workers.sick_slots import return_slot

__all__ = ["urlpatterns"]

# --- hosts and slots --------------------------------------------------------------------------------------------------


class ReadingOutput(serializers.ModelSerializer[GpuReading]):
    class Meta:
        model = GpuReading
        fields = [
            "at",
            "utilisation_percent",
            "memory_used_bytes",
            "memory_total_bytes",
            "temperature_celsius",
            "power_watts",
        ]


class SlotOutput(serializers.ModelSerializer[Slot]):
    host = serializers.CharField(source="host.name")
    reading = ReadingOutput(default=None, allow_null=True, read_only=True)

    class Meta:
        model = Slot
        fields = [
            *("id", "host", "index", "device_model", "device_uuid", "virtual", "fault", "sick_since", "sick_why"),
            "reading",
        ]


class ShareOutput(serializers.Serializer[Share]):
    cores = serializers.FloatField(help_text="Number of processors.")
    memory = serializers.IntegerField(help_text="Bytes.")


class HostOutput(serializers.ModelSerializer[Host]):
    slots = serializers.SerializerMethodField(help_text="Indexes of the host's slots.")
    shares_broker = serializers.SerializerMethodField(
        help_text="Whether its password of the broker is used by others, too; null if not an administrator asks."
    )
    isolation = serializers.CharField(
        read_only=True,
        help_text="shared, walled, separate or sealed; none: it lacks the level that was chosen, and runs no training; "
        "empty: its executor does not tell.",
    )
    isolation_lacks = serializers.ListField(
        child=serializers.CharField(),
        read_only=True,
        help_text="A sentence for each thing that it does not keep trainings from.",
    )
    share = ShareOutput(
        allow_null=True, read_only=True, help_text="Cores and memory of each slot; null: the executor does not tell."
    )

    class Meta:
        model = Host
        fields = [
            "id",
            "name",
            "state",
            "address",
            "ncpus",
            "ngpus",
            "memory_bytes",
            "cores",
            "usable_memory_bytes",
            "reserved_cores",
            "reserved_memory_bytes",
            "slot_cores",
            "slot_memory_bytes",
            "slot_processes",
            "share",
            "swap_bytes",
            "nprocs",
            "ncores",
            "nthreads",
            "virtual",
            "conda",
            "images",
            "leaving_at",
            "leaving_why",
            "last_report_at",
            "clock_behind_seconds",
            "gpu_software",
            "gpu_problem",
            "isolation",
            "isolation_lacks",
            "shares_broker",
            "slots",
        ]

    @extend_schema_field({"type": "array", "items": {"type": "integer"}})
    def get_slots(self, host: Any) -> list[int]:
        return [slot.index for slot in host.slots.all()]

    def get_shares_broker(self, host: Host) -> bool | None:
        return shares_broker(host) if is_cluster_admin(self.context["request"].user) else None


class HostList(ListAPIView[Host]):
    serializer_class = HostOutput
    pagination_class = NamedPages

    def get_queryset(self) -> Any:
        return queries.hosts()


class _HostView(GenericAPIView[Host]):
    serializer_class = HostOutput

    def get_object(self) -> Any:
        return existing(queries.find_host(self.kwargs["reference"]), "host")


class HostDetail(_HostView, RetrieveAPIView[Host]):
    @extend_schema(responses={204: None})
    def delete(self, request: Request, reference: str) -> Response:
        """Remove a host that is drained or has left, and on which nothing runs.

        The host comes back when its executor starts again, or by `restore/`.
        """
        require_cluster_admin(request.user)
        actions.remove_host(self.get_object().name, signed_in(request))
        return Response(status=204)


class _HostAction(_HostView):
    act: ClassVar[Callable[..., None]]

    @extend_schema(request=None, responses=HostOutput)
    def post(self, request: Request, reference: str) -> Response:
        require_cluster_admin(request.user)
        host = self.get_object()
        self.act(host.name, signed_in(request))
        return Response(self.get_serializer(queries.find_host(host.name)).data)


class HostDrain(_HostAction):
    """Start no new ranks on this host: elastic ranks move off live, fixed-size jobs finish."""

    act = staticmethod(actions.drain_host)


class HostResume(_HostAction):
    """Take a draining host back into service."""

    act = staticmethod(actions.resume_host)


class HostRestore(_HostAction):
    """Put a removed host back into the lists."""

    act = staticmethod(actions.restore_host)

    def get_object(self) -> Any:
        return existing(queries.find_removed_host(self.kwargs["reference"]), "removed host")


class SlotList(ListAPIView[Slot]):
    serializer_class = SlotOutput
    pagination_class = Pages

    def get_queryset(self) -> Any:
        return queries.slots()


class SlotReturn(GenericAPIView[Slot]):
    """Offer a GPU again that a fault has taken out of service, once a test of it has passed."""

    serializer_class = SlotOutput

    @extend_schema(request=None, responses=SlotOutput)
    def post(self, request: Request, slot: int) -> Response:
        require_cluster_admin(request.user)
        row = existing(queries.slots().filter(pk=slot).first(), "slot")
        return_slot(row, signed_in(request))
        return Response(SlotOutput(queries.slots().get(pk=slot)).data)


# --- resource groups --------------------------------------------------------------------------------------------------


class _ResourceGroupRule(StrictSerializer):
    slot_rule = serializers.CharField(
        max_length=1000, default="ngpus", help_text="Formula, for example `ngpus` or `ncpus*2`."
    )
    selection = serializers.ChoiceField(ResourceGroup.Selection.choices, default=ResourceGroup.Selection.DYNAMIC)
    description = serializers.CharField(max_length=200, default="", allow_blank=True)
    requirement = serializers.CharField(
        max_length=1000,
        default="",
        allow_blank=True,
        help_text="Dynamic only, for example `ngpus > 0`; empty: every host.",
    )
    hosts = serializers.ListField(
        child=serializers.CharField(max_length=64),
        default=list,
        max_length=10_000,
        help_text="Names of hosts; static only.",
    )


class ResourceGroupInput(_ResourceGroupRule):
    name = serializers.CharField(max_length=10_000, trim_whitespace=False)
    kind = serializers.ChoiceField(ResourceGroup.Kind.choices, default=ResourceGroup.Kind.GPU)


class ResourceGroupChange(_ResourceGroupRule):
    """Fields that can be changed; omitted ones stay."""


class ResourceGroupOutput(serializers.ModelSerializer[ResourceGroup]):
    hosts: serializers.ManyRelatedField = serializers.SlugRelatedField(  # type: ignore[assignment]
        "name", many=True, read_only=True
    )

    class Meta:
        model = ResourceGroup
        fields = ["id", "name", "description", "kind", "slot_rule", "selection", "requirement", "hosts", "created_at"]


class ResourceGroupDetailOutput(ResourceGroupOutput):
    capacity = serializers.SerializerMethodField(help_text="GPUs that it offers now, and that fleets may add.")
    largest_host = serializers.SerializerMethodField(help_text="GPUs of the host that offers most.")

    class Meta(ResourceGroupOutput.Meta):
        fields = [*ResourceGroupOutput.Meta.fields, "capacity", "largest_host"]

    def get_capacity(self, group: ResourceGroup) -> int:
        return queries.capacity(group)

    def get_largest_host(self, group: ResourceGroup) -> int:
        return queries.largest_host(group)


class ResourceGroupList(ListAPIView[ResourceGroup]):
    serializer_class = ResourceGroupOutput
    pagination_class = NamedPages

    def get_queryset(self) -> Any:
        return queries.resource_groups()

    @extend_schema(request=ResourceGroupInput, responses={201: ResourceGroupOutput})
    def post(self, request: Request) -> Response:
        require_cluster_admin(request.user)
        spec = actions.ResourceGroupSpec(**validated(ResourceGroupInput, request.data))
        group = actions.create_resource_group(spec, signed_in(request))
        return Response(ResourceGroupOutput(group).data, status=201)


class ResourceGroupDetail(RetrieveAPIView[ResourceGroup]):
    serializer_class = ResourceGroupDetailOutput
    has_etag = True

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self._response(self.get_object())

    def get_object(self) -> Any:
        return existing(queries.find_resource_group(self.kwargs["reference"]), "resource group")

    @extend_schema(request=ResourceGroupChange, responses=ResourceGroupOutput)
    def patch(self, request: Request, reference: str) -> Response:
        """Change the given fields. Trainings move off slots that leave the group; its name and kind stay."""
        require_cluster_admin(request.user)
        group = self.get_object()
        given = ResourceGroupChange(data=request.data, partial=True)
        given.is_valid(raise_exception=True)
        # Fields that are not given are those of this moment: another change of them meanwhile stays.
        read = actions.spec_of(group)
        others = {name: value for name, value in actions.changeable_values(read).items() if name not in request.data}
        seen = replace(seen_in(request), before=others)
        actions.change_resource_group(group, replace(read, **given.validated_data), signed_in(request), seen=seen)
        return self._response(existing(queries.find_resource_group(group.pk), "resource group"))

    def _response(self, group: ResourceGroup) -> Response:
        values = actions.changeable_values(actions.spec_of(group))
        return with_etag(Response(ResourceGroupDetailOutput(group).data), values)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, reference: str) -> Response:
        """Delete the group. Refused while an instance group uses it."""
        require_cluster_admin(request.user)
        actions.delete_resource_group(self.get_object(), signed_in(request))
        return Response(status=204)


# --- join tokens ------------------------------------------------------------------------------------------------------


class JoinTokenInput(StrictSerializer):
    hosts = serializers.IntegerField(help_text="Number of machines that may use the token.")
    hours = serializers.FloatField(default=24.0, help_text="Hours for which the token is valid.")
    names = serializers.ListField(
        child=serializers.CharField(max_length=64),
        default=list,
        help_text="Names of the hosts that may use the token; `*` stands for any characters. Empty: any name.",
    )
    networks = serializers.ListField(
        child=serializers.CharField(max_length=64),
        default=list,
        help_text="Networks and addresses from which it may be used, such as `10.1.0.0/16`. Empty: any address.",
    )


class JoinTokenOutput(serializers.ModelSerializer[JoinToken]):
    class Meta:
        model = JoinToken
        fields = ["id", "hosts_left", "expires_at", "names", "networks", "created_by", "created_at"]


class JoinTokenMade(JoinTokenOutput):
    token = serializers.CharField(help_text="The token. It is shown only now.")

    class Meta(JoinTokenOutput.Meta):
        fields = [*JoinTokenOutput.Meta.fields, "token"]


class JoinInput(StrictSerializer):
    token = serializers.CharField(max_length=200)
    host = serializers.CharField(max_length=200, help_text="Name of the new host.")


JoinOutput = output_of(Invitation, "JoinOutput")


class JoinTokenList(ListAPIView[JoinToken]):
    """List tokens with which hosts can still join."""

    serializer_class = JoinTokenOutput
    pagination_class = Pages
    refuses_with = (403,)

    def get_queryset(self) -> Any:
        require_cluster_admin(signed_in(self.request))
        return JoinToken.objects.all()

    @extend_schema(request=JoinTokenInput, responses={201: JoinTokenMade})
    def post(self, request: Request) -> Response:
        """Create a token with which machines join."""
        require_cluster_admin(signed_in(request))
        token, row = create_join_token(signed_in(request), **validated(JoinTokenInput, request.data))
        return Response({**JoinTokenOutput(row).data, "token": token}, status=201)


class JoinTokenDetail(GenericAPIView[JoinToken]):
    serializer_class = JoinTokenOutput

    @extend_schema(responses={204: OpenApiResponse(description="The token is revoked.")})
    def delete(self, request: Request, token: int) -> Response:
        require_cluster_admin(signed_in(request))
        withdraw_join_token(signed_in(request), token)
        return Response(status=204)


class Join(GenericAPIView[Any]):
    """Exchange a join token for the configuration of an executor. The token is the only credential."""

    serializer_class = JoinOutput
    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []

    @extend_schema(
        request=JoinInput,
        responses={201: JoinOutput},
        parameters=[
            OpenApiParameter(
                "broker_user",
                enum=["own", "shared"],
                description="Whether the executor can have a user of the broker for itself; former ones cannot.",
            )
        ],
    )
    def post(self, request: Request) -> Response:
        given = validated(JoinInput, request.data)
        own_user = request.query_params.get("broker_user") == "own"
        return Response(JoinOutput(redeem(**given, address=address_of(request), own_user=own_user)).data, status=201)


urlpatterns = [
    path("hosts/", HostList.as_view(), name="hosts"),
    path("hosts/<str:reference>/", HostDetail.as_view(), name="host"),
    path("hosts/<str:reference>/drain/", HostDrain.as_view(), name="host-drain"),
    path("hosts/<str:reference>/resume/", HostResume.as_view(), name="host-resume"),
    path("hosts/<str:reference>/restore/", HostRestore.as_view(), name="host-restore"),
    path("join-tokens/", JoinTokenList.as_view(), name="join-tokens"),
    path("join-tokens/<int:token>/", JoinTokenDetail.as_view(), name="join-token"),
    path("join/", Join.as_view(), name="join"),
    path("slots/", SlotList.as_view(), name="slots"),
    path("slots/<int:slot>/return/", SlotReturn.as_view(), name="slot-return"),
    path("resource-groups/", ResourceGroupList.as_view(), name="resource-groups"),
    path("resource-groups/<str:reference>/", ResourceGroupDetail.as_view(), name="resource-group"),
]
