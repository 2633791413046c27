"""JSON of what exactly ran: where the code of a training came from, and the command that submitted it."""

from typing import Any

from rest_framework import serializers

from core.rest import StrictSerializer
from jobs.actions.source import MAX_DIFF_BYTES, MAX_LEFT_OUT, Source

__all__ = ["LeftOut", "SourceInput"]

_COMMAND_CHARACTERS = 20_000


class LeftOut(StrictSerializer):
    path = serializers.CharField(max_length=4096, trim_whitespace=False)
    why = serializers.CharField(max_length=500, help_text="The reason, as the end of a sentence.")


class SourceInput(StrictSerializer):
    """The command that sends code, and the repository that the code comes from."""

    repository = serializers.CharField(
        default="", allow_blank=True, max_length=2000, help_text="Address; credentials in it are removed."
    )
    commit = serializers.RegexField(r"^([0-9a-f]{40}|[0-9a-f]{64})?$", default="", allow_blank=True)
    branch = serializers.CharField(
        default="", allow_blank=True, max_length=255, help_text="Empty: no branch is checked out."
    )
    is_dirty = serializers.BooleanField(default=False, help_text="Whether the code differs from the commit.")
    diff = serializers.CharField(
        default="",
        allow_blank=True,
        trim_whitespace=False,
        max_length=MAX_DIFF_BYTES,
        help_text="Difference from the commit, as `git diff` prints it.",
    )
    left_out = LeftOut(many=True, default=list, help_text="Files that differ and are not in `diff`.")
    problem = serializers.CharField(
        default="", allow_blank=True, max_length=500, help_text="Why a part is missing; empty: none is."
    )
    command = serializers.CharField(
        default="", allow_blank=True, max_length=_COMMAND_CHARACTERS, help_text="The command as it was typed."
    )

    def validate_diff(self, value: str) -> str:
        if len(value.encode()) > MAX_DIFF_BYTES:
            raise serializers.ValidationError("The difference is larger than 1 MiB: leave files out and name them.")
        return value

    def validate_left_out(self, value: list[dict[str, str]]) -> list[dict[str, str]]:
        if len(value) > MAX_LEFT_OUT:
            raise serializers.ValidationError(f"Name at most {MAX_LEFT_OUT} files that are left out.")
        return [dict(each) for each in value]

    def validate(self, attrs: Any) -> Any:
        if attrs.diff and not (attrs.commit and attrs.is_dirty):
            raise serializers.ValidationError({"diff": "A difference needs a commit, and is_dirty."})
        return attrs

    def to_internal_value(self, data: Any) -> Any:
        return Source(**super().to_internal_value(data))
