"""`/frameworks`: the frameworks of `/execs/frameworks` in the shape of forms."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from wmla.frameworks import FRAMEWORKS, FrameworkOutput, framework_as_json
from wmla.view import WmlaView

__all__ = ["UiFrameworks"]


class UiFrameworks(WmlaView):
    @extend_schema(
        parameters=[OpenApiParameter("backend", str, description="pytorch, the only one; absent: all.")],
        responses=FrameworkOutput(many=True),
    )
    def get(self, request: Request) -> Response:
        backend = request.query_params.get("backend", "").lower()
        rows = [framework_as_json(framework) for framework in FRAMEWORKS]
        return Response([row for row in rows if backend in ("", row["backend"])])
