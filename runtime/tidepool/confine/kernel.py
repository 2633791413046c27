"""Calls of the Linux kernel that Python has no functions for. Each raises OSError with the call's name."""

import ctypes
import errno
import os
import platform
import struct

__all__ = [
    "NEW_IPC",
    "NEW_MOUNTS",
    "NEW_PROCESSES",
    "NEW_USER",
    "act_on_files_as",
    "add_port_rule",
    "add_rule",
    "attach_device_program",
    "bounding_set",
    "capabilities",
    "capset",
    "clone_tree",
    "create_ruleset",
    "drop_from_bounding_set",
    "join",
    "landlock_abi",
    "load_device_program",
    "machine",
    "make_readable_to_itself",
    "map_users",
    "mount",
    "move_tree",
    "no_new_privileges",
    "restrict_self",
    "set_filter",
    "set_read_only",
    "unshare",
]

NEW_MOUNTS = 0x00020000
NEW_IPC = 0x08000000
NEW_USER = 0x10000000
NEW_PROCESSES = 0x20000000

# The numbers of these calls are the same on all architectures.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446

#: Numbers of the call `bpf` by architecture, and of what it is asked for.
_BPF = {"x86_64": 321, "aarch64": 280}
_BPF_LOAD, _BPF_ATTACH, _BPF_OF_DEVICES, _BPF_AT_DEVICES = 5, 8, 15, 6

_AT_FDCWD = -100
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_FROM_EMPTY_PATH = 0x4
_ATTRIBUTE_READ_ONLY, _ATTRIBUTE_NO_SETUID, _ATTRIBUTE_NO_DEVICES, _ATTRIBUTE_MAPPED = 0x1, 0x2, 0x4, 0x100000
_RULE_PATH_BENEATH, _RULE_NET_PORT = 1, 2
_VERSION_FLAG = 1
_PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_CAP_AMBIENT = 23, 24, 38, 22, 47
_PR_SET_DUMPABLE = 4
_AMBIENT_CLEAR_ALL = 4
_SECCOMP_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


class _NetPort(ctypes.Structure):
    _fields_ = (("allowed", ctypes.c_uint64), ("port", ctypes.c_uint64))


class _FilterProgram(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def landlock_abi() -> int:
    """Return the version of Landlock. Raises OSError: ENOSYS, it was not built in; EOPNOTSUPP, it was not enabled."""
    return _checked(_syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG), "landlock_create_ruleset")


def create_ruleset(files: int, ports: int, scopes: int, size: int) -> int:
    """Return the descriptor of a ruleset. size: bytes of its attributes that the kernel knows, 8, 16 or 24."""
    attributes = (ctypes.c_uint64 * 3)(files, ports, scopes)
    return _checked(_syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0), "landlock_create_ruleset")


def act_on_files_as(user: int, group: int) -> None:
    """Have this thread open and make files as another user, with its other rights as before."""
    _libc.setfsgid(ctypes.c_uint32(group))
    _libc.setfsuid(ctypes.c_uint32(user))


def add_rule(ruleset: int, descriptor: int, allowed: int) -> None:
    """Allow these accesses to what is at or beneath the open file or folder."""
    rule = _PathBeneath(allowed, descriptor)
    _checked(_syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0), "landlock_add_rule")


def add_port_rule(ruleset: int, port: int, allowed: int) -> None:
    rule = _NetPort(allowed, port)
    _checked(_syscall(_ADD_RULE, ruleset, _RULE_NET_PORT, ctypes.byref(rule), 0), "landlock_add_rule")


