"""Pages of reports."""

from collections.abc import Callable, Collection
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core.edit_forms import seen_field
from core.errors import NotFound, UserError
from core.keyset import Order
from core.pages import carried_out, login_user, or_404, page_of, say
from core.roles import may_change, may_edit
from core.shown_once import redirect_showing, shown_once
from core.text import whole
from core.visibility import Readers
from insights.comparison import HEADLINES
from reports import actions, links
from reports.figures import figure_choices, jobs_of
from reports.forms import AddForm, ShareForm, TextForm, TitleForm
from reports.mentions import mentions_text
from reports.models import Report, ReportBlock, ShareLink
from reports.queries import ends_at, mentions_of, open_links, own_reports, reports
from reports.rendering import COLUMNS, block_views

__all__ = [
    "report_add",
    "report_block_move",
    "report_block_remove",
    "report_block_text",
    "report_delete",
    "report_detail",
    "report_edit",
    "report_link_withdraw",
    "report_list",
    "report_readers",
    "report_share",
    "report_text_add",
]

_CRUMB = ("Reports", "/reports/")
_MAX_OFFERED = 100
_DEFAULT_DAYS = 7
#: Figures that the form selects by default.
_DEFAULT_FIGURES = frozenset((*(f"chart:{title}" for title in HEADLINES), "table:summary", "table:results"))
#: Beginnings of the keys of figures about studies.
_OF_STUDIES = ("study:", "trials:")


