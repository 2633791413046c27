"""Sentences of Django's fields in the words of the house."""

import pytest
from django import forms
from django.contrib.auth.models import User

CHOICE = "This choice is not offered, or no longer: choose another one."


class Example(forms.Form):
    name = forms.CharField(max_length=3)
    count = forms.IntegerField(min_value=2, max_value=4)
    kind = forms.ChoiceField(choices=[("a", "A")])
    kinds = forms.MultipleChoiceField(choices=[("a", "A")])
    user = forms.ModelChoiceField(User.objects.none())
    users = forms.ModelMultipleChoiceField(User.objects.none())


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("name", "", "Fill in this field."),
        ("name", "abcd", "Enter at most 3 characters, not 4."),
        ("count", "1", "Enter 2 or more."),
        ("count", "5", "Enter 4 or less."),
        ("count", "x", "Enter a whole number."),
        ("kind", "", "Choose one."),
        ("kind", "b", CHOICE),
        ("kinds", ["b"], CHOICE),
        ("user", "1", CHOICE),
        ("user", "", "Choose one."),
        ("users", ["1"], CHOICE),
    ],
)
def test_a_refusal_says_what_to_do(field: str, value: object, sentence: str) -> None:
    assert Example({field: value}).errors[field] == [sentence]
