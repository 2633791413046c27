"""Public links: whoever has one can read the report without a login until it expires, if the site allows them."""

import secrets
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from accounts.link_throttling import SHARE_LINK, refuse_guessing
from accounts.tokens import digest_of
from core.audit.entries import audit
from core.errors import Conflict, NotAllowed, NotFound, UserError, field_error
from reports.actions import KIND, locked
from reports.mentions import mentions_text
from reports.models import Report, ReportBlock, ShareLink
from reports.queries import mentions_of, open_links

__all__ = ["MAX_LINKS", "LinkEnded", "NewLink", "max_days", "open_report", "share", "withdraw"]

#: Maximum number of links of a report, including expired ones.
MAX_LINKS = 20
#: Time for which an expired link still answers that it has expired, before it is deleted.
_EXPIRED_KEPT = timedelta(days=30)


class LinkEnded(UserError):
    """The link has expired or was withdrawn."""

    status = 410
    default_code = "link_ended"


@dataclass(frozen=True)
class NewLink:
    row: ShareLink
    #: Path of the link with its secret, which is not stored.
    path: str


def max_days() -> int:
    """Return the maximum lifetime of a link in days; 0: the site allows no links."""
    return int(settings.TIDEPOOL_PUBLIC_REPORT_DAYS)


@transaction.atomic
def share(user: User, report_id: int, days: int, *, confirmed: bool = False) -> NewLink:
    """Make a public link to the report, with its later changes, for the given number of days.

    Raises Conflict if the report names other users, hosts or paths, unless the user confirmed that.
    """
    report, now = locked(user, report_id), timezone.now()
    if not max_days():
        raise NotAllowed("This site does not allow public links. An administrator can allow them.")
    if not 1 <= days <= max_days():
        raise field_error("days", f"Give 1 to {max_days()} days.")
    mentions = mentions_of(report, ReportBlock.objects.filter(report=report))
    if mentions and not confirmed:
        sentence = f"The report names {mentions_text(mentions)}: remove this, or confirm that everybody may read it."
        raise Conflict(sentence, code="names_others", fields={"confirmed": [sentence]})
    ShareLink.objects.filter(report=report, expires_at__lt=now - _EXPIRED_KEPT).delete()
    if ShareLink.objects.filter(report=report).count() >= MAX_LINKS:
        raise Conflict(f"The report has {MAX_LINKS} links, including recently expired ones: use an open one.")
    secret = secrets.token_urlsafe(32)
    row = ShareLink.objects.create(
        report=report, digest=digest_of(secret), created_at=now, expires_at=now + timedelta(days=days)
    )
    audit(user, "created a public link to", kind=KIND, key=report.pk, name=report.title, after=_facts(row))
    return NewLink(row, reverse("shared-report", args=[secret]))


@transaction.atomic
def withdraw(user: User, report_id: int, link_id: int) -> ShareLink:
    """Withdraw a link at once. No effect on a link that was withdrawn before."""
    report = locked(user, report_id)
    link = ShareLink.objects.filter(report=report, pk=link_id).first()
    if link is None:
        raise NotFound(f"The report has no link {link_id}: reload its page.")
    if ShareLink.objects.filter(pk=link.pk, withdrawn_at=None).update(withdrawn_at=timezone.now()):
        audit(user, "revoked a public link to", kind=KIND, key=report.pk, name=report.title, before=_facts(link))
    link.refresh_from_db()
    return link


def open_report(request: HttpRequest, secret: str) -> Report:
    """Return the report that a link opens, and count the visit.

    Raises NotFound, LinkEnded, and UserError with the code "throttled" after many guesses.
    """
    refuse_guessing(request, SHARE_LINK)
    now, digest = timezone.now(), digest_of(secret)
    is_read = request.method == "GET"
    counted = {"uses": F("uses") + 1, "last_used_at": now} if is_read else {"uses": F("uses")}
    # A single query counts the visit and checks that the link is open: no visit succeeds after a withdrawal.
    if not open_links(now).filter(digest=digest).update(**counted):
        if ShareLink.objects.filter(digest=digest).exists():
            raise LinkEnded("This link has expired or was revoked: ask the sender for a new one.")
        raise NotFound("Report not found: it was deleted, or the address is incomplete.")
    return Report.objects.select_related("owner").get(links__digest=digest)


def _facts(link: ShareLink) -> dict[str, str]:
    return {"ends": f"{link.expires_at:%Y-%m-%d %H:%M} UTC"}
