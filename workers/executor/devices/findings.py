"""Findings about this host in sentences: what is here, what is missing, and what to do. All functions are pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from tidepool.device_report import DeviceReport

from workers.executor.devices.health import is_hardware
from workers.executor.devices.inventory import Board, Inventory
from workers.executor.devices.kernel_log import XidError

__all__ = ["Finding", "HostState", "findings", "gpu_problem", "software_words"]

#: Shared memory that workers of data loaders and NCCL need at least.
LEAST_SHM_BYTES = 2**30
#: Lockable memory that InfiniBand needs at least.
LEAST_MEMLOCK_BYTES = 2**30
LEAST_FREE_BYTES = 10 * 2**30
#: Share of a device's memory that is taken while nothing of Tidepool's runs on it.
_FULL = 0.1

Level = Literal["ok", "warning", "missing"]


@dataclass(frozen=True)
class Finding:
    """missing: trainings cannot use the GPUs of this host as they should. warning: they can, with a drawback."""

    level: Level
    about: str
    sentence: str
    #: Words on what to do; "": nothing.
    remedy: str = ""


@dataclass(frozen=True)
class HostState:
    inventory: Inventory
    torch: DeviceReport
    #: Number of virtual slots that the host is to offer; None: its real GPUs.
    virtual_slots: int | None = None
    #: Errors of GPUs in the kernel's log, the oldest first; None: it may not be read.
    xids: tuple[XidError, ...] | None = ()
    shm_bytes: int | None = None
    #: Memory that a process may lock; None: no limit.
    memlock_bytes: int | None = None
    #: Names of InfiniBand devices that the kernel knows, and of the files by which processes use them.
    infiniband: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    #: Free memory of the disk with TIDEPOOL_HOME, by its path.
    free_bytes: dict[str, int] = field(default_factory=dict)


def findings(host: HostState) -> list[Finding]:
    """Return all findings, in the order in which an operator reads them."""
    return [*_gpus(host), *_memory(host), *_network(host), *_disks(host)]


def gpu_problem(inventory: Inventory, torch: DeviceReport) -> str:
    """Return in a sentence what keeps trainings from this host's GPUs, with the remedy; "": nothing."""
    found = [each for each in _gpus(HostState(inventory, torch)) if each.level == "missing"]
    return f"{found[0].sentence} {found[0].remedy}".strip() if found else ""


def software_words(inventory: Inventory, torch: DeviceReport) -> str:
    """Return the versions that decide whether GPUs work: driver, CUDA, torch, NCCL."""
    cuda = "" if inventory.cuda is None else f" (CUDA {_version(inventory.cuda)})"
    parts = [f"driver {inventory.driver}{cuda}"] if inventory.driver else []
    parts += [f"torch {torch.torch}"] if torch.torch else []
    parts += [f"NCCL {torch.nccl}"] if torch.nccl else []
    return ", ".join(parts)


def _gpus(host: HostState) -> Iterator[Finding]:
    inventory, torch = host.inventory, host.torch
    if torch.error:
        yield Finding("missing", "torch", f"torch cannot be tested: {torch.error}.", "Mend what the sentence names.")
    elif torch.torch:
        yield _torch_found(torch)
    if host.virtual_slots is not None:
        yield Finding("ok", "GPUs", f"This host offers {host.virtual_slots} virtual GPUs, which are CPU processes.")
        return
    if inventory.error:
        yield Finding(
            "missing",
            "driver",
            f"The NVIDIA driver does not answer: {inventory.error}.",
            "Install the driver, and check that nvidia-smi lists the GPUs; in a container, pass the GPUs to it. For "
            "virtual GPUs, set TIDEPOOL_VIRTUAL_SLOTS.",
        )
        return
    yield Finding("ok", "driver", f"The NVIDIA driver is {inventory.driver}{_up_to(inventory)}.")
    if not inventory.boards:
        yield Finding(
            "missing", "GPUs", "The driver finds no GPU.", "Check with nvidia-smi and lspci that it is seated."
        )
        return
    for board in inventory.boards:
        yield from _board(board, [one for one in inventory.devices if one.board == board.number] != [])
    yield from _past_errors(host)
    models = sorted({board.model for board in inventory.boards if not board.error})
    if len(models) > 1:
        yield Finding(
            "warning",
            "GPUs",
            f"The GPUs are of {len(models)} models ({', '.join(models)}): a training of exactness bitwise may get any "
            "of them, and other results on each.",
            "If such trainings are to run here, give the GPUs of each model to an executor in a container of its own.",
        )
    yield from _torch_against_driver(inventory, torch)


