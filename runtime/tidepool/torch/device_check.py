"""Check of the GPUs that torch sees, as one line of JSON: `python -m tidepool.torch.device_check`.

Each device multiplies two matrices whose product is known. Run it in a process of its own: CUDA cannot be forked.
"""

import itertools
import sys

import msgspec
import torch

from tidepool.device_report import CheckedDevice, DeviceReport

__all__ = ["check_devices"]

_SIZE = 256


def check_devices() -> DeviceReport:
    cuda = torch.version.cuda or ""
    if not cuda:
        return DeviceReport(torch=str(torch.__version__))
    try:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    except RuntimeError as error:
        return DeviceReport(torch=str(torch.__version__), cuda=cuda, error=_first_line(error))
    return DeviceReport(
        torch=str(torch.__version__),
        cuda=cuda,
        nccl=".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[no-untyped-call]
        devices=[_checked(number) for number in range(count)],
        apart=[pair for pair in itertools.combinations(range(count), 2) if not _are_peers(*pair)],
    )


def _checked(number: int) -> CheckedDevice:
    name, uuid = "unknown GPU", ""
    try:
        properties = torch.cuda.get_device_properties(number)
        name, uuid = properties.name, f"GPU-{properties.uuid}"
        free, total = torch.cuda.mem_get_info(number)
        error = _multiply(torch.device("cuda", number))
    except RuntimeError as problem:
        return CheckedDevice(name, uuid, error=_first_line(problem))
    return CheckedDevice(name, uuid, total, free, error)


def _multiply(device: torch.device) -> str:
    """Return why the device does not multiply; "": it does. The product's elements are whole numbers."""
    ones = torch.ones(_SIZE, _SIZE, device=device)
    total = (ones @ ones).sum().item()
    return "" if total == _SIZE**3 else f"a product of matrices adds up to {total:g} instead of {_SIZE**3}"


def _are_peers(one: int, other: int) -> bool:
    try:
        return torch.cuda.can_device_access_peer(one, other) and torch.cuda.can_device_access_peer(other, one)
    except RuntimeError:
        return False


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(check_devices()).decode() + "\n")
