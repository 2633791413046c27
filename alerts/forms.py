"""Forms of the page of alerts. Actions validate the input; forms only pass it on."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import User

from alerts.alert_kinds import DEFAULT_MINUTES, ChannelKind, Kind
from alerts.queries import channels
from core.roles import is_cluster_admin
from jobs.queries.groups import visible_groups

__all__ = ["ChannelForm", "QuietForm", "RuleForm"]


class ChannelForm(forms.Form):
    prefix = "new"

    kind = forms.ChoiceField(label="Kind")
    address = forms.CharField(
        label="Address", max_length=2000, help_text="HTTPS address of a webhook or of a Slack incoming webhook.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )  # fmt: skip
    name = forms.CharField(
        label="Name", max_length=1000, strip=False, help_text="Name of the channel, such as team.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )  # fmt: skip

    def __init__(self, data: Any = None) -> None:
        super().__init__(data)
        offered = [kind for kind in reversed(ChannelKind) if kind != ChannelKind.EMAIL or settings.TIDEPOOL_MAIL_URL]
        self.fields["kind"].choices = [(kind.value, kind.label) for kind in offered]  # type: ignore[attr-defined]
        if settings.TIDEPOOL_MAIL_URL:
            self.fields["address"].help_text += " For e-mail: the e-mail address."


class RuleForm(forms.Form):
    prefix = "rule"

    kind = forms.ChoiceField(label="When", choices=Kind.choices)
    group = forms.ChoiceField(label="About", required=False)
    channel = forms.TypedChoiceField(label="Tell", coerce=int)
    minutes = forms.IntegerField(
        label="After", required=False, min_value=1,
        help_text=f"Only for long waits ({DEFAULT_MINUTES[Kind.WAITS]}) and idle GPUs ({DEFAULT_MINUTES[Kind.IDLE]}).",
    )  # fmt: skip

    def __init__(self, user: User, data: Any = None) -> None:
        super().__init__(data)
        groups = [(str(group.pk), group.name) for group in visible_groups(user).order_by("name")]
        whose = "all trainings and studies in" if is_cluster_admin(user) else "my trainings and studies in"
        named = [(pk, f"{whose} {name}") for pk, name in groups]
        self.fields["group"].choices = [("", "my trainings and studies in all groups"), *named]  # type: ignore[attr-defined]
        self.fields["channel"].choices = [(row.pk, row.name) for row in channels(user)]  # type: ignore[attr-defined]


class QuietForm(forms.Form):
    begins = forms.TimeField(label="From", widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"))
    ends = forms.TimeField(label="Until", widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"))
    time_zone = forms.CharField(label="Time zone", max_length=64, initial="UTC", help_text="For example Europe/Berlin.")
