"""Filters for users' notes on trainings."""

from django import template
from django.utils.safestring import SafeString

from core.markdown import rendered

__all__ = ["markdown"]

register = template.Library()


@register.filter
def markdown(text: str) -> SafeString:
    return rendered(text)
