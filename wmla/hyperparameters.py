"""Translation between WMLA's hyperparameters of a model and our settings. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.errors import field_error
from core.parameters import Scalar

__all__ = ["hyperparameters_of", "settings_of"]

#: Theirs -> ours.
_NAMES = {
    "learningrate": "learning_rate",
    "momentum": "momentum",
    "weightdecay": "weight_decay",
    "epoch": "epochs",
    "solvertype": "optimizer",
    "lrpolicy": "lr_policy",
    "gamma": "gamma",
    "stepsize": "step_size",
    "stepvalues": "step_values",
    "t_max": "t_max",
}
#: What the learning rate is multiplied by is `factor` for one policy, and `gamma` for the others.
_PLATEAU = "reducelronplateau"

#: Those that cannot be chosen -> the values that PyTorch has by itself, with which a client's form may be filled.
_FIXED: dict[str, tuple[Any, ...]] = {
    "decayrate": (),
    "decaysteps": (),
    "staircase": (),
    "maxiteration": (),
    "power": (),
    "rho": (0.9,),
    "lr_decay": (),
    "amsgrad": (),
    "lambd": (1e-4,),
    "alpha": (0.75, 0.99),
    "t0": (1e6,),
    "centered": (),
    "dampening": (),
    "nesterov": (),
    "eta_min": (),
    "mode": ("min",),
    "patience": (10,),
    "threshold": (1e-4,),
    "cooldown": (),
    "eps": (1e-6, 1e-8, 1e-10),
}


def settings_of(given: Any, batch_size: Any = None) -> dict[str, Any]:
    """Return our settings, unchecked. Refuses what is unknown here unless empty, 0, false or PyTorch's default."""
    if not isinstance(given, Mapping | None):
        raise _refused('Give hyperparameter as an object, such as {"learningrate": 0.1}.')
    values = {str(name): value for name, value in (given or {}).items()}
    settings: dict[str, Any] = {} if batch_size in (None, "") else {"batch_size": batch_size}
    policy = values.get("lrpolicy")
    if isinstance(policy, str) and policy.lower() == _PLATEAU and "factor" in values:
        settings["gamma"] = values.pop("factor")
    for name, value in values.items():
        if name in _NAMES:
            settings[_NAMES[name]] = _joined(value)
        elif name == "factor" and value not in (None, "", 0, 0.1):
            raise _refused(f"factor belongs to the policy {_PLATEAU}: leave it out, or choose that as lrpolicy.")
        elif name != "factor" and (name not in _FIXED or not _changes_nothing(name, value)):
            raise _refused(
                f"hyperparameter.{name[:50]} cannot be chosen here: there are {', '.join(_NAMES)} and factor. What a "
                "script takes besides is set in the script."
            )
    return settings


def hyperparameters_of(settings: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the hyperparameters of the chosen settings."""
    found = {name: settings[ours] for name, ours in _NAMES.items() if ours in settings}
    if settings.get("lr_policy") == _PLATEAU and "gamma" in found:
        found["factor"] = found.pop("gamma")
    return found


def _changes_nothing(name: str, value: Any) -> bool:
    return not value or (isinstance(value, str | int | float) and value in _FIXED[name])


def _joined(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _refused(sentence: str) -> Exception:
    return field_error("hyperparameter", sentence)
