"""The pattern that parses the log of a plain script."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from core.rest import ObjectField, StrictSerializer, signed_in, validated
from jobs.actions.curves import PATTERN_HELP, change_log_pattern, try_log_pattern
from jobs.api.views import JobView
from jobs.queries.serializers import JobOutput, as_json

__all__ = ["JobLogPattern", "JobLogPatternTrial"]


class LogPatternInput(StrictSerializer):
    pattern = serializers.CharField(allow_blank=True, trim_whitespace=False, help_text=PATTERN_HELP)


class ReadLineOutput(serializers.Serializer[Any]):
    line = serializers.CharField()
    step = serializers.IntegerField()
    epoch = serializers.IntegerField()
    metrics = ObjectField()


class JobLogPattern(JobView):
    @extend_schema(request=LogPatternInput, responses=JobOutput)
    def put(self, request: Request, job: int) -> Response:
        """Parse the log again with this pattern; its curves start anew."""
        pattern = validated(LogPatternInput, request.data)["pattern"]
        change_log_pattern(self.get_object().pk, pattern, signed_in(request).get_username())
        return Response(JobOutput(self.get_object()).data)


class JobLogPatternTrial(JobView):
    @extend_schema(operation_id="jobs_log_pattern_try", request=LogPatternInput, responses=ReadLineOutput(many=True))
    def post(self, request: Request, job: int) -> Response:
        """Return the values that the pattern parses from the last lines of the log. Nothing is changed."""
        pattern = validated(LogPatternInput, request.data)["pattern"]
        return Response([as_json(ReadLineOutput, each) for each in try_log_pattern(self.get_object(), pattern)])
