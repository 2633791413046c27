"""Choices of a column, from an enum of `jobs.states`."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["choices"]


def choices(*enums: type[StrEnum]) -> list[tuple[str, str]]:
    return [(member.value, member.value) for enum in enums for member in enum]
