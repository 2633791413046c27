"""NNI's functions for the script of a trial: it asks for its values, and reports its results.

In a study, each trial gets the values that the study proposes. The results become the metric `default` of the training.
Off the cluster there are no values, and results are printed, as NNI does where a script runs alone.
"""

from collections.abc import Mapping
from typing import Any

from tidepool.env import rank_context
from tidepool.trial_parameters import trial

from nni import _absent

__all__ = [
    "get_current_parameter",
    "get_experiment_id",
    "get_next_parameter",
    "get_next_parameters",
    "get_sequence_id",
    "get_trial_id",
    "report_final_result",
    "report_intermediate_result",
]

#: Name of the metric that a study from NNI's file looks at.
_DEFAULT = "default"
_ALONE = "STANDALONE"
#: Values of the trial, once the script has asked for them.
_asked: list[dict[str, Any]] = []
#: Number of intermediate results so far.
_count = 0

_absent.explain_imports()


def get_next_parameter() -> dict[str, Any]:
    """Return the values of the trial: name -> value; {} without a study."""
    values = dict(trial().params)
    if trial().study is None:
        print("nni: this script runs without a study, so get_next_parameter() returns {}")  # noqa: T201
    _asked[:] = [values]
    return values


get_next_parameters = get_next_parameter


def get_current_parameter(tag: str | None = None) -> Any:
    """Return the values that `get_next_parameter` has returned, or one of them; None before."""
    if not _asked:
        return None
    return _asked[0] if tag is None else _asked[0][tag]


def report_intermediate_result(metric: Any) -> None:
    """Report a number, or numbers by name with `default` among them."""
    global _count
    _count += 1
    _report(f"Intermediate result: {metric}  (Index {_count - 1})", metric)


def report_final_result(metric: Any) -> None:
    """Report the result of the trial: a number, or numbers by name with `default` among them."""
    _report(f"Final result: {metric}", metric)


def get_experiment_id() -> str:
    """Return the number of the study; STANDALONE without one."""
    study = trial().study
    return _ALONE if study is None else str(study)


def get_trial_id() -> str:
    """Return the number of the training; STANDALONE off the cluster."""
    context = rank_context()
    return _ALONE if context is None else str(context.job)


def get_sequence_id() -> int:
    """Return the number of the trial within its study, from 0."""
    return trial().number or 0


def _report(sentence: str, metric: Any) -> None:
    numbers = _numbers(metric)
    context = rank_context()
    if context is None:
        print(f"nni: {sentence}")  # noqa: T201
        return
    # Here, because the client's wheel has this module and not what ranks require.
    from tidepool.nni_reports import report

    if not report(context, _count, numbers):
        print(f"nni: {sentence}. It is not recorded, because the training has not begun.")  # noqa: T201


def _numbers(metric: Any) -> dict[str, float]:
    """Return the numbers by name. Raises ValueError without a number for the study."""
    given = metric if isinstance(metric, Mapping) else {_DEFAULT: metric}
    found = {}
    for name, value in given.items():
        try:
            # Tensors and numbers of numpy count; a text is none.
            found[str(name)] = float(value) if not isinstance(value, str | bytes) else float("")
        except (TypeError, ValueError):
            continue
    if _DEFAULT not in found:
        raise ValueError(f"{metric!r:.200} is not a result: report a number, or a dict with a number as `default`.")
    return found


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'nni' has no attribute {name!r}")
    raise AttributeError(_absent.sentence(f"nni.{name}"))
