"""Tags and the note of a training, on its page."""

from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from core.pages import Undo, done, login_user, say
from jobs.actions.tags import change_tags, parsed_tag_change
from jobs.models import Job, Note
from jobs.pages.queries import job_or_404
from jobs.queries.jobs import known_tags

__all__ = ["job_tags", "note_of", "tags_of"]

_MOST_SUGGESTED = 200
#: Number of shown versions of a note, including the current one.
_MOST_TEXTS = 20


@require_POST
def job_tags(request: HttpRequest, job_id: int) -> HttpResponse:
    """Add the tags in `add`, separated by spaces, or remove the tag in `remove`."""
    job, user = job_or_404(request.user, job_id), login_user(request)
    add, remove = request.POST.get("add", "").split(), request.POST.get("remove", "")

    def change() -> None:
        change_tags(job.pk, parsed_tag_change(add, [remove] if remove else []), user.get_username())

    if done(request, change) and remove:
        say(
            request,
            f"The tag {remove} has been removed.",
            undo=Undo(reverse("jobs:tags", args=[job.pk]), {"add": remove}),
        )
    return redirect("jobs:detail", job.pk)


def tags_of(job: Job, user: User) -> dict[str, Any]:
    return {"known_tags": known_tags(user)[:_MOST_SUGGESTED]}


def note_of(job: Job, typed: str | None = None, problem: str = "") -> dict[str, Any]:
    """Return the note and its history. typed: text that could not be saved, for the reason `problem`."""
    notes = list(Note.objects.filter(job=job)[:_MOST_TEXTS])
    number, text = (notes[0].number, notes[0].text) if notes else (0, "")
    return {
        "notes": notes,
        "note_text": text if typed is None else typed,
        "note_after": number,
        "note_problem": problem,
    }
