"""Forms of accounts. Actions validate the values; forms only carry them."""

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils import timezone

from core.roles import Role
from core.scopes import FULL, READ, SUBMIT

__all__ = ["ROLES", "SCOPES", "DeviceForm", "InviteForm", "NewPasswordForm", "OwnPasswordForm", "TokenForm"]

#: Role -> sentence that explains it in forms.
ROLES = {
    Role.VIEWER: "Sees everything that a data scientist sees, but cannot change anything.",
    Role.DATA_SCIENTIST: "Registers datasets and models, submits trainings, and owns the results.",
    Role.CLUSTER_ADMIN: "Sees and changes everything: hosts, groups, users, and everybody's trainings.",
}
#: Scope of a token -> words that explain it in forms.
SCOPES = {
    READ: "Read: everything that you may see",
    SUBMIT: "Submit: read, train and add data",
    FULL: "Full: everything that you may do",
    "job": "One training: change and stop",
}
_DAYS = {"30": "30 days", "90": "90 days", "365": "1 year", "": "Never"}
_LONGEST = 4096


def _password(label: str, autocomplete: str, **options: Any) -> forms.CharField:
    widget = forms.PasswordInput(attrs={"autocomplete": autocomplete})
    return forms.CharField(label=label, max_length=_LONGEST, strip=False, widget=widget, **options)


class InviteForm(forms.Form):
    username = forms.CharField(
        label="User name", max_length=1000, strip=False,
        help_text="Letters, digits and @ . + - _, such as ada.lovelace. Also names the user's results folder.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )  # fmt: skip
    role = forms.ChoiceField(choices=Role.choices, initial=Role.DATA_SCIENTIST, widget=forms.RadioSelect)


class NewPasswordForm(forms.Form):
    """Form with the new password typed twice, because typing is invisible."""

    password = _password("New password", "new-password", help_text="At least 10 characters, and not a common password.")
    again = _password("New password again", "new-password")

    def clean_again(self) -> str:
        again: str = self.cleaned_data["again"]
        if again != self.cleaned_data.get("password", again):
            raise forms.ValidationError("The two passwords differ: enter the new password again.")
        return again


class OwnPasswordForm(NewPasswordForm):
    old_password = _password("Current password", "current-password")

    field_order = ("old_password", "password", "again")


class DeviceForm(forms.Form):
    code = forms.CharField(
        label="Code", max_length=100, help_text="Code that the program shows, such as WXYZ-2345.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "characters", "spellcheck": "false"}),
    )  # fmt: skip


class TokenForm(forms.Form):
    name = forms.CharField(
        label="Name", max_length=1000, strip=False, help_text="Purpose of the token, such as nightly-tests.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )  # fmt: skip
    scope = forms.ChoiceField(label="Scope", choices=list(SCOPES.items()), initial=SUBMIT)
    job = forms.IntegerField(
        label="Training", required=False, min_value=1, help_text="Number of the training, if the scope is one training."
    )
    days = forms.ChoiceField(label="Expires after", choices=list(_DAYS.items()), initial="90", required=False)

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        if values.get("scope") == "job" and not values.get("job") and "job" not in self.errors:
            self.add_error("job", "Enter the number of the training.")
        return values

    def given_scope(self) -> str:
        scope: str = self.cleaned_data["scope"]
        return f"job:{self.cleaned_data['job']}" if scope == "job" else scope

    def expires_at(self) -> datetime | None:
        days = self.cleaned_data["days"]
        return timezone.now() + timedelta(days=int(days)) if days else None
