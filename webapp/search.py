"""The search of the palette: jobs, studies, datasets, models and reports by a part of their name, as far as one may see
them, and headings of the documents."""

from dataclasses import dataclass
from typing import Annotated

from django.contrib.auth.models import User
from django.db.models import Q
from django.urls import reverse

from core.roles import is_cluster_admin
from core.visibility import readable
from datasets.queries import datasets
from jobs.queries.jobs import visible_jobs
from models_registry.queries import models
from reports.models import Report
from studies.queries import studies
from webapp.help.search import find_headings

__all__ = ["Hit", "find"]

#: Largest number of hits of each kind; for more there are the lists with their filters.
HITS = 6
MAX_LETTERS = 100


@dataclass(frozen=True)
class Hit:
    #: "job", "study", "dataset", "model", "report" or "help".
    kind: str
    id: Annotated[int | None, "`null` for a document."]
    name: str
    note: Annotated[str, "What tells it from others of the same name."]
    address: Annotated[str, "Of its page."]


def find(user: User, text: str) -> list[Hit]:
    """Return the newest of each kind whose name holds the text; a job also by its number, a document by its headings.

    Nothing for no text.
    """
    text = text.strip()
    if not text or len(text) > MAX_LETTERS:
        return []
    wanted = Q(name__icontains=text)
    number = Q(pk=int(text)) if text.isascii() and text.isdigit() and len(text) <= 18 else Q()
    hits = [
        Hit(
            "job", job.pk, job.name, f"{job.state.capitalize()}, number {job.pk}", reverse("jobs:detail", args=[job.pk])
        )
        for job in visible_jobs(user).filter(wanted | number).order_by("-id")[:HITS]
    ]
    hits += [
        Hit("study", study.pk, study.name, study.state.capitalize(), reverse("studies:detail", args=[study.pk]))
        for study in studies(user).filter(wanted).order_by("-id")[:HITS]
    ]
    for kind, rows in (("dataset", datasets()), ("model", models(user))):
        hits += [
            Hit(kind, row.pk, row.name, f"Owner {row.owner.username}", reverse(f"{kind}s:detail", args=[row.pk]))
            for row in rows.filter(wanted).order_by("-id")[:HITS]
        ]
    for report in readable(Report.objects.filter(title__icontains=text), user).select_related("owner")[:HITS]:
        address = reverse("reports:detail", args=[report.pk])
        hits.append(Hit("report", report.pk, report.title, f"Owner {report.owner.username}", address))
    return hits + [
        Hit("help", None, found.title, found.note, found.address)
        for found in find_headings(text, admin=is_cluster_admin(user), most=HITS)
    ]
