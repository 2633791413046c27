"""Values that hold for a job and its script unless something else is said."""

__all__ = ["CHECKPOINT_SECONDS", "GPU_IS_FULL", "KEPT_CHECKPOINTS", "LINGER_SECONDS", "STALL_SECONDS"]

#: Seconds of training that may be lost when every rank dies at once, and number of checkpoints that are kept.
CHECKPOINT_SECONDS = 60.0
KEPT_CHECKPOINTS = 2
#: Deadline in seconds for a step of a training, unless its owner has set another one.
STALL_SECONDS = 300.0
#: Seconds for which what is left of an ended script may be idle.
LINGER_SECONDS = 120.0
#: Words of a rank that has too little memory of its GPU for a communicator.
GPU_IS_FULL = "the GPU's memory is full"
