"""Reads a compose file as `docker compose` does: YAML, merged, with the variables put in."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

__all__ = ["COMPOSE", "DOCKERFILE", "EXECUTOR", "ROOT", "Missing", "Tagged", "load", "variables_of"]

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yml"
EXECUTOR = ROOT / "docker/executor.yml"
DOCKERFILE = ROOT / "docker/Dockerfile"

_VARIABLE = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?:(?P<kind>:-|:\?|:\+)(?P<rest>[^}]*))?\})")


class Missing(ValueError):
    """A variable that must be set is not."""


class Tagged(yaml.SafeLoader):
    """YAML with Compose's tags for a value that replaces another one, or takes it away."""


def _overriding(loader: yaml.SafeLoader, node: yaml.Node) -> list[Any]:
    assert isinstance(node, yaml.SequenceNode)
    return list(loader.construct_sequence(node))


Tagged.add_constructor("!reset", lambda loader, node: None)
Tagged.add_constructor("!override", _overriding)


def load(file: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = _filled(yaml.safe_load(file.read_text()), variables)
    return found


def variables_of(file: Path) -> set[str]:
    return {match["name"] for match in _VARIABLE.finditer(file.read_text()) if match["name"]}


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _filled(inner, variables) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, variables) for inner in value]
    return _VARIABLE.sub(lambda match: _text(match, variables), value) if isinstance(value, str) else value


def _text(match: re.Match[str], variables: Mapping[str, str]) -> str:
    if match["escaped"]:
        return "$"
    given = variables.get(match["name"], "")
    if match["kind"] == ":+":
        return match["rest"] if given else ""
    if given or match["kind"] is None:
        return given
    if match["kind"] == ":?":
        raise Missing(f"{match['name']}: {match['rest']}")
    return match["rest"]
