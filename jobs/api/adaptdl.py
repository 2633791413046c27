"""`/api/v1/jobs/adaptdl/`: submission of an AdaptDLJob."""

from typing import IO, Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from core.errors import field_error
from core.rest import ReferenceField, StrictJSONParser, StrictSerializer, signed_in, validated
from jobs.actions.adaptdl import MANIFEST_CHARACTERS, read_manifest, submit_manifest
from jobs.actions.idempotency import HEADER, once
from jobs.api.serializers import JobInLine
from jobs.api.views import IDEMPOTENCY_KEY, sent_again
from jobs.models import Job
from jobs.queries.queue_position import with_places

__all__ = ["AdaptDLJob"]


class ManifestParser(BaseParser):
    """Parser of a request whose body is the manifest and whose query string has the other fields."""

    media_type = "application/yaml"

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> dict[str, Any]:
        try:
            manifest = stream.read(4 * MANIFEST_CHARACTERS + 1).decode()
        except UnicodeDecodeError as error:
            raise field_error("manifest", "The file is not UTF-8 text: save it as UTF-8.") from error
        return {**parser_context["request"].query_params.dict(), "manifest": manifest}


class ManifestInput(StrictSerializer):
    manifest = serializers.CharField(
        max_length=MANIFEST_CHARACTERS, trim_whitespace=False, help_text="An AdaptDLJob in YAML."
    )
    model = ReferenceField(help_text="The model whose code it runs: images are not used.")
    model_version = serializers.IntegerField(
        default=None, allow_null=True, help_text="Version number; absent: the newest."
    )
    dataset = ReferenceField(default=None, allow_null=True, help_text="Leave it out if the script reads no dataset.")
    instance_group = ReferenceField()


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
        manifest = read_manifest(given.pop("manifest"))
        made, is_new = once(
            user,
            request.headers.get(HEADER),
            {"submit": dict(request.data)},
            lambda then: submit_manifest(manifest, given, user, then),
        )
        [job] = with_places([made])
        return Response(JobInLine(job).data, status=201, headers=sent_again(is_new))
