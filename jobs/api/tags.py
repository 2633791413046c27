"""`/api/v1/jobs/<job>/tags/`: changes of a job's tags."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from core.rest import StrictSerializer, signed_in, validated
from jobs.actions.tags import change_tags, parsed_tag_change
from jobs.api.serializers import TagsField
from jobs.api.views import JobView
from jobs.queries.serializers import JobOutput

__all__ = ["JobTags"]


class TagChangeInput(StrictSerializer):
    add = TagsField(help_text="Words without spaces; stored in lower case.")
    remove = TagsField(help_text="Missing tags are ignored.")


class JobTags(JobView):
    @extend_schema(request=TagChangeInput, responses=JobOutput)
    def post(self, request: Request, job: int) -> Response:
        """Add and remove tags. Idempotent."""
        wanted = parsed_tag_change(**validated(TagChangeInput, request.data))
        self.get_object()
        change_tags(job, wanted, signed_in(request).get_username())
        return Response(JobOutput(self.get_object()).data)
