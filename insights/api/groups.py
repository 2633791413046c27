"""`/api/v1/instance-groups/NAME/preview/`: the effects of a change of an instance group."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.dataclass_serializers import output_of
from core.rest import signed_in, validated
from insights.change_effects import Effect
from insights.group_preview import GroupPreview, preview_group_change
from jobs.api.groups import ChangeInput, given_parameters, group_to_see, joined_terms
from jobs.models import InstanceGroup

__all__ = ["InstanceGroupPreview"]

_EFFECT_KIND = serializers.ChoiceField(["stops", "shrinks", "waits", "gains", "starts"])
GroupPreviewOutput = output_of(
    GroupPreview, effects=output_of(Effect, "GroupEffectOutput", what=_EFFECT_KIND)(many=True)
)


class InstanceGroupPreview(GenericAPIView[InstanceGroup]):
    """Predict the effects of a change on the trainings. Nothing is written."""

    serializer_class = GroupPreviewOutput

    @extend_schema(request=ChangeInput, responses=GroupPreviewOutput)
    def post(self, request: Request, reference: str) -> Response:
        group, values = group_to_see(request, reference), validated(ChangeInput, request.data)
        terms = joined_terms(values, given_parameters(values))
        return Response(GroupPreviewOutput(preview_group_change(group, terms, signed_in(request))).data)
