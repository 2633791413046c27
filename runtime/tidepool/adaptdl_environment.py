"""Surroundings of a rank whose script is written for AdaptDL: the variables that it or its scripts read."""

from tidepool.env import RankContext

__all__ = ["COMPAT", "environment"]

#: The name of the folder below `compat/`.
COMPAT = "adaptdl"


def environment(context: RankContext) -> dict[str, str]:
    """Variables of the launch itself take precedence."""
    return {
        "ADAPTDL_JOB_ID": f"tidepool/{context.job}",
        # All attempts share it, data that came with the script is there, and what is written there is a result.
        "ADAPTDL_SHARE_PATH": context.launch.code_folder,
        "ADAPTDL_CHECKPOINT_PATH": str(context.folder / "checkpoint"),
        "ADAPTDL_TENSORBOARD_LOGDIR": str(context.folder / "tensorboard"),
    }
