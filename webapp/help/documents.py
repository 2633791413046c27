"""The documents that the site serves, by topic. Each is a Markdown file of the repository, read as it lies."""

import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

from django.conf import settings
from django.urls import reverse
from django.utils.safestring import SafeString

from core.markdown import Link, Section, document_title, rendered_document, sections

__all__ = ["DOCUMENTS", "FILES", "TOPICS", "Document", "Topic", "document_named", "topics_for"]

#: Folders whose documents and pictures are served, as far as TOPICS names the documents.
FOLDERS = ("docs/user", "docs/operator")


@dataclass(frozen=True)
class Document:
    #: Path in the repository, such as "docs/user/jobs.md".
    path: str
    #: Last part of its address.
    name: str
    is_for_admins: bool = False

    @property
    def address(self) -> str:
        return reverse("help:admin-document" if self.is_for_admins else "help:document", args=[self.name])

    @property
    def file(self) -> Path:
        return Path(settings.BASE_DIR, self.path)

    @property
    def sections(self) -> tuple[Section, ...]:
        return _read(self.file, self.file.stat().st_mtime_ns).sections

    @property
    def title(self) -> str:
        return self.sections[0].title

    @property
    def title_html(self) -> SafeString:
        return _read(self.file, self.file.stat().st_mtime_ns).title_html

    @property
    def summary(self) -> str:
        """The first paragraph."""
        return next(iter(self.sections[0].paragraphs), "")

    def html(self, *, for_admin: bool) -> SafeString:
        """Return the text below the title as HTML. Links to documents that the reader may not open are only words."""
        return rendered_document(self.file.read_text(), _links_from(self, for_admin=for_admin))


@dataclass(frozen=True)
class Topic:
    title: str
    documents: tuple[Document, ...]
    #: The reference of the API stands below the documents.
    has_api_reference: bool = False


@dataclass(frozen=True)
class _Read:
    title_html: SafeString
    sections: tuple[Section, ...]


@lru_cache(maxsize=256)
def _read(file: Path, changed_at_ns: int) -> _Read:
    """Return the parts of a document; a changed file is read again."""
    text = file.read_text()
    return _Read(document_title(text), tuple(sections(text)))


def _topic(title: str, *paths: str, folder: str, is_for_admins: bool = False, has_api_reference: bool = False) -> Topic:
    documents = []
    for path in paths:
        whole = posixpath.normpath(f"{folder}/{path}.md")
        name = {"runtime/README.md": "runtime", "docs/operator/README.md": "guide"}.get(whole, posixpath.basename(path))
        documents.append(Document(whole, name, is_for_admins))
    return Topic(title, tuple(documents), has_api_reference)


TOPICS = (
    _topic(
        "Trainings",
        *("train", "jobs", "job-page", "charts-and-advisor", "why-slow", "checkpoints", "studies", "reports", "usage"),
        *("alerts", "../states", "keyboard"),
        folder="docs/user",
    ),
    _topic("Data and models", "datasets", "models", "mlflow", folder="docs/user"),
    _topic(
        "Training scripts",
        *("scripts", "own-loop", "../../runtime/README", "fabric-model", "adaptdl", "nni"),
        folder="docs/user",
    ),
    _topic(
        "Command line, Python and REST",
        *("cli", "sdk", "notebook", "distributor"),
        folder="docs/user",
        has_api_reference=True,
    ),
    _topic("Coming from IBM WMLA", "coming-from-wmla", "tutorial", "wmla-execs", "wmla-conductor", folder="docs/user"),
    # These explain pages that everybody sees, or that administrators of one instance group work with.
    _topic(
        "GPUs, groups and users",
        *("hosts-and-resource-groups", "autoscaling", "spot", "slurm", "gpus", "instance-groups", "what-if", "users"),
        folder="docs/operator",
    ),
    _topic(
        "Operating the site",
        *(
            "README",
            "install",
            "kubernetes",
            "join-a-host",
            "several-hosts",
            "upgrade",
            "backup-and-restore",
            "monitor",
            "log-in",
        ),
        *("wmla-ports", "mlflow", "../settings", "../security"),
        folder="docs/operator",
        is_for_admins=True,
    ),
)
DOCUMENTS = tuple(document for topic in TOPICS for document in topic.documents)
#: Pictures and other files beside the documents: last part of the address -> suffix and media type are the file's own.
FILES = frozenset(
    f"{posixpath.basename(folder)}/{file.name}"
    for folder in FOLDERS
    for file in Path(settings.BASE_DIR, folder).glob("*.*")
    if file.suffix != ".md"
)
_BY_PATH = {document.path: document for document in DOCUMENTS}


def topics_for(*, admin: bool) -> list[Topic]:
    """Return the topics that a reader may open."""
    return [topic for topic in TOPICS if admin or not topic.documents[0].is_for_admins]


def document_named(name: str, *, is_for_admins: bool = False) -> Document | None:
    found = (each for each in DOCUMENTS if each.name == name and each.is_for_admins == is_for_admins)
    return next(found, None)


def _links_from(document: Document, *, for_admin: bool) -> Callable[[str], Link | None]:
    folder = posixpath.dirname(document.path)

    def link_of(written: str) -> Link | None:
        target, fragment = urldefrag(written)
        if urlsplit(written).scheme or not target:
            return Link(written, "")
        path = posixpath.normpath(f"{folder}/{target}")
        there = _BY_PATH.get(path)
        if there is not None:
            address = f"{there.address}#{fragment}" if fragment else there.address
            return Link(address, there.title) if for_admin or not there.is_for_admins else None
        file = path.removeprefix("docs/")
        return Link(reverse("help:file", args=[file]), "") if file in FILES else None

    return link_of
