"""Virtual hosts of the last start that this one does not have."""

from __future__ import annotations

from pathlib import Path

from workers import actions
from workers.models import Host

__all__ = ["note_hosts", "retire_absent"]


def retire_absent(home: Path, names: list[str]) -> list[str]:
    """Drain and remove the hosts of the last start that are not in `names`; returns them. Nothing runs on them."""
    note = _note(home)
    earlier = note.read_text().split() if note.exists() else []
    absent = [name for name in earlier if name not in names]
    for host in Host.objects.filter(name__in=absent):
        if host.state == Host.State.ONLINE:
            actions.drain_host(host.name, "system")
        actions.retire_host(host.name)
    return absent


def note_hosts(home: Path, names: list[str]) -> None:
    _note(home).write_text("".join(f"{name}\n" for name in names))


def _note(home: Path) -> Path:
    return home / "run" / "hosts"
