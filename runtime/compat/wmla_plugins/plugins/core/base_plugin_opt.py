"""Base class of search algorithms written for WMLA."""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["BasePluginOptimizer"]


class BasePluginOptimizer:
    """A search algorithm. Subclasses are called `PluginOptimizer`, and override `search`.

    Each call is made in a process of its own. The attributes and the random numbers of the last call are there again,
    so `get_state` and `set_state` are needed only for what cannot be pickled.
    """

    #: `minimize` or `maximize`, and the name of the metric. Not in WMLA.
    objective: str = ""
    metric: str = ""

    def __init__(self, name: str, hyper_parameters: Sequence[Mapping[str, Any]], **kwargs: Any) -> None:
        self.name = name
        self.hyper_parameters = hyper_parameters
        self.kwargs = kwargs

    def search(
        self, number_samples: int, last_exp_results: Sequence[Mapping[str, Any]] | None
    ) -> Sequence[Mapping[str, Any]]:
        """Return at most so many sets of values, parameter -> value. Fewer: no more for now; none: no more at all.

        last_exp_results: the experiments that have ended since the last call.
        """
        raise NotImplementedError("PluginOptimizer has no method search(number_samples, last_exp_results).")

    def get_state(self) -> Any:
        """Return what the next call needs beside the attributes and the random numbers."""
        return None

    def set_state(self, state: Any) -> None:
        """Continue from what `get_state` returned at the end of the last call."""
