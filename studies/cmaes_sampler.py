"""Optuna's CMA-ES sampler, with the state of its optimizer in the attributes of trials as JSON.

Optuna writes a pickle there. Whoever could write into a row would then run code in the process that asks.
"""

from typing import Any

import numpy as np
from cmaes import CMA
from optuna.samplers import CmaEsSampler
from optuna.trial import FrozenTrial

__all__ = ["ATTRIBUTE_PREFIX", "JsonCmaEsSampler"]

#: Beginning of the names of all attributes that the sampler sets and reads.
ATTRIBUTE_PREFIX = "cma:"
_STATE = "cma:state"
#: History of values by which the optimizer would know that it is done. Optuna never asks that, and a part of the array
#: is not initialized.
_HISTORY = "_funhist_values"


class JsonCmaEsSampler(CmaEsSampler):
    _optimizer: CMA | None = None

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> CMA | None:
        states = (trial.system_attrs.get(_STATE) for trial in reversed(completed_trials))
        newest = next((state for state in states if state is not None), None)
        self._optimizer = None if newest is None else _optimizer(newest)
        return self._optimizer

    def _init_optimizer(self, *arguments: Any) -> CMA:
        self._optimizer = super()._init_optimizer(*arguments)
        return self._optimizer

    def _split_optimizer_str(self, optimizer_str: str) -> dict[str, Any]:
        """Return the attributes that hold the optimizer's state. `optimizer_str` is its pickle, which is dropped."""
        assert self._optimizer is not None
        return {_STATE: _state(self._optimizer)}


def _state(optimizer: CMA) -> dict[str, Any]:
    attributes = optimizer.__getstate__()
    return {name: _as_json(value) for name, value in attributes.items() if name != _HISTORY}


def _as_json(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _optimizer(state: dict[str, Any]) -> CMA:
    optimizer = CMA.__new__(CMA)
    arrays = {name: np.asarray(value) if isinstance(value, list) else value for name, value in state.items()}
    optimizer.__setstate__(arrays | {_HISTORY: np.zeros(2 * state["_funhist_term"])})
    return optimizer
