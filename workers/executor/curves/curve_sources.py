"""Assignment of curves to sources: each curve has exactly one source.

Files of metrics are exact, while logs round values and are sampled, and so is what a library reports: a file takes a
curve over from both, and a library from a log. If two sources of one kind report the same metric, the second one's
curve gets the name of its file or folder as prefix.
"""

from typing import Final, NamedTuple

from workers.executor.curves.growing_files import Kind
from workers.executor.curves.parsed_points import cleaned_name

__all__ = ["MAX_NAMES", "Names", "Owner"]

#: Highest number of curves of a training.
MAX_NAMES: Final = 200
_MOST_COUNTED: Final = 10_000
#: Precedence of each kind of source.
_RANKS: Final[dict[Kind, int]] = {"log": 0, "library": 1, "csv": 2, "json": 2, "tensorboard": 2}


class Owner(NamedTuple):
    kind: Kind
    #: Name of the stream, or path of the file relative to its top folder.
    where: str


class Names:
    def __init__(self, owners: dict[str, Owner] | None = None) -> None:
        self.owners = owners or {}
        #: Names beyond the limit, as far as they are counted.
        self._left_out: set[str] = set()

    @property
    def left_out(self) -> int:
        return len(self._left_out)

    def name_for(self, owner: Owner, stem: str, name: str) -> str | None:
        """Return the name of the curve; None if another source owns it, or there are too many curves."""
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
            if len(self._left_out) < _MOST_COUNTED:
                self._left_out.add(name)
            return None
        self.owners[name] = owner
        return name
