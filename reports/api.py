"""`/api/v1/reports/…`: reports that the user may read, their blocks and public links."""

from typing import Any

from django.urls import path
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response

from core.dataclass_serializers import output_of
from core.errors import field_error
from core.keyset import Order
from core.rest import Pages, StrictSerializer, signed_in, validated
from core.text import whole
from core.visibility import Readers
from reports import actions, links
from reports.figures import Choice, figure_choices, jobs_of
from reports.models import MAX_REPORT_TEXT, Report, ReportBlock, ShareLink
from reports.queries import ends_at, find_report, reports

__all__ = [
    "ReportBlockDetail",
    "ReportBlocks",
    "ReportDetail",
    "ReportFigures",
    "ReportLinkDetail",
    "ReportLinks",
    "ReportList",
    "urlpatterns",
]

_DELETED = {204: OpenApiResponse(description="Deleted.")}
_MAX_INTEGER = 2**31 - 1
_JOBS = "Ids of at most 8 trainings that you may see, such as 1,2,3."


class ReportInput(StrictSerializer):
    title = serializers.CharField(max_length=10 * actions.MAX_TITLE, help_text="At most 200 characters.")
    readers = serializers.ChoiceField(
        Readers.choices,
        default=Readers.OWNER,
        help_text="Users who may read the report, besides its owner and administrators.",
    )


class ReportChange(StrictSerializer):
    title = serializers.CharField(max_length=10 * actions.MAX_TITLE, required=False)
    readers = serializers.ChoiceField(Readers.choices, required=False)


class ReportOutput(serializers.ModelSerializer[Report]):
    owner = serializers.CharField(source="owner.username")
    blocks = serializers.IntegerField(source="block_count", help_text="Number of blocks.")
    is_public = serializers.BooleanField(help_text="Whether a public link currently opens the report.")

    class Meta:
        model = Report
        fields = ["id", "title", "owner", "readers", "blocks", "is_public", "created_at", "changed_at"]


class BlockOutput(serializers.ModelSerializer[ReportBlock]):
    sources = serializers.ListField(help_text="Trainings of the block: [id, name when it was frozen].")
    data = serializers.DictField(  # type: ignore[assignment]
        help_text="A chart has a title, and lines with points [step, seconds since the start, value, epoch]. A table "
        "has rows [name, a value for each training, whether they differ]."
    )
    edits = serializers.IntegerField(help_text="Number of changes of the text.")

    class Meta:
        model = ReportBlock
        fields = ["id", "place", "kind", "title", "text", "data", "sources", "edits", "added_at"]


class BlocksInput(StrictSerializer):
    text = serializers.CharField(
        required=False,
        max_length=5 * MAX_REPORT_TEXT,
        trim_whitespace=False,
        help_text="Markdown. Send either a text, or jobs and figures.",
    )
    jobs = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=2**63 - 1), required=False, max_length=100
    )
    figures = serializers.ListField(
        child=serializers.CharField(max_length=300),
        required=False,
        max_length=100,
        help_text="Keys from reports/figures/.",
    )
    below = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=2**63 - 1,
        help_text="Block above a new text. Default: the last.",
    )


class BlockChange(StrictSerializer):
    text = serializers.CharField(required=False, max_length=5 * MAX_REPORT_TEXT, trim_whitespace=False)
    after = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=_MAX_INTEGER,
        help_text="Expected value of `edits`; 409 if the text has changed since.",
    )
    place = serializers.IntegerField(required=False, min_value=0, max_value=_MAX_INTEGER, help_text="Position, from 0.")


class LinkInput(StrictSerializer):
    days = serializers.IntegerField(min_value=1, max_value=_MAX_INTEGER)
    confirmed = serializers.BooleanField(
        default=False, help_text="Required (else 409) if the report names users, hosts or paths."
    )


class LinkOutput(serializers.ModelSerializer[ShareLink]):
    ends_at = serializers.SerializerMethodField()

    class Meta:
        model = ShareLink
        fields = ["id", "created_at", "ends_at", "withdrawn_at", "uses", "last_used_at"]

    def get_ends_at(self, link: ShareLink) -> str:
        return serializers.DateTimeField().to_representation(ends_at(link))


class NewLinkOutput(LinkOutput):
    address = serializers.CharField(help_text="Anyone with this address can read the report. It is shown only once.")

    class Meta(LinkOutput.Meta):
        fields = [*LinkOutput.Meta.fields, "address"]


class BlockPages(Pages):
    order = Order("place", parse=whole)


class ReportView(GenericAPIView[Any]):
    """Base of the views of one report."""

    refuses_with = (404,)

    def report(self) -> Report:
        return find_report(self.request.user, self.kwargs["report"])


class ReportList(ListAPIView[Report]):
    """Reports that the user may read, newest first."""

    serializer_class = ReportOutput
    pagination_class = Pages

    def get_queryset(self) -> Any:
        return reports(self.request.user)

    @extend_schema(request=ReportInput, responses={201: ReportOutput})
    def post(self, request: Request) -> Response:
        """Make an empty report."""
        made = actions.make_report(signed_in(request), **validated(ReportInput, request.data))
        return Response(ReportOutput(find_report(request.user, made.pk)).data, status=201)


