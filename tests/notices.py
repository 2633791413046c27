"""Notices of a page, by their levels: what they say is a matter of the action's own tests."""

from django.http import HttpResponse

__all__ = ["levels"]


def levels(answer: HttpResponse) -> list[str]:
    """Level of each notice that the page shows, oldest first: "success", "info", "warning" or "error"."""
    return [message.level_tag for message in answer.context["messages"]]
