"""Why a job is slow: its time by cause, and the stacks of its ranks."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from core.dataclass_serializers import output_of
from core.rest import signed_in
from insights.stacks.answers import Stacks, StalledStacks, stacks_of
from insights.stacks.folding import StackGroup
from insights.step_time.answer import WhySlow, why_slow
from jobs.actions.stacks import request_stacks
from jobs.api.views import JobView

__all__ = ["JobStacks", "JobTime"]

_Group = output_of(StackGroup)
StacksOutput = output_of(
    Stacks,
    groups=_Group(many=True, help_text="Ranks by equal stacks of their main threads, the largest group first."),
    stalled=output_of(StalledStacks, groups=_Group(many=True))(allow_null=True),
)


WhySlowOutput = output_of(WhySlow)


class JobTime(JobView):
    @extend_schema(responses=WhySlowOutput)
    def get(self, request: Request, job: int) -> Response:
        """Divide the time of the job's ranks by cause: data, computing, communication, stragglers and others."""
        return Response(WhySlowOutput(why_slow(self.get_object())).data)


class JobStacks(JobView):
    @extend_schema(responses=StacksOutput)
    def get(self, request: Request, job: int) -> Response:
        """Return the stacks of all ranks that were taken last, and those that a stall has left."""
        return Response(StacksOutput(stacks_of(self.get_object())).data)

    @extend_schema(request=None, responses={202: StacksOutput})
    def post(self, request: Request, job: int) -> Response:
        """Take the stacks of all ranks now. The hosts answer within seconds: GET returns what is there."""
        self.get_object()
        request_stacks(job, signed_in(request).get_username())
        return Response(StacksOutput(stacks_of(self.get_object())).data, status=202)
