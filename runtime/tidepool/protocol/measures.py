"""Measures of a training by its ranks: bare numbers, for `tidepool.profile_checks` to believe or not."""

from typing import Annotated

import msgspec

from tidepool.protocol.codec import Bytes, Count, Name, Seconds

__all__ = ["SPENT_PARTS", "AdaptedBatch", "GpuMemory", "ProcessUse", "RankSigns", "RankTime", "SpentTime", "StepTimes"]

#: Something per second.
Rate = Annotated[float, msgspec.Meta(ge=0, le=1e15)]

#: Parts of a rank's time. Ranks cannot tell straggling from communication: the coordinator does.
SPENT_PARTS = (
    "data",
    "compute",
    "communication",
    "straggling",
    "optimizer",
    "checkpoint",
    "validation",
    "resize",
    "script",
)


class GpuMemory(msgspec.Struct, frozen=True):
    """Memory of a rank's GPU, as torch's allocator counts it."""

    #: Most bytes of tensors at one time so far.
    peak_bytes: Bytes
    #: Bytes that the allocator holds now, and bytes that it may hold.
    reserved_bytes: Bytes
    limit_bytes: Bytes
    #: Step in which the peak was first seen.
    peak_step: Count = 0


class ProcessUse(msgspec.Struct, frozen=True):
    """Rates of a rank's processes in the newest seconds, divided by the slots that the rank holds."""

    #: CPU seconds per second.
    cores: Rate
    #: Bytes per second from and to disks; None: the kernel does not let the executor know them.
    read_rate: Rate | None = None
    written_rate: Rate | None = None
    #: Bytes per second of its network; None: the processes have no network apart from their host's.
    received_rate: Rate | None = None
    sent_rate: Rate | None = None


class RankSigns(msgspec.Struct, frozen=True):
    """Signs of what makes a part of a rank's time long. Sums since it has joined."""

    #: CPU seconds in which the training thread has read data itself; None: workers read them.
    data_cpu_seconds: Seconds | None = None
    #: Number of reads of a tensor on a device by the script, such as `item()`, and the seconds that they have taken.
    reads: Count = 0
    read_seconds: Seconds = 0.0
    #: Line with most of these seconds, such as "train.py line 30".
    read_place: Name = ""
    #: Seconds in which the GPU has computed, by its own clock; None: the device is none.
    gpu_seconds: Seconds | None = None
    #: Bytes that a step sums over all ranks.
    sum_bytes: Bytes = 0
    #: Memory of the rank's GPU; None: its device is no GPU.
    gpu_memory: GpuMemory | None = None
    #: CPUs to which the rank is bound, such as "0-31,64-95"; "": it may use all of its host's.
    cpus: Name = ""
    #: Cores that the training may use on the rank's host; None: all of them, or not known.
    core_limit: Annotated[float, msgspec.Meta(ge=0, le=2**20)] | None = None
    #: Periods, each of a tenth of a second, since the rank has joined, and those in which these cores were used up.
    core_periods: Count = 0
    core_periods_used_up: Count = 0


class SpentTime(msgspec.Struct, frozen=True):
    """Time of a rank's training thread since it has joined."""

    #: Seconds of each of `SPENT_PARTS`.
    seconds: list[float]
    steps: int
    #: Numbers of operations, and the seconds for which the rank has waited in their sums, since the message before.
    waits: list[tuple[int, float]] = []
    #: Workers of the rank's data loader; None: not known.
    workers: Count | None = None
    signs: RankSigns = RankSigns()


class RankTime(msgspec.Struct, frozen=True):
    """Sums of a rank's time, as the coordinator has compared them with those of the others."""

    member_id: Name
    steps: Count
    #: Seconds of each of `SPENT_PARTS`.
    seconds: list[Seconds]
    #: Seconds for which the others have waited for this rank, on average over them.
    caused_seconds: Seconds = 0.0
    #: Number of compared sums, and of those into which this rank came last.
    sums: Count = 0
    last_in: Count = 0
    #: Workers of its data loader; None: not known.
    workers: Count | None = None
    signs: RankSigns = RankSigns()


class StepTimes(msgspec.Struct, frozen=True):
    """Durations of steps of one shape: medians of the newest.

    A step with `s` further micro-batches takes `s * compute_seconds + step_seconds`, and `s` times what the script does
    with a micro-batch beside its gradients.
    """

    #: The GPU's model, or "virtual GPU (CPU)".
    kind: str
    hosts: int
    ranks: int
    #: Samples of a rank's micro-batch.
    batch: int
    #: To read, forward and back-propagate one micro-batch.
    compute_seconds: float
    #: Seconds of a step with one micro-batch, including the sums over all ranks and the update.
    step_seconds: float
    #: Number of steps measured in all.
    steps: int


class AdaptedBatch(msgspec.Struct, frozen=True):
    """The batch of a training that adapts it, within which bounds, and by what."""

    #: Samples of a step: as submitted, at most, and now.
    submitted: int
    most: int
    batch: int
    #: Samples of a rank's micro-batch: at least, at most, and now.
    least_micro_batch: int
    most_micro_batch: int
    micro_batch: int
    #: A step may have further micro-batches on each rank, and how many it has now.
    accumulates: bool
    accumulation: int
    #: The loss had risen after the batch grew: it stays as it was submitted.
    pinned: bool
    #: Value of a step now, in steps at the submitted batch size; and the same summed over all steps so far.
    gain: float
    progress: float
    #: S and Q, see `tidepool.goodput.model.NoiseScale`; None: not measured yet.
    variance: float | None = None
    squared_gradient: float | None = None
    #: Factor on each parameter group's learning rate now.
    rate_factors: list[float] = []
