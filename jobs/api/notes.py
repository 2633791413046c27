"""`/api/v1/jobs/<job>/notes/`: the note of a job, and its history."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from core.rest import NumberedPages, StrictSerializer, signed_in, validated
from jobs.actions.notes import write_note
from jobs.api.views import JobView
from jobs.models import Note

__all__ = ["JobNotes"]

_BIGGEST = 2**31 - 1


class NoteInput(StrictSerializer):
    text = serializers.CharField(
        max_length=100_000, allow_blank=True, trim_whitespace=False, help_text="Markdown; empty: delete the note."
    )
    after = serializers.IntegerField(
        default=None,
        allow_null=True,
        min_value=0,
        max_value=_BIGGEST,
        help_text="Number of the version that you have seen, 0 for none; a newer one is refused with 409.",
    )


class NoteOutput(serializers.ModelSerializer[Note]):
    class Meta:
        model = Note
        fields = ["number", "text", "author", "at"]


class JobNotes(JobView, ListAPIView[Any]):
    """Versions of the job's note, the newest first: it is shown, the others are its history."""

    serializer_class = NoteOutput
    pagination_class = NumberedPages
    queryset = Note.objects.none()

    def get_queryset(self) -> Any:
        return Note.objects.filter(job=self.get_object())

    @extend_schema(request=NoteInput, responses={201: NoteOutput, 204: None})
    def post(self, request: Request, job: int) -> Response:
        """Store a new version of the note; earlier ones stay in its history. 204: no note before, and none given."""
        given = validated(NoteInput, request.data)
        self.get_object()
        note = write_note(job, given["text"], signed_in(request).get_username(), after=given["after"])
        return Response(NoteOutput(note).data, status=201) if note else Response(status=204)
