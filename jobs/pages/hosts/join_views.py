"""The page for adding machines: join tokens, and the command that a machine runs with one."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from core.errors import UserError
from core.formfields import show_error
from core.notices import say
from core.pages import login_user, or_404
from core.roles import require_cluster_admin
from jobs.pages.hosts.views import LIST_CRUMB
from workers.forms import JoinForm
from workers.join_tokens import create_join_token, join_command, join_command_of_containers, withdraw_join_token
from workers.models import JoinToken

__all__ = ["host_join", "host_join_withdraw"]


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def host_join(request: HttpRequest) -> HttpResponse:
    """Show join tokens; POST makes one. Only that answer contains it: behind a redirect it would have to be stored."""
    require_cluster_admin(request.user)
    form, commands = JoinForm(request.POST or None), {}
    if request.method == "POST" and form.is_valid():
        try:
            token, _ = create_join_token(login_user(request), **form.cleaned_data)
        except UserError as error:
            show_error(form, error)
        else:
            site = request.build_absolute_uri("/").rstrip("/")
            commands = {
                "Without containers": join_command(site, token),
                "With containers": join_command_of_containers(site, token),
            }
    context = {
        "section": "hosts",
        "crumbs": [LIST_CRUMB, ("Add hosts", None)],
        "form": form,
        "commands": commands,
        "tokens": JoinToken.objects.filter(expires_at__gt=timezone.now()),
        "can_join": bool(settings.TIDEPOOL_EXECUTOR_BROKER_URL),
    }
    return render(request, "jobs/hosts/join.html", context, status=400 if form.errors else 200)


@require_POST
def host_join_withdraw(request: HttpRequest, token_id: int) -> HttpResponse:
    require_cluster_admin(request.user)
    or_404(JoinToken.objects.filter(pk=token_id).first())
    withdraw_join_token(login_user(request), token_id)
    say(request, "The join token is withdrawn: no machine is let in by it any more.")
    return redirect("hosts:join")
