"""`/api/v1/jobs/ID/provenance/`: what exactly ran, as commit, difference, command, and versions of each attempt."""

from typing import Any

from rest_framework import serializers

from core.rest import ObjectField, StrictSerializer
from jobs.actions.source import MAX_DIFF_BYTES, MAX_LEFT_OUT, Source
from jobs.queries.provenance import Ran

__all__ = ["LeftOut", "ProvenanceOutput", "SourceInput"]

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


class AttemptOutput(serializers.Serializer[Any]):
    """The software of those hosts of an attempt that have the same one."""

    attempt = serializers.IntegerField()
    hosts = serializers.ListField(child=serializers.CharField())
    environment = serializers.CharField(source="environment.digest")
    python = serializers.CharField(source="environment.python")
    torch = serializers.CharField(help_text="Empty: torch is not installed.")
    cuda = serializers.CharField(help_text="Version of CUDA that torch is built for; empty: for CPUs.")
    nccl = serializers.CharField(help_text="Version of the package of NCCL; empty: there is none.")
    driver = serializers.CharField(help_text="Version of the driver of the host's GPUs; empty: there is none.")
    changes = serializers.ListField(
        child=serializers.CharField(), help_text="Differences from the entry before, such as numpy 1.26.4 -> 2.1.0."
    )


class ProvenanceOutput(serializers.Serializer[Any]):
    repository = serializers.CharField(help_text="Address without credentials; empty: not from a repository.")
    commit = serializers.CharField()
    branch = serializers.CharField()
    is_dirty = serializers.BooleanField(help_text="Whether the code differed from the commit.")
    diff = serializers.CharField(help_text="Difference from the commit, for `git apply` in the folder of the code.")
    left_out = LeftOut(many=True, help_text="Files that differ and are not in `diff`.")
    problem = serializers.CharField(help_text="Why a part is missing; empty: none is.")
    command = serializers.CharField(help_text="The command as it was typed; empty: it was not submitted by one.")
    code = serializers.CharField(help_text="sha256 of the model version that was submitted.")
    python = serializers.CharField(help_text="Of the newest attempt, like packages and environment.")
    packages = ObjectField(help_text="Version of each distribution that the ranks could import, by name.")
    origins = ObjectField(help_text="Address of each distribution that is not from an index, by name.")
    hashes = ObjectField(help_text="Hashes that the training's requirements have, by name.")
    environment = serializers.CharField(help_text="Digest of Python, platform and packages; empty: not known.")
    attempts = AttemptOutput(many=True)

    def to_representation(self, instance: Ran) -> dict[str, Any]:
        source, newest = instance.source, instance.newest
        names = ("repository", "commit", "branch", "is_dirty", "diff", "left_out", "problem", "command")
        empty = Source()
        return {
            **{name: getattr(source or empty, name) for name in names},
            "left_out": list(source.left_out) if source else [],
            "code": instance.job.model.digest,
            "python": newest.python if newest else "",
            "packages": newest.packages if newest else {},
            "origins": newest.origins if newest else {},
            "hashes": instance.hashes,
            "environment": newest.digest if newest else "",
            "attempts": AttemptOutput(instance.attempts, many=True).data,
        }
