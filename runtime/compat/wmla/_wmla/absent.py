"""Modules of WMLA that are not here: importing one says so, and what there is instead."""

from typing import NoReturn

__all__ = ["INSTEAD", "refuse"]

_PAGE = "/help/coming-from-wmla/#what-is-not-supported"
#: A module of WMLA -> what its scripts can do here.
INSTEAD = {
    "tf_parameter_mgr": "Tidepool trains PyTorch models, not TensorFlow's: import pth_parameter_mgr instead.",
    "monitor_tf": "Tidepool trains PyTorch models, not TensorFlow's or Keras's: import monitor_pth instead.",
    "inference_helper": "Tidepool trains and validates models and serves none: download the training's weights, or "
    "validate it.",
    "redhareapi": "there is no elastic inference in Tidepool, which serves no models: download the training's weights, "
    "or validate it.",
}


def refuse(module: str) -> NoReturn:
    """Refuse as a missing module is refused: scripts that can do without one catch this error."""
    raise ModuleNotFoundError(f"WMLA's {module} is not here: {INSTEAD[module]} See {_PAGE}", name=module)
