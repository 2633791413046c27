"""The importance of each parameter for reaching the best values of a study, by PED-ANOVA."""

import math
from collections.abc import Sequence

from studies.trials import PastTrial, Search

__all__ = ["FEWEST_TRIALS", "importance"]

#: Number of finished trials below which no importance is given: the best tenth would be less than one trial.
FEWEST_TRIALS = 10


def importance(search: Search, trials: Sequence[PastTrial]) -> dict[str, float]:
    """Return parameter -> its part of the importance, most important first; the parts have the sum 1.

    Empty if fewer than ten trials have finished, or all with the same value. Loads Optuna.
    """
    finished = [
        trial
        for trial in trials
        if trial.state == "complete" and trial.value is not None and math.isfinite(trial.value)
    ]
    if len(finished) < FEWEST_TRIALS or len({trial.value for trial in finished}) == 1:
        return {}
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    from studies import optuna_study

    with optuna_study.quiet():
        number = max(trial.number for trial in finished) + 1
        study = optuna_study.past_study(search.space, search.goal, finished, number)
        parts = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return parts if any(part > 0 for part in parts.values()) else {}
