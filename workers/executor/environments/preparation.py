"""Environments that the control plane wants on this host before a job gets slots here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidepool.protocol import EnvironmentState, WantedEnvironment

from workers.executor.environments.cache import Environments, Failed, Ready
from workers.executor.environments.software import why_driver_is_too_old

__all__ = ["Preparation"]

#: Number of environments that are built for later use at the same time.
_AT_ONCE: Final = 2
#: Characters of a failure that are reported: its end names the cause.
_WHY_CHARACTERS: Final = 4000


@dataclass
class _Request:
    wanted: WantedEnvironment
    lines: str
    answer: Ready | Failed | None = None
    is_asked: bool = False

    @property
    def key(self) -> tuple[str, str, int]:
        """Name under which the environment is asked for."""
        return "prepared", self.wanted.key, self.wanted.number


class Preparation:
    """Requests of the control plane and their answers. Used by the supervisor's thread.

    Nothing is kept over a restart of the executor: a key that is missing in its report is asked for again.
    """

    def __init__(self, environments: Environments) -> None:
        self._environments = environments
        self._requests: dict[str, _Request] = {}

    def accept(self, wanted: Iterable[WantedEnvironment]) -> None:
        """Take the newest desired state. What it no longer has is given up, or removed."""
        newest = {one.key: one for one in wanted}
        for key in self._requests.keys() - newest.keys():
            answer = self._drop(key)
            if isinstance(answer, Ready) and answer.folder:
                self._environments.remove(answer.folder)
        for key, one in newest.items():
            known = self._requests.get(key)
            if known is not None and one.number <= known.wanted.number:
                known.wanted = one
            elif one.lines is not None:
                self._drop(key)
                self._requests[key] = _Request(one, one.lines)

    def states(self, memory: Mapping[str, int]) -> tuple[EnvironmentState, ...]:
        """Go on with what is not built yet, and return the states of all.

        memory: bytes of the forkserver of each environment that has one, by name.
        """
        self._ask()
        return tuple(_state(request, memory) for _, request in sorted(self._requests.items()))

    def _ask(self) -> None:
        building = 0
        for key, request in [*self._requests.items()]:
            if request.answer is None and building < _AT_ONCE:
                building += 1
                wanted, log = request.wanted, Path(request.wanted.log)
                request.answer = self._environments.ask(request.key, request.lines, log, is_fresh=wanted.is_fresh)
                if isinstance(request.answer, Ready) and request.answer.is_whole:
                    why = why_driver_is_too_old(request.answer)
                    request.answer = Failed(why) if why else request.answer
                request.is_asked = True
            elif isinstance(request.answer, Ready) and not _is_there(request.answer):
                self._drop(key)
            elif request.is_asked and request.answer is not None and not request.wanted.is_kept:
                self._environments.release(request.key)
                request.is_asked = False

    def _drop(self, key: str) -> Ready | Failed | None:
        request = self._requests.pop(key, None)
        if request is None:
            return None
        self._environments.release(request.key)
        return request.answer


def _is_there(environment: Ready) -> bool:
    return not environment.folder or Path(environment.folder).exists()


def _state(request: _Request, memory: Mapping[str, int]) -> EnvironmentState:
    key, number, answer = request.wanted.key, request.wanted.number, request.answer
    if answer is None:
        return EnvironmentState(key, number, "building")
    if isinstance(answer, Failed):
        return EnvironmentState(key, number, "failed", why=answer.why[-_WHY_CHARACTERS:])
    digest = Path(answer.folder).name
    return EnvironmentState(key, number, "ready", digest, "", answer.size_bytes, memory.get(digest))
