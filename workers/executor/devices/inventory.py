"""Inventory of this host's GPUs, as NVML reports them: boards and their state, devices and MIG instances by UUID."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml

__all__ = ["Board", "Device", "Inventory", "address_of", "or_none", "read_inventory"]

T = TypeVar("T")

_COMPUTE_MODES = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "default",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive",
}


@dataclass(frozen=True)
class Device:
    """A GPU that a process can use: a board, or one MIG instance of it."""

    uuid: str
    model: str
    memory_bytes: int | None = None
    #: Number of its board, as NVML counts them now.
    board: int = 0


@dataclass(frozen=True)
class Board:
    """A GPU's board. None: the driver does not tell."""

    number: int
    uuid: str | None
    model: str
    #: Address as PCI has it, such as 0000:3b:00.0; "": unknown.
    address: str = ""
    #: Why the driver cannot use it; "": it can.
    error: str = ""
    #: Whether the board is divided, and so is no device itself.
    is_divided: bool = False
    #: "default", "exclusive" or "prohibited".
    compute_mode: str | None = None
    #: Memory errors that could not be corrected since the driver was loaded.
    uncorrected_errors: int | None = None
    #: Rows of memory wait for a reset to be replaced; they could not be replaced.
    remap_pending: bool = False
    remap_failed: bool = False


@dataclass(frozen=True)
class Inventory:
    #: Why there is none; "": NVML answers.
    error: str = ""
    driver: str = ""
    #: Newest version of CUDA that the driver runs; None: unknown.
    cuda: tuple[int, int] | None = None
    boards: tuple[Board, ...] = ()
    devices: tuple[Device, ...] = ()


def read_inventory() -> Inventory:
    """Return the inventory. NVML is started with each call, so that a driver that comes late is found."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Inventory(error=str(error))
    try:
        return _read()
    finally:
        or_none(pynvml.nvmlShutdown)


def _read() -> Inventory:
    count = or_none(pynvml.nvmlDeviceGetCount)
    cuda = or_none(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    if count is None:
        return Inventory(error="the driver does not tell its number of GPUs")
    boards: list[Board] = []
    devices: list[Device] = []
    for number in range(count):
        board, usable = _board(number)
        boards.append(board)
        devices += usable
    return Inventory(
        driver=or_none(pynvml.nvmlSystemGetDriverVersion) or "unknown",
        cuda=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),
        boards=tuple(boards),
        devices=tuple(devices),
    )


def _board(number: int) -> tuple[Board, list[Device]]:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(number)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
    except pynvml.NVMLError as error:
        return Board(number, None, "unknown GPU", error=str(error)), []
    model = or_none(pynvml.nvmlDeviceGetName, handle) or "unknown GPU"
    mig = or_none(pynvml.nvmlDeviceGetMigMode, handle)
    is_divided = mig is not None and mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    remapped = or_none(pynvml.nvmlDeviceGetRemappedRows, handle)
    compute_mode = or_none(pynvml.nvmlDeviceGetComputeMode, handle)
    board = Board(
        number=number,
        uuid=uuid,
        model=model,
        address=address_of(handle),
        is_divided=is_divided,
        compute_mode=None if compute_mode is None else _COMPUTE_MODES.get(compute_mode),
        uncorrected_errors=or_none(
            pynvml.nvmlDeviceGetTotalEccErrors,
            handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        ),
        remap_pending=bool(remapped and remapped[2]),
        remap_failed=bool(remapped and remapped[3]),
    )
    return board, _instances(handle, number) if is_divided else [_device(handle, uuid, model, number)]


def _device(handle: Any, uuid: str, model: str, board: int) -> Device:
    memory = or_none(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return Device(uuid, model, None if memory is None else int(memory.total), board)


def _instances(handle: Any, board: int) -> list[Device]:
    """Return the MIG instances of a divided board."""
    found = []
    for number in range(or_none(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        instance = or_none(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        uuid = None if instance is None else or_none(pynvml.nvmlDeviceGetUUID, instance)
        if uuid is not None:
            name = or_none(pynvml.nvmlDeviceGetName, instance) or "unknown MIG instance"
            found.append(_device(instance, uuid, name, board))
    return found


def address_of(handle: Any) -> str:
    """Return a board's address as PCI and the kernel have it, such as 0000:3b:00.0; "": the driver does not tell."""
    place = or_none(pynvml.nvmlDeviceGetPciInfo, handle)
    if place is None:
        return ""
    written: str | bytes = place.busId  # with eight digits of the domain, in capitals
    domain, _, rest = (written.decode() if isinstance(written, bytes) else written).lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def or_none(ask: Callable[..., T], *arguments: Any) -> T | None:
    """Return the answer of NVML; None if it fails, or its library is too old for the question."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError:
        return None
