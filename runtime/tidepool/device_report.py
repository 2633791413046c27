"""The report of `tidepool.torch.device_check`: what torch makes of the GPUs that this process may use."""

import msgspec

__all__ = ["CheckedDevice", "DeviceReport"]


class CheckedDevice(msgspec.Struct, frozen=True):
    name: str
    uuid: str = ""
    memory_bytes: int = 0
    free_bytes: int = 0
    #: Why it did not compute; "": it did.
    error: str = ""


class DeviceReport(msgspec.Struct, frozen=True):
    #: Why there is no report; "": there is one.
    error: str = ""
    torch: str = ""
    #: Version of CUDA that torch was built for; "": a build for CPUs.
    cuda: str = ""
    nccl: str = ""
    #: Devices that torch sees.
    devices: list[CheckedDevice] = []
    #: Pairs of devices that cannot read each other's memory.
    apart: list[tuple[int, int]] = []
