"""The page of a public link: the report, and nothing else of the site."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.link_throttling import SHARE_LINK, count_wrong_guess
from core.errors import NotFound, UserError
from reports.links import LinkEnded, open_report
from reports.rendering import COLUMNS, block_views

__all__ = ["shared_report"]

#: Headers against caching, search engines, and leaking the address to linked pages.
_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Robots-Tag": "noindex, nofollow"}


@require_safe
def shared_report(request: HttpRequest, secret: str) -> HttpResponse:
    """Show the report, in the same way to everybody, logged in or not."""
    try:
        report = open_report(request, secret)
    except LinkEnded as error:
        response = _gone(request, error.message, 410)
    except NotFound as error:
        count_wrong_guess(request, SHARE_LINK)
        response = _gone(request, error.message, 404)
    except UserError as error:
        response = _gone(request, error.message, 429)
    else:
        shown = block_views(list(report.blocks.order_by("place")), None, request.get_host())
        charts = {each.name: each.figure for each in shown if each.figure}
        context = {"report": report, "shown": shown, "charts": charts, "columns": COLUMNS, "is_shared": True}
        response = render(request, "reports/shared.html", context)
    for name, value in _HEADERS.items():
        response[name] = value
    return response


def _gone(request: HttpRequest, sentence: str, status: int) -> HttpResponse:
    return render(request, "accounts/link_gone.html", {"sentence": sentence}, status=status)