def _torch_found(torch: DeviceReport) -> Finding:
    built = f"for CUDA {torch.cuda}" if torch.cuda else "for CPUs"
    nccl = f", with NCCL {torch.nccl}" if torch.nccl else ""
    return Finding("ok", "torch", f"torch {torch.torch} is built {built}{nccl}.")


def _up_to(inventory: Inventory) -> str:
    return "" if inventory.cuda is None else f", for CUDA up to {_version(inventory.cuda)}"


def _board(board: Board, is_usable: bool) -> Iterator[Finding]:
    name = f"GPU {board.number} ({board.model})"
    if board.error:
        yield Finding("missing", "GPUs", f"GPU {board.number} does not answer: {board.error}.", _RESET)
        return
    if board.is_divided and not is_usable:
        yield Finding(
            "missing",
            "GPUs",
            f"{name} is in MIG mode and has no instance.",
            "Create instances with nvidia-smi mig, or switch MIG off with nvidia-smi -mig 0.",
        )
    elif board.is_divided:
        yield Finding("ok", "GPUs", f"{name} is divided by MIG: each instance is a slot, and they sum over gloo.")
    else:
        yield Finding("ok", "GPUs", f"{name} answers.")
    if board.compute_mode == "prohibited":
        yield Finding(
            "missing", "GPUs", f"{name} is in compute mode prohibited.", f"Run nvidia-smi -i {board.number} -c DEFAULT."
        )
    elif board.compute_mode == "exclusive":
        yield Finding(
            "warning",
            "GPUs",
            f"{name} is in compute mode exclusive: a rank's successor has to wait for its end.",
            f"Run nvidia-smi -i {board.number} -c DEFAULT.",
        )
    if board.remap_failed:
        yield Finding("missing", "GPUs", f"{name} could not replace broken rows of its memory.", "Replace the GPU.")
    elif board.remap_pending:
        yield Finding("warning", "GPUs", f"{name} has rows of memory to replace at its next reset.", _RESET)
    if board.uncorrected_errors:
        yield Finding(
            "warning",
            "GPUs",
            f"{name} has had {board.uncorrected_errors} memory errors that could not be corrected.",
            _RESET,
        )


def _past_errors(host: HostState) -> Iterator[Finding]:
    """Say which Xid errors each GPU has had since the machine was started."""
    if host.xids is None:
        yield Finding(
            "ok",
            "GPUs",
            "Earlier errors of the GPUs (Xid) are not known: the kernel's log may not be read.",
            "Run this as root to see them.",
        )
        return
    for address in dict.fromkeys(each.address for each in host.xids):
        numbers = [each.number for each in host.xids if each.address == address]
        faults = sorted({number for number in numbers if is_hardware(number)})
        name = next(
            (f"GPU {board.number} ({board.model})" for board in host.inventory.boards if _is_at(board, address)),
            f"A GPU at {address}",
        )
        since = "since the machine was started"
        if faults:
            told = ", ".join(f"{numbers.count(number)} of Xid {number}" for number in faults)
            yield Finding("warning", "GPUs", f"{name} has had errors of its hardware {since}: {told}.", _RESET)
        else:
            told = ", ".join(map(str, sorted(set(numbers))))
            yield Finding("ok", "GPUs", f"{name} has had Xid {told} {since}, which scripts cause.")


def _is_at(board: Board, address: str) -> bool:
    """Return whether a board has that address, which the kernel's log gives without the last part."""
    return bool(board.address) and board.address.partition(".")[0] == address.partition(".")[0]


_RESET = "Drain the host and restart it, or reset the GPU with nvidia-smi --gpu-reset."