class ReportFigures(GenericAPIView[Any]):
    """Figures of the given trainings that can be added to a report."""

    serializer_class = output_of(Choice, "ReportFigureOutput")
    pagination_class: type[BasePagination] | None = None

    @extend_schema(
        parameters=[OpenApiParameter("jobs", str, required=True, description=_JOBS)],
        responses=output_of(Choice, "ReportFigureOutput")(many=True),
    )
    def get(self, request: Request) -> Response:
        choices = figure_choices(jobs_of(request.user, request.query_params.get("jobs", "")))
        return Response(self.get_serializer(choices, many=True).data)


class ReportDetail(ReportView):
    serializer_class = ReportOutput

    def get(self, request: Request, report: int) -> Response:
        return Response(ReportOutput(self.report()).data)

    @extend_schema(request=ReportChange, responses=ReportOutput)
    def patch(self, request: Request, report: int) -> Response:
        """Change the title or the readers."""
        self.report()
        user, given = signed_in(request), validated(ReportChange, request.data)
        if "title" in given:
            actions.rename_report(user, report, given["title"])
        if "readers" in given:
            actions.set_readers(user, report, given["readers"])
        return Response(ReportOutput(self.report()).data)

    @extend_schema(responses=_DELETED)
    def delete(self, request: Request, report: int) -> Response:
        """Delete the report with its blocks and links."""
        actions.delete_report(signed_in(request), report)
        return Response(status=204)


class ReportBlocks(ReportView, ListAPIView[Any]):
    """Blocks of a report, from the top."""

    serializer_class = BlockOutput
    pagination_class = BlockPages
    queryset = ReportBlock.objects.none()

    def get_queryset(self) -> Any:
        return ReportBlock.objects.filter(report=self.report())

    @extend_schema(request=BlocksInput, responses={201: BlockOutput(many=True)})
    def post(self, request: Request, report: int) -> Response:
        """Add a text, or the present figures of trainings."""
        self.report()
        user, given = signed_in(request), validated(BlocksInput, request.data)
        if ("text" in given) == ("jobs" in given):
            raise field_error("text", "Send either a text, or jobs and figures.")
        if "text" in given:
            made = [actions.add_text(user, report, given["text"], below=given.get("below"))]
        else:
            jobs = jobs_of(user, ",".join(map(str, given["jobs"])))
            made = actions.add_figures(user, report, jobs, given.get("figures", []))
        return Response(BlockOutput(made, many=True).data, status=201)


class ReportBlockDetail(ReportView):
    serializer_class = BlockOutput

    @extend_schema(request=BlockChange, responses=BlockOutput)
    def patch(self, request: Request, report: int, block: int) -> Response:
        """Change the text of a block, or move the block."""
        self.report()
        user, given = signed_in(request), validated(BlockChange, request.data)
        if "text" in given:
            actions.change_text(user, report, block, given["text"], after=given.get("after"))
        if "place" in given:
            actions.move_block(user, report, block, given["place"])
        return Response(BlockOutput(actions.find_block(self.report(), block)).data)

    @extend_schema(responses=_DELETED)
    def delete(self, request: Request, report: int, block: int) -> Response:
        actions.remove_block(signed_in(request), report, block)
        return Response(status=204)


class ReportLinks(ReportView, ListAPIView[Any]):
    """Public links of a report, newest first, for its owner and administrators."""

    serializer_class = LinkOutput
    pagination_class = Pages
    queryset = ShareLink.objects.none()

    def get_queryset(self) -> Any:
        return ShareLink.objects.filter(report=actions.editable(signed_in(self.request), self.kwargs["report"]))

    @extend_schema(request=LinkInput, responses={201: NewLinkOutput})
    def post(self, request: Request, report: int) -> Response:
        """Make a public link, if the site allows it. Only this response contains its address."""
        self.report()
        made = links.share(signed_in(request), report, **validated(LinkInput, request.data))
        answer = {**LinkOutput(made.row).data, "address": request.build_absolute_uri(made.path)}
        return Response(answer, status=201, headers={"Cache-Control": "no-store"})


class ReportLinkDetail(ReportView):
    serializer_class = LinkOutput

    @extend_schema(responses=_DELETED)
    def delete(self, request: Request, report: int, link: int) -> Response:
        """Revoke the link, which stops working at once."""
        links.withdraw(signed_in(request), report, link)
        return Response(status=204)


urlpatterns = [
    path("reports/", ReportList.as_view(), name="reports"),
    path("reports/figures/", ReportFigures.as_view(), name="report-figures"),
    path("reports/<int:report>/", ReportDetail.as_view(), name="report"),
    path("reports/<int:report>/blocks/", ReportBlocks.as_view(), name="report-blocks"),
    path("reports/<int:report>/blocks/<int:block>/", ReportBlockDetail.as_view(), name="report-block"),
    path("reports/<int:report>/links/", ReportLinks.as_view(), name="report-links"),
    path("reports/<int:report>/links/<int:link>/", ReportLinkDetail.as_view(), name="report-link"),
]
