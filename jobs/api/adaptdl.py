"""`/api/v1/jobs/adaptdl/`: submission of an AdaptDLJob."""

from typing import IO, Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import field_error
from core.rest import ReferenceField, StrictJSONParser, signed_in, validated
from jobs.actions.adaptdl import MANIFEST_CHARACTERS, Manifest, read_manifest, submit_manifest
from jobs.actions.idempotency import HEADER, once
from jobs.api.serializers import JobInLine, SubmissionInput
from jobs.api.views import IDEMPOTENCY_KEY, sent_again, without_source
from jobs.models import Job
from jobs.queries.queue_position import with_places

__all__ = ["AdaptDLJob", "ManifestInput", "ManifestParser", "manifest_of"]


class ManifestParser(BaseParser):
    """Parser of a request whose body is the manifest and whose query string has the other fields."""

    media_type = "application/yaml"

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> dict[str, Any]:
        try:
            manifest = stream.read(4 * MANIFEST_CHARACTERS + 1).decode()
        except UnicodeDecodeError as error:
            raise field_error("manifest", "The file is not UTF-8 text: save it as UTF-8.") from error
        return {**parser_context["request"].query_params.dict(), "manifest": manifest}


class ManifestInput(SubmissionInput):
    manifest = serializers.CharField(
        max_length=MANIFEST_CHARACTERS, trim_whitespace=False, help_text="An AdaptDLJob in YAML."
    )
    model = ReferenceField(help_text="The model whose code it runs: images are not used.")
    instance_group = ReferenceField()
    name = serializers.CharField(
        default="", allow_blank=True, max_length=255, help_text="Name of the training; default: the manifest's."
    )
    arguments = serializers.ListField(
        child=serializers.CharField(allow_blank=True, trim_whitespace=False, max_length=MANIFEST_CHARACTERS),
        default=None, allow_null=True, max_length=1000,
        help_text="Words of the script instead of the container's `args`.",
    )  # fmt: skip


def manifest_of(given: dict[str, Any]) -> Manifest:
    """Take the fields of the manifest out of the validated input, and return it."""
    return read_manifest(given.pop("manifest"), name=given.pop("name"), arguments=given.pop("arguments"))


class AdaptDLJob(GenericAPIView[Job]):
    serializer_class = JobInLine
    parser_classes = [ManifestParser, StrictJSONParser]

    @extend_schema(
        request={"application/json": ManifestInput, "application/yaml": {"type": "string"}},
        responses={201: JobInLine},
        parameters=[IDEMPOTENCY_KEY],
    )
    def post(self, request: Request) -> Response:
        """Submit an AdaptDLJob: its command, environment, minReplicas, maxReplicas and preemptible.

        With `Content-Type: application/yaml` the body is the manifest and the query string has the other fields. An
        event of the training names the fields without effect (images, volumes, node selectors).
        """
        given, user = validated(ManifestInput, request.data), signed_in(request)
        manifest = manifest_of(given)
        made, is_new = once(
            user,
            request.headers.get(HEADER),
            {"submit": without_source(request.data)},
            lambda then: submit_manifest(manifest, given, user, then),
        )
        [job] = with_places([made])
        return Response(JobInLine(job).data, status=201, headers=sent_again(is_new))