def _torch_against_driver(inventory: Inventory, torch: DeviceReport) -> Iterator[Finding]:
    if torch.error or not torch.torch:
        return
    if not torch.cuda:
        yield Finding(
            "missing",
            "torch",
            f"torch {torch.torch} is a build for CPUs: trainings would not use the GPUs.",
            "Install the build for CUDA, as pytorch.org shows, and start the executor again.",
        )
        return
    wanted = int(torch.cuda.split(".")[0])
    if inventory.cuda is not None and inventory.cuda[0] < wanted:
        yield Finding(
            "missing",
            "driver",
            f"The driver {inventory.driver} runs CUDA up to {_version(inventory.cuda)}, and torch {torch.torch} needs "
            f"CUDA {wanted}: trainings would not see the GPUs.",
            "Install a newer driver, or a torch for an older CUDA.",
        )
        return
    broken = [f"{one.name}: {one.error}" for one in torch.devices if one.error]
    if broken:
        yield Finding("missing", "torch", f"torch cannot compute on {'; '.join(broken)}.", _RESET)
    # Torch sees whole boards, or a single instance where all boards are divided.
    seen = sum(not board.is_divided and not board.error for board in inventory.boards)
    if not seen and inventory.devices and not torch.devices:
        yield Finding(
            "missing",
            "torch",
            "The driver has MIG instances and torch sees none of them.",
            "Check that the files in /dev/nvidia-caps can be read; in a container, pass them to it.",
        )
    if len(torch.devices) < seen:
        yield Finding(
            "missing",
            "torch",
            f"The driver has {seen} GPUs and torch sees {len(torch.devices)} of them.",
            "Check that /dev/nvidia* can be read, and that the driver was not updated without a restart.",
        )
    if torch.apart:
        pairs = ", ".join(f"{one} and {other}" for one, other in torch.apart[:4])
        yield Finding(
            "warning",
            "GPUs",
            f"GPUs {pairs} cannot read each other's memory: NCCL takes the way through the host's.",
        )
    full = [one for one in torch.devices if one.memory_bytes and one.free_bytes < (1 - _FULL) * one.memory_bytes]
    if full:
        yield Finding(
            "warning",
            "GPUs",
            f"{len(full)} of {len(torch.devices)} GPUs have memory in use.",
            "If no training runs here, nvidia-smi shows which processes hold it.",
        )


def _memory(host: HostState) -> Iterator[Finding]:
    if host.shm_bytes is not None and host.shm_bytes < LEAST_SHM_BYTES:
        yield Finding(
            "warning",
            "shared memory",
            f"Shared memory (/dev/shm) is {_mib(host.shm_bytes)}: data loaders and NCCL may end with a bus error.",
            "Give it 1 GiB at least; for a container, set shm_size.",
        )
    elif host.shm_bytes is not None:
        yield Finding("ok", "shared memory", f"Shared memory (/dev/shm) is {_mib(host.shm_bytes)}.")


def _network(host: HostState) -> Iterator[Finding]:
    if not host.infiniband:
        yield Finding("ok", "network", "There is no InfiniBand: ranks on several hosts use sockets.")
        return
    names = ", ".join(host.infiniband)
    if not host.verbs:
        yield Finding(
            "warning",
            "network",
            f"InfiniBand ({names}) is here and /dev/infiniband is not: NCCL uses sockets, without a word.",
            "Pass /dev/infiniband to the container, or load ib_uverbs.",
        )
    elif host.memlock_bytes is not None and host.memlock_bytes < LEAST_MEMLOCK_BYTES:
        yield Finding(
            "warning",
            "network",
            f"A process may lock {_mib(host.memlock_bytes)} of memory, too little for InfiniBand ({names}).",
            "Set LimitMEMLOCK=infinity in the service, or the ulimit memlock -1 of the container.",
        )
    else:
        yield Finding("ok", "network", f"InfiniBand ({names}) can be used.")


def _disks(host: HostState) -> Iterator[Finding]:
    for folder, free in host.free_bytes.items():
        if free < LEAST_FREE_BYTES:
            yield Finding(
                "warning",
                "disk",
                f"{folder} has {_mib(free)} free: checkpoints and environments need more.",
                "Make room there.",
            )
        else:
            yield Finding("ok", "disk", f"{folder} has {_mib(free)} free.")


def _version(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]}.{numbers[1]}"


def _mib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
