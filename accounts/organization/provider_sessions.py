"""Sessions that began with a log-in at the provider, and their end by a log-out there."""

from django.contrib.auth import login
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone

from accounts.authentication import BACKEND
from accounts.login_page import end_in_time
from accounts.models import ProviderSession
from accounts.organization.oidc import LoggedOut
from accounts.topics import ACCOUNTS
from core.live import publish

__all__ = ["end_sessions", "log_in"]


@transaction.atomic
def log_in(request: HttpRequest, user: User, sid: str) -> None:
    """Log the browser in for as long as a log-in at the provider lasts. sid: the provider's name for its session."""
    login(request, user, backend=BACKEND)
    end_in_time(request)
    request.session.save()
    session = Session.objects.get(pk=request.session.session_key)
    ProviderSession.objects.create(session=session, user=user, sid=sid[:255], started_at=timezone.now())


@transaction.atomic
def end_sessions(provider: str, out: LoggedOut) -> int:
    """End the sessions of a person at the provider, or that one session which `sid` names. Return how many ended."""
    ended = ProviderSession.objects.filter(user__identity__provider=provider).filter(
        Q(user__identity__subject=out.subject) if out.subject else Q(), Q(sid=out.sid) if out.sid else Q()
    )
    rows = list(ended.values_list("session_id", "user_id"))
    Session.objects.filter(pk__in=[session for session, _ in rows]).delete()
    if rows:
        publish(ACCOUNTS, "append", {"users": sorted({user for _, user in rows})})
    return len(rows)
