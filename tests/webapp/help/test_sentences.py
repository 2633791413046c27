"""Sentences for users that refer to a document: they contain its address on the site, and that leads somewhere."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urldefrag

import pytest
from django.test import Client

from core.help_links import linked
from jobs.models import Job
from models_registry.models import RegisteredModelVersion
from tests.factories import JobFactory
from tests.test_architecture import ROOT, source_files
from tests.webapp.help.test_page_help import ANCHORS

#: Messages of a site that does not run: there is no page to lead to.
BEFORE_THE_START = {"webapp/embedded/ports.py"}
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
#: Addresses of pages that are no documents.
NO_DOCUMENTS = {"/help/", "/help/operator/"}


def texts_of(file: Path) -> Iterator[str]:
    """Yield the string literals of a module, without docstrings."""
    tree = ast.parse(file.read_text())
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def all_texts() -> list[tuple[str, str]]:
    modules = [(str(file.relative_to(ROOT)), text) for file in source_files() for text in texts_of(file)]
    return modules + [(str(file.relative_to(ROOT)), file.read_text()) for file in TEMPLATES]


def test_no_sentence_names_the_file_of_a_document() -> None:
    naming = {place for place, text in all_texts() if re.search(r"docs/[\w/-]+\.md\b.*\s|\s.*docs/[\w/-]+\.md\b", text)}
    naming |= {place for place, text in all_texts() if re.search(r"\s.*\bREADME\.md\b|\bREADME\.md\b.*\s", text)}
    assert naming - BEFORE_THE_START == set()


def test_addresses_in_sentences_lead_to_sections() -> None:
    addresses = {
        (place, address)
        for place, text in all_texts()
        for address in re.findall(r"(?<![\w/])/help/[\w/-]*(?:#[\w-]+)?", text)
    }
    assert addresses
    broken = []
    for place, address in addresses:
        target, anchor = urldefrag(address)
        if target not in NO_DOCUMENTS and anchor not in ANCHORS.get(target, set()):
            broken.append((place, address))
    assert broken == []


def test_functions_and_tags_name_sections_that_are_there() -> None:
    called = set()
    for file in [*source_files(), *TEMPLATES]:
        text = file.read_text()
        called |= set(re.findall(r"help_address\([\"']([\w/-]+)[\"'](?:, [\"']([\w-]+)[\"'])?\)", text))
        called |= set(re.findall(r"\{% url 'help:document' '([\w-]+)' %\}(?:#([\w-]+))?", text))
    assert called
    assert {(name, anchor) for name, anchor in called if anchor not in ANCHORS.get(f"/help/{name}/", set())} == set()


def test_addresses_become_links_and_nothing_else_does() -> None:
    assert (
        linked("<b>: see /help/runtime/#validate, or /help/jobs/.")
        == '&lt;b&gt;: see <a href="/help/runtime/#validate">'
        '/help/runtime/#validate</a>, or <a href="/help/jobs/">/help/jobs/</a>.'
    )
    for text in ("https://example.org/help/jobs/", "x/help/jobs/", '/help/"onclick="alert(1)/'):
        assert "<a " not in linked(text)


@pytest.mark.django_db
def test_a_refusal_leads_to_the_section(alice_client: Client, alice: object) -> None:
    job: Job = JobFactory(owner=alice, state="SUCCEEDED", finished_at="2026-01-01T00:00:00Z")
    RegisteredModelVersion.objects.filter(pk=job.model_id).update(engine="elastic")

    html = alice_client.get(f"/jobs/{job.pk}/validate/").content.decode()

    assert '<a href="/help/runtime/#validate">/help/runtime/#validate</a>' in html
