"""Templates load the libraries of tags that they use and no others, and put no blank before punctuation."""

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.template import TemplateSyntaxError, engines

TEMPLATES = sorted((settings.BASE_DIR / "templates").rglob("*.*"))
#: A blank, and then a condition whose text begins with a mark that follows a word without one.
BLANK_BEFORE_MARK = re.compile(r"\s\{% if\b[^%]*%\}\s*[,;.:!?](?!\w)")
LOAD = re.compile(r"\{% load ([\w ]+) %\}")


def unused(text: str) -> list[str]:
    """Return the libraries without which the template can be read as well."""
    engines["django"].engine.from_string(text)
    found = []
    for load in LOAD.finditer(text):
        names = load[1].split()
        for name in names:
            kept = " ".join(other for other in names if other != name)
            shorter = text.replace(load[0], f"{{% load {kept} %}}" if kept else "", 1)
            try:
                engines["django"].engine.from_string(shorter)
            except TemplateSyntaxError:
                continue
            found.append(name)
    return found


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: str(path.relative_to(settings.BASE_DIR)))
def test_it_loads_nothing_that_it_does_not_use(template: Path) -> None:
    assert unused(template.read_text()) == []


def test_a_library_too_many_would_be_found() -> None:
    assert unused("{% load static tidepool %}{% static 'icons.svg' %}") == ["tidepool"]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: str(path.relative_to(settings.BASE_DIR)))
def test_no_blank_stands_before_punctuation(template: Path) -> None:
    assert BLANK_BEFORE_MARK.findall(template.read_text()) == []


def test_a_blank_before_punctuation_would_be_found() -> None:
    assert BLANK_BEFORE_MARK.search("{{ title }}\n{% if more %}, and {{ more }} more{% endif %}")
    assert not BLANK_BEFORE_MARK.search("{{ title }}{% if more %}, and {{ more }} more{% endif %}")
