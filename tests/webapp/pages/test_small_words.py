"""Words in small type are read aloud and copied with a blank before them."""

import re
from pathlib import Path

import pytest
from django.conf import settings

_OPENS = re.compile(r"<(a|td|dd|dt|th|div|li|span|p|h\d|label|legend|summary|b)\b[^<>]*>$")
TEMPLATES = sorted(Path(settings.BASE_DIR, "templates").rglob("*.html"))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_blank_stands_before_small_words(template: Path) -> None:
    text = template.read_text()
    glued = []
    for found in re.finditer("<small", text):
        before = re.sub(r"(\{%[^%]*%\})+$", "", text[: found.start()])
        if before and not before[-1].isspace() and not _OPENS.search(before):
            glued.append(before[-40:])
    assert glued == []
