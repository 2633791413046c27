"""The charts that a user chooses on the pages of trainings, and on the page that compares them."""

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from core.pages import login_user
from core.text import whole
from jobs.actions.chosen_charts import choose_charts
from jobs.queries.jobs import visible_jobs

__all__ = ["choose_job_charts"]


@require_POST
def choose_job_charts(request: HttpRequest) -> HttpResponse:
    """Store the titles in `order` and `hidden`, and the grouping in `group`, for the models of each `job`."""
    numbers = {whole(text) or 0 for text in request.POST.getlist("job")}  # no training has the number 0
    jobs = list(visible_jobs(request.user).filter(pk__in=numbers))
    if not numbers or len(jobs) < len(numbers):
        raise Http404
    titles = {name: request.POST.getlist(name) for name in ("order", "hidden")}
    choose_charts(login_user(request), jobs, **titles, group=request.POST.get("group", ""))
    return HttpResponse(status=204)
