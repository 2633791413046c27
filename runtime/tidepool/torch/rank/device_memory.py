"""Memory of a rank's GPU: its peak, what torch's allocator holds, and the limit."""

import torch

from tidepool.protocol import GpuMemory

__all__ = ["DeviceMemory"]

#: Seconds between two looks. Each takes some tens of microseconds.
_PAUSE_SECONDS = 2.0


class DeviceMemory:
    """Readings of one device, between two steps, by the thread that trains.

    The allocator's lock may be held for as long as a GPU hangs, so the thread of the heartbeats never asks for it. The
    allocator's peak is never reset: scripts read it, too.
    """

    def __init__(self, device: torch.device | None) -> None:
        self._device = device if device is not None and device.type == "cuda" else None
        self._looked_at: float | None = None
        #: Memory of the rank's GPU; None: its device is no GPU.
        self.newest: GpuMemory | None = None

    def look(self, step: int, now: float) -> None:
        """Read the memory if it is time to. now: monotonic seconds."""
        if self._device is None or (self._looked_at is not None and now - self._looked_at < _PAUSE_SECONDS):
            return
        self._looked_at = now
        peak, reserved = torch.cuda.max_memory_allocated(self._device), torch.cuda.memory_reserved(self._device)
        free, _ = torch.cuda.mem_get_info(self._device)
        before = self.newest
        seen_at = before.peak_step if before is not None and before.peak_bytes == peak else step
        # CUDA itself and other processes of the GPU have the rest.
        self.newest = GpuMemory(peak, reserved, reserved + free, seen_at)
