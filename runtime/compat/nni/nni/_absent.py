"""Parts of NNI that are not here: their names, and the error of a script that asks for one of them."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["explain_imports", "sentence"]

_THERE = "get_next_parameter, report_intermediate_result, report_final_result, get_trial_id, nni.utils.merge_parameter"


def sentence(name: str) -> str:
    """Return what to tell a script that asks for this part."""
    return (
        f"{name} is not supported: a trial of a study has {_THERE} and their like, and not NNI's tuners, compression, "
        "architecture search or annotations. Remove what uses it."
    )


class _Explained:
    """The last place where Python looks for a module of `nni`."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith("nni."):
            raise ModuleNotFoundError(sentence(fullname), name=fullname)
        return None


def explain_imports() -> None:
    """Name the reason when a script imports a module of NNI that is not here. Again without effect."""
    if _Explained not in sys.meta_path:
        sys.meta_path.append(_Explained)
