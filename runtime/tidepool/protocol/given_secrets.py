"""Secrets of users on their way from an executor to the ranks of a training."""

import msgspec

__all__ = ["GivenSecret"]


class GivenSecret(msgspec.Struct, frozen=True):
    """A secret of a user's that the ranks of a training get. In memory alone: no file, log or row contains it."""

    #: Variable of the environment that has the value, or the path of a file with it.
    name: str
    value: str
    is_file: bool = False

    def __repr__(self) -> str:
        return f"GivenSecret({self.name!r})"
