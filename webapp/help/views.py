"""Pages of the documents: the contents, which also searches, each document, and the files that documents show."""

import mimetypes
from pathlib import Path

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from core.pages import or_404
from core.roles import is_cluster_admin, require_cluster_admin
from webapp.help.documents import FILES, Document, document_named, topics_for
from webapp.help.search import find_sections

__all__ = ["admin_document", "api_reference", "contents", "document", "file"]

MAX_LETTERS = 100
API_TITLE = "REST API reference"


@require_safe
def contents(request: HttpRequest) -> HttpResponse:
    text = request.GET.get("q", "").strip()[:MAX_LETTERS]
    is_admin = is_cluster_admin(request.user)
    context = {
        "section": "help",
        "crumbs": [("Help", None)],
        "topics": topics_for(admin=is_admin),
        "text": text,
        "found": find_sections(text, admin=is_admin),
    }
    return render(request, "help/contents.html", context)


@require_safe
def document(request: HttpRequest, name: str) -> HttpResponse:
    return _shown(request, or_404(document_named(name)))


@require_safe
def admin_document(request: HttpRequest, name: str) -> HttpResponse:
    require_cluster_admin(request.user)
    return _shown(request, or_404(document_named(name, is_for_admins=True)))


@require_safe
def file(request: HttpRequest, path: str) -> HttpResponse:
    """Return a picture or another file that lies beside the documents."""
    if path not in FILES:
        raise Http404
    kind = mimetypes.guess_type(path)[0] or "text/plain"
    return HttpResponse(Path(settings.BASE_DIR, "docs", path).read_bytes(), content_type=kind)


@require_safe
def api_reference(request: HttpRequest) -> HttpResponse:
    """Return the page on which Swagger UI shows the API's own description."""
    context = {"section": "help", "crumbs": [("Help", reverse("help:contents")), (API_TITLE, None)], "title": API_TITLE}
    return render(request, "help/api.html", context)


def _shown(request: HttpRequest, shown: Document) -> HttpResponse:
    is_admin = is_cluster_admin(request.user)
    topics = topics_for(admin=is_admin)
    documents = [each for topic in topics for each in topic.documents]
    place = documents.index(shown)
    context = {
        "section": "help",
        "crumbs": [("Help", reverse("help:contents")), (shown.title, None)],
        "document": shown,
        "html": shown.html(for_admin=is_admin),
        "topic": next(topic for topic in topics if shown in topic.documents),
        "headings": [section for section in shown.sections if section.level in (2, 3)],
        "before": documents[place - 1] if place else None,
        "after": documents[place + 1] if place + 1 < len(documents) else None,
    }
    return render(request, "help/document.html", context)
