"""The documents as pages: all of them are reachable, each link leads somewhere, and each is served as it lies."""

import re
from html import unescape
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from core.markdown import sections
from tests.test_architecture import ROOT
from webapp.help.documents import DOCUMENTS, FOLDERS, Document

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(carol: User) -> Client:
    browser = Client()
    browser.force_login(carol)
    return browser


@pytest.fixture
def reader(alice: User) -> Client:
    browser = Client()
    browser.force_login(alice)
    return browser


def main_of(browser: Client, address: str) -> str:
    response = browser.get(address)
    assert response.status_code == 200, address
    return response.content.decode().partition("<main")[2].partition("</main>")[0]


def links_of(html: str) -> set[str]:
    return {unescape(link) for link in re.findall(r'<(?:a|img)\b[^>]*?\s(?:href|src)="([^"]*)"', html)}


def words_of(html: str) -> str:
    html = re.sub(r'<img[^>]*\balt="([^"]*)"[^>]*>', r"\1", html)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def test_every_document_has_a_topic() -> None:
    lying = {str(file.relative_to(ROOT)) for folder in FOLDERS for file in (ROOT / folder).glob("*.md")}
    assert lying - {document.path for document in DOCUMENTS} == set(), "add them to TOPICS"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.path)
def test_a_document_is_served_as_it_lies(document: Document, admin: Client) -> None:
    text = (ROOT / document.path).read_text()
    assert text.startswith("# ")

    shown = words_of(main_of(admin, document.address)).replace(" ", "")

    for section in sections(text):
        assert section.title.replace(" ", "") in shown
        for paragraph in section.paragraphs:
            for words in paragraph.split(" · "):
                # A link that shows only the name of a file shows the title of the document instead.
                if ".md" not in words:
                    assert "".join(words.split()) in shown


def test_every_document_is_reachable_from_the_contents(admin: Client, reader: Client) -> None:
    assert {document.address for document in DOCUMENTS} - links_of(main_of(admin, "/help/")) == set()
    for_all = {document.address for document in DOCUMENTS if not document.is_for_admins}
    assert links_of(main_of(reader, "/help/")) == for_all | {"/help/api/"}


def test_every_link_in_a_document_leads_to_something(admin: Client, reader: Client) -> None:
    broken = []
    for browser, documents in (
        (admin, DOCUMENTS),
        (reader, [document for document in DOCUMENTS if not document.is_for_admins]),
    ):
        pages = {document.address: main_of(browser, document.address) for document in documents}
        ids = {address: set(re.findall(r'\bid="([^"]+)"', html)) for address, html in pages.items()}
        for address, html in pages.items():
            for link in links_of(html):
                if link.startswith(("https://", "http://", "mailto:")):
                    continue
                target, fragment = urldefrag(urljoin(address, link))
                leads = target in pages or browser.get(target).status_code == 200
                if not leads or (fragment and fragment not in ids.get(target, set())):
                    broken.append((address, link))
    assert broken == []


def test_pictures_are_served(reader: Client) -> None:
    assert 'src="/help/files/user/cluster.png"' in main_of(reader, "/help/charts-and-advisor/")
    response = reader.get("/help/files/user/cluster.png")
    assert response["Content-Type"] == "image/png"
    assert response.content == (ROOT / "docs/user/cluster.png").read_bytes()


@pytest.mark.parametrize("path", ["user/jobs.md", "../manage.py", "user/../../manage.py", "security.md"])
def test_no_other_file_is_served(path: str, reader: Client) -> None:
    assert reader.get(f"/help/files/{path}").status_code == 404


def test_documents_of_operators_are_for_administrators(admin: Client, reader: Client) -> None:
    assert reader.get("/help/operator/install/").status_code == 403
    assert admin.get("/help/operator/install/").status_code == 200
    assert reader.get("/help/install/").status_code == 404
    # A link to such a document is only words.
    assert '"/help/operator/wmla-ports/"' in main_of(admin, "/help/coming-from-wmla/")
    html = main_of(reader, "/help/coming-from-wmla/")
    assert "/help/operator/" not in html


def test_a_link_that_shows_a_file_name_shows_the_title(admin: Client) -> None:
    assert ">Join a host</a>" in main_of(admin, "/help/operator/guide/")


def test_a_changed_document_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BASE_DIR", tmp_path)
    file = tmp_path / "a.md"
    document = Document("a.md", "a")
    file.write_text("# One\n")
    assert document.title == "One"
    file.write_text("# Two\n")
    assert document.title == "Two"


@pytest.mark.parametrize("words", ["weights checkpoint", "PREPARE loop", "link expires"])
def test_search_shows_sections_that_have_all_words(words: str, reader: Client) -> None:
    html = main_of(reader, f"/help/?q={words}")
    shown = re.findall(r"<li>(.*?)</li>", html, re.DOTALL)
    assert shown
    marked = {mark.casefold() for item in shown for mark in re.findall(r"<mark\s*>(.*?)</mark>", item, re.DOTALL)}
    assert marked
    assert marked <= set(words.casefold().split())


def test_search_finds_headings_first(reader: Client) -> None:
    html = main_of(reader, "/help/?q=log pattern")
    first = re.search(r"<ol.*?<a href=\"([^\"]+)\"", html, re.DOTALL)
    assert first is not None
    assert first[1] == "/help/scripts/#change-the-log-pattern"


def test_search_is_for_what_one_may_read(admin: Client, reader: Client) -> None:
    assert "/help/operator/" in main_of(admin, "/help/?q=TIDEPOOL_TRUSTED_PROXIES")
    assert "/help/operator/" not in main_of(reader, "/help/?q=TIDEPOOL_TRUSTED_PROXIES")


def test_search_without_a_match_says_so(reader: Client) -> None:
    html = main_of(reader, "/help/?q=<script>xyzzy")
    assert "No section has all of these words" in html
    assert "<script>xyzzy" not in html