def restrict_self(ruleset: int) -> None:
    """Have the ruleset apply to this thread and all that it starts, for good."""
    _checked(_syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")


def no_new_privileges() -> None:
    """Have no program gain rights by being executed: no setuid, no file capabilities."""
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def set_filter(instructions: bytes) -> None:
    """Have a program of classic BPF decide on each call of the kernel, for good."""
    memory = ctypes.create_string_buffer(instructions, len(instructions))
    program = _FilterProgram(len(instructions) // 8, ctypes.addressof(memory))
    _checked(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(program), 0, 0), "seccomp")


def load_device_program(instructions: bytes) -> int:
    """Return the descriptor of a program of BPF that decides on devices. It calls no function of the kernel."""
    memory = ctypes.create_string_buffer(instructions, len(instructions))
    license_name = ctypes.create_string_buffer(b"Proprietary")
    addresses = ctypes.addressof(memory), ctypes.addressof(license_name)
    return _bpf(_BPF_LOAD, struct.pack("=IIQQIIQII", _BPF_OF_DEVICES, len(instructions) // 8, *addresses, *[0] * 5))


def attach_device_program(group: int, program: int) -> None:
    """Have a loaded program decide for a control group, whose folder is open, in place of its program of before."""
    _bpf(_BPF_ATTACH, struct.pack("=IIII", group, program, _BPF_AT_DEVICES, 0))


def _bpf(command: int, attributes: bytes) -> int:
    number = _BPF.get(machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"bpf: its number on {machine()} is not known here")
    memory = ctypes.create_string_buffer(attributes, len(attributes))
    return _checked(_syscall(number, command, memory, ctypes.c_uint(len(attributes))), "bpf")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def join(descriptor: int, kind: int) -> None:
    """Enter an open namespace; of processes, what this process forks from now on enters it."""
    _checked(_libc.setns(descriptor, ctypes.c_int(kind)), "setns")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = (source.encode(), os.fsencode(target), kind.encode())
    _checked(_libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None), "mount", target)


def clone_tree(path: str) -> int:
    """Return the descriptor of a copy of the mounts at and below `path`, which is attached nowhere."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
    return _checked(_syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags), "open_tree", path)


def move_tree(descriptor: int, target: str) -> None:
    """Attach a copy of mounts at `target`, which exists."""
    words = (descriptor, b"", _AT_FDCWD, os.fsencode(target), _MOVE_FROM_EMPTY_PATH)
    _checked(_syscall(_MOVE_MOUNT, *words), "move_mount", target)


def set_read_only(path: str | int, *, recursive: bool = True) -> None:
    """Make the mounts at (and below) a path, or of a copy of mounts, read-only."""
    attributes = (ctypes.c_uint64 * 4)(_ATTRIBUTE_READ_ONLY, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    place = (_AT_FDCWD, os.fsencode(path)) if isinstance(path, str) else (path, b"")
    flags |= 0 if isinstance(path, str) else _AT_EMPTY_PATH
    _checked(_syscall(_MOUNT_SETATTR, *place, flags, attributes, ctypes.c_size_t(32)), "mount_setattr", str(path))


def map_users(tree: int, namespace: int) -> None:
    """Show owners in a copy of mounts as a user namespace maps them; no program or device in it has any effect."""
    wanted = _ATTRIBUTE_MAPPED | _ATTRIBUTE_NO_SETUID | _ATTRIBUTE_NO_DEVICES
    attributes = (ctypes.c_uint64 * 4)(wanted, 0, 0, namespace)
    flags = _AT_RECURSIVE | _AT_EMPTY_PATH
    _checked(_syscall(_MOUNT_SETATTR, tree, b"", flags, attributes, ctypes.c_size_t(32)), "mount_setattr")


def capabilities() -> int:
    """Return the effective capabilities of this process, a bit for each."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    _checked(_libc.capget(header, data), "capget")
    return data[0] | data[3] << 32


def capset(kept: int) -> None:
    """Keep these capabilities only; none is inherited by other programs but through uid 0."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    _libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)), "capset")


def drop_from_bounding_set(kept: int) -> None:
    """Have programs that are executed by uid 0 gain no other capabilities than these."""
    for number in range(64):
        if not kept >> number & 1 and _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
            return  # the first number that the kernel does not know


def bounding_set() -> int:
    """Return the capabilities that programs can gain by being executed, a bit for each."""
    return sum(1 << number for number in range(64) if _libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) == 1)


def make_readable_to_itself() -> None:
    """Let processes of this user read this one's records in /proc again. A change of the user ends that."""
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl")


def machine() -> str:
    return platform.machine()


def _checked(result: int, call: str, path: str | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}", path)
    return result
