"""The page of the audit, for administrators of the cluster."""

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from core.audit.listing import AuditFilter, audit_page, changed_values, kinds
from core.errors import UserError
from core.keyset import KeysetPage
from core.models import AuditEntry
from core.pages import PAGE_SIZE
from core.roles import require_cluster_admin

__all__ = ["audit"]

PERIODS = [
    ("", "Any time"),
    ("24h", "Last 24 hours"),
    ("7d", "Last 7 days"),
    ("30d", "Last 30 days"),
    ("365d", "Last year"),
]
_LABELS = {
    "search": "Name or action",
    "actor": "Who",
    "kind": "What",
    "within": "When",
    "since": "From",
    "until": "Before",
}
_MOST_SUGGESTIONS = 500
#: Kind of object -> address of its page; other kinds have no page.
_ADDRESSES = {"user": "/users/{}/", "job": "/jobs/{}/", "dataset": "/datasets/{}/", "model": "/models/{}/"}


@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    require_cluster_admin(request.user)
    given = request.GET.dict()
    wanted, page = AuditFilter(), KeysetPage[AuditEntry]([], None, None)
    problems: dict[str, list[str]] = {}
    try:
        wanted = AuditFilter(given)
        page = audit_page(wanted, given, PAGE_SIZE)
    except UserError as error:
        problems = error.fields
    context = {
        "section": "audit",
        "crumbs": [("Audit", None)],
        "periods": PERIODS,
        "kinds": kinds(),
        "names": list(User.objects.order_by("username").values_list("username", flat=True)[:_MOST_SUGGESTIONS]),
        "given": given,
        "wanted": wanted,
        "page": page,
        "rows": [(entry, _address(entry), changed_values(entry)) for entry in page.rows],
        "problems": [(name, _LABELS.get(name), sentence) for name, said in problems.items() for sentence in said],
    }
    return render(request, "audit/list.html", context, status=400 if problems else 200)


def _address(entry: AuditEntry) -> str:
    """Return the address of the changed object, which may be gone by now."""
    pattern = _ADDRESSES.get(entry.kind)
    return pattern.format(entry.key) if pattern and entry.key.isdecimal() else ""
