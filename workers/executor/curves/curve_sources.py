"""Assignment of curves to sources: a curve has one.

Files of metrics are exact, what is printed is rounded and seen by chance: a file takes a curve over from a log. Of two
sources of one kind the second one's curves are named by the file or folder that they come from.
"""

from typing import Final, NamedTuple

from workers.executor.curves.growing_files import Kind
from workers.executor.curves.parsed_points import cleaned_name

__all__ = ["MAX_NAMES", "Names", "Owner"]

#: Curves of a training.
MAX_NAMES: Final = 200
_RANKS: Final[dict[Kind, int]] = {"log": 0, "csv": 1, "json": 1, "tensorboard": 1}


class Owner(NamedTuple):
    kind: Kind
    #: The stream, or the file relative to the folder that it is in.
    where: str


class Names:
    def __init__(self, owners: dict[str, Owner] | None = None) -> None:
        self.owners = owners or {}

    def name_for(self, owner: Owner, stem: str, name: str) -> str | None:
        """Return the name of the curve; None: another source gives it, or there are too many."""
        known = self.owners.get(name)
        if known == owner:
            return name
        if known is None or _RANKS[owner.kind] > _RANKS[known.kind]:
            return self._take(name, owner)
        if known.kind != owner.kind:
            return None
        longer = cleaned_name(f"{stem}/{name}")
        return longer if self.owners.get(longer, owner) == owner and self._take(longer, owner) else None

    def forget_logs(self) -> None:
        self.owners = {name: owner for name, owner in self.owners.items() if owner.kind != "log"}

    def _take(self, name: str, owner: Owner) -> str | None:
        if name not in self.owners and len(self.owners) >= MAX_NAMES:
            return None
        self.owners[name] = owner
        return name
