"""Sentences of Django's form fields and validators in the words of the site."""

from django import forms
from django.core import validators

__all__ = ["use_own_sentences"]

_CHOICE = "This choice is not offered, or no longer: choose another one."
_REQUIRED_CHOICE = "Choose one."
#: Field class -> its error codes with their sentences. Subclasses that are not named inherit them.
_SENTENCES: dict[type[forms.Field], dict[str, str]] = {
    forms.Field: {"required": "Fill in this field."},
    forms.ChoiceField: {"required": _REQUIRED_CHOICE, "invalid_choice": _CHOICE},
    forms.MultipleChoiceField: {"required": _REQUIRED_CHOICE, "invalid_choice": _CHOICE},
    forms.ModelChoiceField: {"required": _REQUIRED_CHOICE, "invalid_choice": _CHOICE},
    forms.ModelMultipleChoiceField: {"invalid_choice": _CHOICE, "invalid_pk_value": _CHOICE},
}


def use_own_sentences() -> None:
    """Replace Django's sentences for all forms. Django has no setting for that but translations."""
    for field, sentences in _SENTENCES.items():
        field.default_error_messages = {**field.default_error_messages, **sentences}
    validators.MaxLengthValidator.message = "Enter at most %(limit_value)d characters, not %(show_value)d."
    validators.MinValueValidator.message = "Enter %(limit_value)s or more."
    validators.MaxValueValidator.message = "Enter %(limit_value)s or less."
