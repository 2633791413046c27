"""Numbers of messages that have been taken, so that none is taken twice."""

from collections import deque

__all__ = ["SeenNumbers"]

#: Numbers that are remembered; whatever is older than all of them counts as seen.
_MOST = 4096


class SeenNumbers:
    """Numbers in the order in which they came, which need not be theirs."""

    def __init__(self, most: int = _MOST) -> None:
        self._order: deque[int] = deque()
        self._known: set[int] = set()
        self._most = most
        #: Highest number that is forgotten.
        self._forgotten = -1

    def is_new(self, number: int) -> bool:
        """Return whether the number has not come before, and remember it."""
        if number <= self._forgotten or number in self._known:
            return False
        self._order.append(number)
        self._known.add(number)
        if len(self._order) > self._most:
            oldest = self._order.popleft()
            self._known.remove(oldest)
            self._forgotten = max(self._forgotten, oldest)
        return True
