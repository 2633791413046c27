"""Messages after an action: Django's, with a button that undoes it where that is possible."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from django.contrib import messages
from django.contrib.messages.storage.base import Message
from django.http import HttpRequest

__all__ = ["Undo", "say", "undo_of"]


@dataclass(frozen=True)
class Undo:
    """A form that is posted when the person takes it back."""

    address: str
    fields: Mapping[str, str]


def say(request: HttpRequest, sentence: str, *, undo: Undo | None = None) -> None:
    """Show a sentence once, on the next page that the person sees."""
    tags = json.dumps([undo.address, dict(undo.fields)]) if undo else ""
    messages.success(request, sentence, extra_tags=tags)


def undo_of(message: Message) -> Undo | None:
    """The undo that `say` was given: messages carry no other data than tags."""
    if not message.extra_tags:
        return None
    address, fields = json.loads(message.extra_tags)
    return Undo(address, fields)
