"""Asking WMLA's deep learning addresses in tests."""

from typing import Any

from django.http import HttpResponse
from rest_framework.test import APIClient

__all__ = ["BASE", "ask", "refusal"]

BASE = "/platform/rest/deeplearning/v1/"


def ask(api: APIClient, method: str, path: str, body: Any = None) -> Any:
    """The answer; a body is sent as JSON, whatever it is."""
    sent = {} if body is None else {"data": body, "format": "json"}
    return getattr(api, method.lower())(BASE + path, **sent)


def refusal(answer: HttpResponse, status: int) -> str:
    """The sentence of an error, which is one line of text."""
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"].startswith("text/plain")
    text = answer.content.decode()
    assert text.startswith(f"Error {status}: ")
    assert text.count("\n") == 1
    return text
