"""REST address `/api/v1/jobs/{id}/stream/`: changes of a job as server-sent events."""

from collections.abc import Iterator
from typing import Any, Protocol

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request

from core.errors import field_error
from core.rest import StrictJSONRenderer, signed_in, validated
from jobs.api.logs import rank_field
from jobs.api.views import JobView
from jobs.files.logs import STREAMS
from webapp.job_streams.following import Following, Place, place_of

__all__ = ["MEDIA_TYPE", "STREAMS_KEY", "JobStream", "Streams"]

MEDIA_TYPE = "text/event-stream"
#: Key of the sender of streams in an ASGI scope.
STREAMS_KEY = "tidepool.streams"


class Streams(Protocol):
    def take(self, following: Following) -> None:
        """Send the events once this request is answered. Raises TooMany if there are too many streams."""


class StreamQuery(serializers.Serializer[Any]):
    rank = rank_field("rank 0")
    stream = serializers.ChoiceField(STREAMS, default="stdout")
    logs = serializers.BooleanField(default=True, help_text="Whether to send lines of the log.")
    metrics = serializers.BooleanField(default=True, help_text="Whether to send points of the metrics.")


class _EventRenderer(StrictJSONRenderer):
    """Renderer for clients that accept only events; errors are sent to them as JSON."""

    media_type = MEDIA_TYPE
    format = "events"


class JobStream(JobView):
    renderer_classes = [StrictJSONRenderer, _EventRenderer]

    @extend_schema(
        parameters=[
            StreamQuery,
            OpenApiParameter("Last-Event-ID", str, OpenApiParameter.HEADER, description="Continue after this event."),
        ],
        responses={(200, MEDIA_TYPE): OpenApiTypes.STR},
    )
    def get(self, request: Request, job: int) -> HttpResponseBase:
        """Follow the job to its end with server-sent events.

        `state`: the job, at first and after each change. `log`: `attempt`, `rank` and `lines`, without gaps or repeats;
        a new attempt continues in another log. `metrics`: `points`; a step that is repeated after a restart is not sent
        again. `end`: the job is finished, and everything has been sent. The connection ends after a minute or sooner:
        send the `id` of the last event as `Last-Event-ID`, as browsers do.
        """
        query = validated(StreamQuery, request.query_params)
        text = request.headers.get("Last-Event-ID", "")
        place = place_of(text) if text else Place()
        if place is None:
            raise field_error("Last-Event-ID", "This is not the id of an event: omit it to read from the start.")
        following = Following(signed_in(request), self.get_object().pk, place, **query)
        streams: Streams | None = getattr(request._request, "scope", {}).get(STREAMS_KEY)
        if streams is not None:
            streams.take(following)
            response: HttpResponseBase = HttpResponse(content_type=MEDIA_TYPE)
        else:  # WSGI, where a stream would block a thread: send what is available; the client reconnects
            response = StreamingHttpResponse(_present(following), content_type=MEDIA_TYPE)
        response["Cache-Control"] = "private, no-store, no-transform"
        response["X-Accel-Buffering"] = "no"
        return response


def _present(following: Following) -> Iterator[str]:
    events = following.look()
    while following.has_more:
        events += following.read()
        for event in events:
            yield event.as_text()
        events = []
