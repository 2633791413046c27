"""Links by which a report is read without a log-in, for some days, where the site allows it."""

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
from reports.models import Report, ReportBlock, ShareLink
from reports.names import sentence_of
from reports.queries import named_of, open_links

__all__ = ["MAX_LINKS", "LinkEnded", "NewLink", "most_days", "open_report", "share", "withdraw"]

#: Of a report, those that have ended too.
MAX_LINKS = 20
#: So long a link that has ended says so; then it is as if it had never been.
_REMEMBERED = timedelta(days=30)


class LinkEnded(UserError):
    """It was a link, and opens nothing any more."""

    status = 410
    default_code = "link_ended"


@dataclass(frozen=True)
class NewLink:
    row: ShareLink
    #: Path on this site, with the secret: this is the only time that it can be read.
    path: str


def most_days() -> int:
    """Return for how many days a link may be made; 0: the site allows none."""
    return int(settings.TIDEPOOL_PUBLIC_REPORT_DAYS)


@transaction.atomic
def share(user: User, report_id: int, days: int, *, confirmed: bool = False) -> NewLink:
    """Make a link by which everybody who has it reads the report, as it is then, for so many days.

    confirmed: the user knows what the report names; unless it names nothing, Conflict says what.
    """
    report, now = locked(user, report_id), timezone.now()
    if not most_days():
        raise NotAllowed("This site shares no reports without a log-in. An administrator can allow it.")
    if not 1 <= days <= most_days():
        raise field_error("days", f"Give 1 to {most_days()} days.")
    named = named_of(report, ReportBlock.objects.filter(report=report))
    if named and not confirmed:
        sentence = f"It names {sentence_of(named)}: take this out, or confirm that everybody may read it."
        raise Conflict(sentence, code="names_others", fields={"confirmed": [sentence]})
    ShareLink.objects.filter(report=report, expires_at__lt=now - _REMEMBERED).delete()
    if ShareLink.objects.filter(report=report).count() >= MAX_LINKS:
        raise Conflict(f"The report has {MAX_LINKS} links of the last weeks: hand on one of those that are open.")
    secret = secrets.token_urlsafe(32)
    row = ShareLink.objects.create(
        report=report, digest=digest_of(secret), created_at=now, expires_at=now + timedelta(days=days)
    )
    audit(user, "made a public link to", kind=KIND, key=report.pk, name=report.title, after=_facts(row))
    return NewLink(row, reverse("shared-report", args=[secret]))


@transaction.atomic
def withdraw(user: User, report_id: int, link_id: int) -> ShareLink:
    """End a link at once; one that has ended already stays so."""
    report = locked(user, report_id)
    link = ShareLink.objects.filter(report=report, pk=link_id).first()
    if link is None:
        raise NotFound(f"The report has no link {link_id}: look at its page again.")
    if ShareLink.objects.filter(pk=link.pk, withdrawn_at=None).update(withdrawn_at=timezone.now()):
        audit(user, "withdrew a public link to", kind=KIND, key=report.pk, name=report.title, before=_facts(link))
    link.refresh_from_db()
    return link


def open_report(request: HttpRequest, secret: str) -> Report:
    """Return the report that a link opens, and count that.

    Raises NotFound, LinkEnded, and UserError with the code "throttled" after many guesses.
    """
    refuse_guessing(request, SHARE_LINK)
    now, digest = timezone.now(), digest_of(secret)
    is_read = request.method == "GET"
    counted = {"uses": F("uses") + 1, "last_used_at": now} if is_read else {"uses": F("uses")}
    # Counting asks whether it is open: nobody reads by a link after its withdrawal was stored.
    if not open_links(now).filter(digest=digest).update(**counted):
        if ShareLink.objects.filter(digest=digest).exists():
            raise LinkEnded("This link has ended, or was withdrawn: ask who sent it to you for another one.")
        raise NotFound("This is no link to a report, or its report is gone: look whether the address is whole.")
    return Report.objects.select_related("owner").get(links__digest=digest)


def _facts(link: ShareLink) -> dict[str, str]:
    return {"ends": f"{link.expires_at:%Y-%m-%d %H:%M} UTC"}