@require_safe
def report_list(request: HttpRequest) -> HttpResponse:
    page = page_of(request, reports(request.user), Order("id", descending=True, parse=whole))
    context = {"section": "reports", "crumbs": [("Reports", None)], "page": page}
    return render(request, "reports/list.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def report_add(request: HttpRequest) -> HttpResponse:
    """Add figures of the trainings `?jobs=1,2` to a report or a new one. Without trainings, make an empty report."""
    user, asked = login_user(request), request.GET.get("jobs", "")
    try:
        jobs = jobs_of(user, asked) if asked else []
    except NotFound as error:
        raise Http404 from error
    choices = figure_choices(jobs) if jobs else []
    form = AddForm(
        list(own_reports(user)[:_MAX_OFFERED]),
        choices,
        request.POST or None,
        figures=[one.key for one in choices if one.key in _DEFAULT_FIGURES or one.key.startswith(_OF_STUDIES)],
        title=" and ".join(job.name for job in jobs[:2])[: actions.MAX_TITLE],
    )

    @transaction.atomic
    def add() -> tuple[Report, int | None]:
        given = form.cleaned_data
        report_id = actions.make_report(user, given["title"]).pk if form.wants_new else int(given["report"])
        first = actions.add_text(user, report_id, given["text"]).pk if given["text"].strip() else None
        if jobs and (given["figures"] or first is None):
            made = actions.add_figures(user, report_id, jobs, given["figures"])
            first = first or made[0].pk
        return or_404(Report.objects.filter(pk=report_id).first()), first

    if made := carried_out(request, form, add):
        report, first = made
        say(request, f"Added to the report “{report.title}”." if jobs else "The report was created.")
        return redirect(_edit_address(report, first))
    context = {
        "section": "reports",
        "crumbs": [_CRUMB, ("Add to a report" if jobs else "New report", None)],
        "jobs": jobs,
        "form": form,
    }
    return render(request, "reports/add.html", context, status=400 if form.errors else 200)


@require_safe
def report_detail(request: HttpRequest, report_id: int) -> HttpResponse:
    return _detail(request, _report(request, report_id))


@require_http_methods(["GET", "HEAD", "POST"])
def report_edit(request: HttpRequest, report_id: int) -> HttpResponse:
    """Show the report with its forms; POST changes the title. `?below=12`: place the new text below that block."""
    report = _report(request, report_id)
    form = TitleForm(request.POST or None, initial={"title": report.title})

    def rename() -> Report:
        return actions.rename_report(
            login_user(request), report.pk, form.cleaned_data["title"], seen_field(request.POST, "title")
        )

    if carried_out(request, form, rename):
        say(request, "The title was changed.")
        return redirect(_edit_address(report))
    return _edit(request, report, title_form=form)


@require_POST
def report_text_add(request: HttpRequest, report_id: int) -> HttpResponse:
    """Add `text` below the block `below`, or at the end."""
    report, form = _report(request, report_id), TextForm(request.POST)
    below = whole(request.POST.get("below", ""))

    def add() -> ReportBlock:
        return actions.add_text(login_user(request), report.pk, form.cleaned_data["text"], below=below)

    made = carried_out(request, form, add)
    if made is None:
        return _edit(request, report, text_form=form, below=below)
    return redirect(_edit_address(report, made.pk))


@require_POST
def report_block_text(request: HttpRequest, report_id: int, block_id: int) -> HttpResponse:
    """Change a text; `after` is the number of edits when the form was loaded."""
    report, form = _report(request, report_id), TextForm(request.POST)
    after = whole(request.POST.get("after", ""))

    def change() -> ReportBlock:
        return actions.change_text(login_user(request), report.pk, block_id, form.cleaned_data["text"], after=after)

    if carried_out(request, form, change) is None:
        return _edit(request, report, block_form=form, block=block_id)
    return redirect(_edit_address(report, block_id))


@require_POST
def report_block_move(request: HttpRequest, report_id: int, block_id: int) -> HttpResponse:
    """Move a block to `place`, counted from 0 at the top."""
    place = whole(request.POST.get("place", ""), most=10**6) or 0

    def move() -> None:
        actions.move_block(login_user(request), report_id, block_id, place)

    return _after(request, report_id, move, "", block_id)


@require_POST
def report_block_remove(request: HttpRequest, report_id: int, block_id: int) -> HttpResponse:
    def remove() -> None:
        actions.remove_block(login_user(request), report_id, block_id)

    return _after(request, report_id, remove, "The block was removed.")


@require_POST
def report_readers(request: HttpRequest, report_id: int) -> HttpResponse:
    report = _report(request, report_id)
    try:
        seen = seen_field(request.POST, "readers")
        actions.set_readers(login_user(request), report.pk, request.POST.get("readers", ""), seen)
    except UserError as error:
        messages.error(request, error.message)
    else:
        say(request, "The readers of the report were changed.")
    return redirect(f"{reverse('reports:detail', args=[report.pk])}#sharing")


@require_POST
def report_share(request: HttpRequest, report_id: int) -> HttpResponse:
    """Make a public link, which the report's page shows once."""
    report, form = _report(request, report_id), ShareForm(request.POST)

    def share() -> links.NewLink:
        given = form.cleaned_data
        return links.share(login_user(request), report.pk, given["days"], confirmed=given["confirmed"])

    made = carried_out(request, form, share)
    if made is None:
        return _detail(request, report, share_form=form)
    page = reverse("reports:detail", args=[report.pk])
    return redirect_showing(request, page, id=made.row.pk, path=made.path)


@require_POST
def report_link_withdraw(request: HttpRequest, report_id: int, link_id: int) -> HttpResponse:
    report = _report(request, report_id)
    try:
        links.withdraw(login_user(request), report.pk, link_id)
    except NotFound as error:
        raise Http404 from error
    say(request, "The link was revoked and no longer opens the report.")
    return redirect(f"{reverse('reports:detail', args=[report.pk])}#sharing")


@require_POST
def report_delete(request: HttpRequest, report_id: int) -> HttpResponse:
    report = _report(request, report_id)
    actions.delete_report(login_user(request), report.pk)
    say(request, f"The report “{report.title}” was deleted with its links.")
    return redirect("reports:list")


def _report(request: HttpRequest, report_id: int) -> Report:
    return or_404(reports(request.user).filter(pk=report_id).first())


def _edit_address(report: Report, block_id: int | None = None) -> str:
    address = reverse("reports:edit", args=[report.pk])
    return f"{address}#block-{block_id}" if block_id else address


def _after(
    request: HttpRequest, report_id: int, action: Callable[[], object], success: str, block_id: int | None = None
) -> HttpResponse:
    """Run the action, report its success, and redirect to the block on the edit page."""
    report = _report(request, report_id)
    try:
        action()
    except NotFound as error:
        raise Http404 from error
    if success:
        say(request, success)
    return redirect(_edit_address(report, block_id))


def _may_edit(request: HttpRequest, report: Report) -> bool:
    return may_edit(request.user, report) and may_change(request.user)


def _detail(request: HttpRequest, report: Report, *, share_form: Form | None = None) -> HttpResponse:
    blocks, may = list(report.blocks.order_by("place")), _may_edit(request, report)
    shown = block_views(blocks, request.user)
    context: dict[str, Any] = {
        "section": "reports",
        "crumbs": [_CRUMB, (report.title, None)],
        "report": report,
        **_figures(shown),
        "may_edit": may,
        "readers": Readers.choices,
    }
    if may:
        mentions = mentions_of(report, blocks) if links.max_days() else []
        still_open = set(open_links(timezone.now()).filter(report=report))
        context |= {
            "address": request.build_absolute_uri(reverse("reports:detail", args=[report.pk])),
            "links": [(link, ends_at(link), link in still_open) for link in report.links.all()],
            "max_days": links.max_days(),
            "mentions": mentions_text(mentions),
            "share_form": share_form or ShareForm(initial={"days": min(_DEFAULT_DAYS, links.max_days())}),
            "shown_link": _shown_link(request, still_open),
        }
    is_invalid = share_form is not None and share_form.errors
    return render(request, "reports/detail.html", context, status=400 if is_invalid else 200)


def _shown_link(request: HttpRequest, still_open: Collection[ShareLink]) -> dict[str, Any] | None:
    """Return the public link that the user has just made, unless it is withdrawn."""
    shown = shown_once(request)
    row = next((link for link in still_open if shown and link.pk == shown["id"]), None)
    return {**shown, "row": row, "address": request.build_absolute_uri(shown["path"])} if shown and row else None


def _figures(shown: list[Any]) -> dict[str, Any]:
    charts = {each.name: each.figure for each in shown if each.figure}
    return {"shown": shown, "charts": charts, "columns": COLUMNS}


def _edit(
    request: HttpRequest,
    report: Report,
    *,
    title_form: Form | None = None,
    text_form: Form | None = None,
    below: int | None = None,
    block_form: Form | None = None,
    block: int | None = None,
) -> HttpResponse:
    if not may_edit(request.user, report):
        raise Http404
    shown = block_views(list(report.blocks.order_by("place")), request.user)
    below = below if below is not None else whole(request.GET.get("below", ""))
    context = {
        "section": "reports",
        "crumbs": [_CRUMB, (report.title, reverse("reports:detail", args=[report.pk])), ("Edit", None)],
        "report": report,
        **_figures(shown),
        "title_form": title_form or TitleForm(initial={"title": report.title}),
        "text_form": text_form or TextForm(),
        "below": below,
        "is_below": any(each.block.pk == below for each in shown),
        "block_form": block_form,
        "edited": block,
    }
    forms = (title_form, text_form, block_form)
    is_invalid = any(form is not None and form.errors for form in forms)
    return render(request, "reports/edit.html", context, status=400 if is_invalid else 200)
