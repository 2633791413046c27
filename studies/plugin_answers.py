"""The answer of a plug-in: a file that a user's code has written, read as such. Pure: bytes in, checked values out."""

import json
from collections.abc import Mapping
from typing import Any

from core.errors import UserError
from core.parameters import Scalar
from studies.space import Space, checked_point

__all__ = ["MAX_ANSWER_BYTES", "BadAnswer", "proposals_in"]

MAX_ANSWER_BYTES = 8 * 1024**2


class BadAnswer(ValueError):
    """The end of a sentence that says what is wrong with the answer."""


def proposals_in(content: bytes, space: Space, samples: int) -> list[dict[str, Scalar]]:
    """Return the values of each proposal. Raises BadAnswer unless all are values of the space.

    samples: number of proposals that were asked for.
    """
    points = _points(content)
    if len(points) > samples:
        raise BadAnswer(f"it proposes {len(points):,} sets of values, and {samples:,} were asked for.")
    found = []
    for number, point in enumerate(points):
        try:
            found.append(checked_point(space, point))
        except UserError as error:
            raise BadAnswer(f"its proposal {number + 1} cannot be tried: {error.message}") from None
    return found


def _points(content: bytes) -> list[Mapping[str, Any]]:
    if len(content) > MAX_ANSWER_BYTES:
        raise BadAnswer(f"its answer is larger than {MAX_ANSWER_BYTES // 1024**2} MiB.")
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        raise BadAnswer("its answer is not JSON.") from None
    points = answer.get("proposals") if isinstance(answer, dict) else None
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        raise BadAnswer("its answer is not a list of values for each parameter.")
    return points
