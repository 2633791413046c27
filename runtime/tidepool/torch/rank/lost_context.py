"""The end of a rank whose CUDA context is lost: an error sticks to it, and every further call to its GPU fails.

Ranks that had mapped the memory of a killed one may get such an error. It is no mistake of their script, so the rank's
end is reported as one that the machine has caused. Written from NCCL's issue 863; never seen on a GPU.
"""

import torch

from tidepool.rank_exits import ContextLost

__all__ = ["context_error", "lost_by_a_death"]


def context_error(device: torch.device) -> str:
    """Return the error that sticks to this process's context of the device; "": the device takes work."""
    if device.type != "cuda":
        return ""
    try:
        torch.cuda.mem_get_info(device)  # waits for nothing
    except RuntimeError as error:
        return (str(error).splitlines() or [type(error).__name__])[0]
    return ""


def lost_by_a_death(device: torch.device) -> ContextLost | None:
    """Return the error of this rank, if its context was lost. Ask only after another rank's death."""
    found = context_error(device)
    if not found:
        return None
    return ContextLost(
        f"this rank's GPU takes no more work since another rank was killed: {found}. Other ranks go on without this "
        "one, or the training continues from its checkpoint. If it happens often, set TIDEPOOL_NCCL_RECOVERY=process "
        "on the hosts"
    )
