"""Style sheets and scripts come without a log-in, whole and cacheable; nothing else does."""

import pytest
from django.test import Client

ICONS = "/static/icons.svg"


def test_a_file_is_served_to_everybody():
    answer = Client().get(ICONS)
    assert (answer.status_code, answer["Content-Type"], answer.streaming) == (200, "image/svg+xml", False)
    assert answer.content.startswith(b"<svg")
    assert "max-age" in answer["Cache-Control"]
    assert answer["X-Content-Type-Options"] == "nosniff"


def test_an_unchanged_file_is_not_sent_again():
    modified = Client().get(ICONS)["Last-Modified"]
    answer = Client().get(ICONS, headers={"if-modified-since": modified})
    assert (answer.status_code, answer.content) == (304, b"")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path", ["nothing.css", "../webapp/settings.py", "%2e%2e/webapp/settings.py", "..%2fmanage.py", ""]
)
def test_nothing_else_is_served(path):
    assert Client().get(f"/static/{path}").status_code in {302, 404}
