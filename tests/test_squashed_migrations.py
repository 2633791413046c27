"""Squashed migrations make what the migrations that they replace make, for a home of any version."""

from itertools import chain
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState

Key = tuple[str, str]


def _steps() -> list[Key]:
    """Return all migrations but the squashed ones, in an order in which they can be applied."""
    loader = MigrationLoader(None, replace_migrations=False)
    squashed = loader.replacements.keys()
    plans = [loader.graph.forwards_plan(leaf) for leaf in loader.graph.leaf_nodes() if leaf not in squashed]
    return list(dict.fromkeys(chain.from_iterable(plans)))


def _state_after(steps: list[Key]) -> ProjectState:
    loader, state = MigrationLoader(None, replace_migrations=False), ProjectState()
    for key in steps:
        state = loader.graph.nodes[key].mutate_state(state, preserve=False)
    return state


def _models(state: ProjectState) -> dict[Key, Any]:
    """Return each model without the order of its fields, indexes and constraints."""
    for model in state.models.values():
        for kind in ("indexes", "constraints"):
            if kind in model.options:
                model.options[kind] = sorted(model.options[kind], key=lambda one: one.name)
    return state.models


def _replaced() -> set[Key]:
    return {key for migration in MigrationLoader(None).replacements.values() for key in migration.replaces}


def test_they_lead_to_the_same_models() -> None:
    assert _models(MigrationLoader(None).project_state()) == _models(_state_after(_steps()))


def test_each_replaces_all_migrations_of_its_app_so_far() -> None:
    last = dict(sorted(_replaced()))
    assert _replaced() == {(app, name) for app, name in _steps() if name <= last.get(app, "")}


@pytest.mark.django_db
def test_a_home_of_any_version_gets_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = _steps()
    for count in range(len(steps) + 1):
        applied = dict.fromkeys(steps[:count])
        monkeypatch.setattr(MigrationRecorder, "applied_migrations", lambda self, applied=applied: applied)
        executor = MigrationExecutor(connection)
        executor.loader.check_consistent_history(connection)
        plan = [migration for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
        found = [key for migration in plan for key in migration.replaces or [(migration.app_label, migration.name)]]
        assert sorted(found) == sorted(steps[count:]), f"after {steps[count - 1]}"
