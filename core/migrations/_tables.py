"""An operation for the first migration of an app with many models."""

from collections.abc import Sequence
from typing import Any

from django.db import migrations
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

__all__ = ["CreateModels"]


class CreateModels(Operation):
    """Models of an app, which may refer to each other, at once.

    After each CreateModel Django renders again whatever the model refers to, and all that refers to that: for 31 models
    it takes seconds, at each start in an empty home.
    """

    def __init__(self, operations: Sequence[migrations.CreateModel]) -> None:
        self.operations = operations

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        state.__dict__.pop("apps", None)
        for operation in self.operations:
            operation.state_forwards(app_label, state)

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        for operation in self.operations:
            operation.database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        for operation in reversed(self.operations):
            operation.database_backwards(app_label, schema_editor, from_state, to_state)

    def describe(self) -> str:
        return f"Create {len(self.operations)} models"
