"""Surroundings of a rank whose script is written for NNI: the variables that its scripts read."""

from tidepool.env import RankContext
from tidepool.trial_parameters import trial_below

__all__ = ["COMPAT", "REPORTS_FILE", "environment", "is_trial"]

#: Name of the folder below `compat/`.
COMPAT = "nni"
#: File of a plain script's results, below the attempt's folder.
REPORTS_FILE = "journal/nni.jsonl"


def is_trial(context: RankContext) -> bool:
    """Return whether the training is a trial of a study. Otherwise an installed `nni` comes before ours."""
    return trial_below(context.launch.code_folder).study is not None


def environment(context: RankContext) -> dict[str, str]:
    """Return the variables that NNI sets for a trial; {} for a training without a study."""
    trial = trial_below(context.launch.code_folder)
    if trial.study is None:
        return {}
    return {
        "NNI_PLATFORM": "tidepool",
        "NNI_EXP_ID": str(trial.study),
        "NNI_TRIAL_JOB_ID": str(context.job),
        "NNI_TRIAL_SEQ_ID": str(trial.number),
        "NNI_OUTPUT_DIR": str(context.folder),
        "NNI_SYS_DIR": str(context.folder),
    }
