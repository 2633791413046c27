"""Walls around the trainings of this host: which places each may read and change, and what is closed to it."""

import errno
import logging
import stat
import tempfile
from os import getuid
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from tidepool.cgroup_limits import usable
from tidepool.confine.levels import Abilities, is_at_least, standing_of
from tidepool.confine.wall import Wall
from tidepool.own_python import own_folder
from tidepool.protocol import DesiredJob, LaunchSpec, ShimSpec
from tidepool.safe_open import remove_below

from workers.executor.config import ExecutorConfig
from workers.executor.devices.files import why_not_apart
from workers.executor.devices.slot_devices import number_of_slots, recorded_uuids
from workers.executor.environments.cache import Ready
from workers.executor.environments.images import needs_folder
from workers.executor.limits import Asked
from workers.executor.slot_shares import slot_share
from workers.executor.users import NoUserError, user_of

__all__ = [
    "asked_of",
    "closed_ports",
    "is_kept_apart",
    "isolation_of",
    "remove_temporary",
    "shared_memory_of",
    "training_user",
    "tried_users",
    "wall_for",
    "why_no_training",
]

logger = logging.getLogger(__name__)

_SHARED: Final = (
    "Trainings are not kept apart, because its executor has TIDEPOOL_ISOLATION=shared: each can read and change what "
    "others have, and the files of Tidepool."
)
_UNLIMITED: Final = (
    "Trainings cannot be limited as TIDEPOOL_SLOT_MEMORY, TIDEPOOL_SLOT_CORES and TIDEPOOL_SLOT_PROCESSES say: {why}. "
    "Mend that, or unset them for its executor."
)
_UNSEALED: Final = (
    "Trainings cannot be sealed here: {why}. Mend that, or set TIDEPOOL_ISOLATION=separate or walled for its executor "
    "if that is enough for those who use it."
)
_SHARES_GPUS: Final = (
    "Trainings whose slots are on the same GPU are not kept from each other there (TIDEPOOL_SLOTS_PER_GPU={number})."
)
_LONGEST: Final = 500
_TRAININGS: Final = "batchworkdir"
_DEFAULT_PORTS: Final = {"redis": 6379, "rediss": 6379, "amqp": 5672, "amqps": 5671}


def is_kept_apart(config: ExecutorConfig, least_isolation: str) -> bool:
    """Return whether trainings are kept apart here at least as a group demands; "": it takes any host."""
    return not least_isolation or is_at_least(config.isolation, least_isolation)


def why_no_training(config: ExecutorConfig, abilities: Abilities) -> str:
    """Return why this host runs no training; "": it does."""
    standing = standing_of(abilities)
    if config.isolation == "shared":
        return ""
    if standing.level in ("walled", "separate") and config.isolation == "sealed":
        return _UNSEALED.format(why=_why_unsealed(abilities))
    if standing.level == "walled" and config.isolation == "separate":
        why = abilities.why_no_users if abilities.mounts else abilities.why_no_mounts
        return (
            f"Trainings cannot be users of their own here: {why}. Mend that, or set TIDEPOOL_ISOLATION=walled for its "
            "executor if walls are enough for those who use it."
        )
    if standing.level != "shared":
        return ""
    return (
        f"{' '.join(standing.lacks)} Nothing would keep the trainings of this host apart: set "
        "TIDEPOOL_ISOLATION=shared for its executor if all of their users trust each other."
    )


def _why_unsealed(abilities: Abilities) -> str:
    if not abilities.mounts:
        return abilities.why_no_mounts
    return abilities.why_no_devices if abilities.users else abilities.why_no_users


def isolation_of(config: ExecutorConfig, abilities: Abilities | None, why_no_limits: str = "") -> dict[str, Any]:
    """Return the fields of the host's facts about what keeps trainings apart; {}: that is not known yet.

    why_no_limits: why trainings cannot be limited as the operator has asked; "": they are, or need not be.
    """
    if why_no_limits:
        words = _UNSEALED if config.isolation == "sealed" else _UNLIMITED
        return {"isolation": "none", "isolation_lacks": [words.format(why=why_no_limits)[:_LONGEST]]}
    if config.isolation == "shared":
        return {"isolation": "shared", "isolation_lacks": [_SHARED]}
    if abilities is None:
        return {}
    if why := why_no_training(config, abilities):
        return {"isolation": "none", "isolation_lacks": [why[:_LONGEST]]}
    lacks = [*standing_of(abilities).lacks]
    if config.isolation == "sealed" and config.virtual_slots is None:
        if why := why_not_apart(recorded_uuids(config.run_folder)):
            return {"isolation": "none", "isolation_lacks": [_UNSEALED.format(why=why)]}
        if config.slots_per_gpu > 1:
            lacks.append(_SHARES_GPUS.format(number=config.slots_per_gpu))
    return {"isolation": config.isolation, "isolation_lacks": lacks}


def tried_users(config: ExecutorConfig) -> tuple[str, ...]:
    """Return the words by which a forkserver tries whether trainings can be users of their own; (): they need not."""
    if config.user_ids is None:
        return ()
    results = config.home / "results"
    places = [results if results.is_dir() else config.home, Path(tempfile.gettempdir())]
    sealed = ("--sealed",) if config.isolation == "sealed" else ()
    words = (word for place in places for word in ("--place", str(place)))
    return ("--apart", str(config.user_ids.tried), *sealed, *words)


def wall_for(config: ExecutorConfig, desired: DesiredJob, environment: Ready) -> Wall | None:
    """Return the wall of a job's processes on this host, and make its folder for temporary files; None: no wall.

    Raises NoUserError, and OSError.
    """
    if config.isolation == "shared":
        return None
    job, attempt, launch = desired.job, desired.attempt, desired.launch
    folder = Path(launch.folder).parent
    of_owner = folder.parent if folder.parent.name == _TRAININGS else folder
    given = [environment.given, environment.folder, str(needs_folder(Path(environment.folder)))]
    readable = [str(of_owner), launch.data_dir, *launch.data_folders, *(given if environment.folder else [])]
    temporary = _temporary(config, job, attempt)
    _make_private(temporary.parent)
    temporary.mkdir(mode=0o700, exist_ok=True)
    return Wall(
        hidden=_existing(config.home, config.run, *config.secret_files, broker_socket(config.broker_url)),
        readable=tuple(filter(None, [*readable, str(config.run_folder / "fabric"), *map(str, config.training_reads)])),
        writable=(launch.folder, launch.code_folder, str(own_folder(launch)), *map(str, config.training_writes)),
        temporary=str(temporary),
        closed_ports=tuple(sorted({*config.closed_ports, *closed_ports(config.broker_url)})),
        user=None if config.user_ids is None else user_of(config.user_ids, desired),
        has_own_devices=config.isolation == "sealed",
        shared_memory_bytes=shared_memory_of(
            launch,
            number_of_slots(config),
            usable().memory_bytes - config.reserved_memory_bytes,
            config.slot_limits.memory_bytes,
        ),
    )


def training_user(config: ExecutorConfig, desired: DesiredJob) -> int | None:
    """Return the number of the user that a job's processes are on this host; None: they have no wall."""
    if config.isolation == "shared":
        return None
    if config.user_ids is None:
        return getuid()
    try:
        return user_of(config.user_ids, desired)
    except NoUserError:  # it has started nothing here
        return getuid()


def shared_memory_of(
    launch: LaunchSpec, slots: int, memory_bytes: int, limit_bytes: int | Literal["share"] | None
) -> int | None:
    """Return the size in bytes of a training's /dev/shm: the memory of all slots that it may get on this host, now or
    when it grows. None: the number of slots is not known yet.

    slots: of the host. memory_bytes: what trainings may use of it. limit_bytes: of a slot, as the operator has set it.
    """
    if slots < 1 or memory_bytes <= 0:
        return None
    asked = None if launch.memory_gib_per_gpu is None else launch.memory_gib_per_gpu * 1024**3
    limit = memory_bytes // slots if limit_bytes is None or limit_bytes == "share" else limit_bytes
    return min(memory_bytes, (asked or limit) * min(launch.max_slots, slots))


def asked_of(spec: ShimSpec, config: ExecutorConfig) -> Asked:
    """Return what a job has with each of its slots on this host."""
    asks_for_cores = spec.launch.cpus_per_gpu is not None
    share = slot_share(config).memory_bytes
    return Asked(spec.launch.memory_gib_per_gpu, spec.cores_per_slot, asks_for_cores, share)


def remove_temporary(config: ExecutorConfig, job: int, attempt: int) -> None:
    """Remove the temporary files of a job that has ended here."""
    place = _temporary(config, job, attempt)
    remove_below(place.parent, [place.name])
    if place.exists():
        logger.warning("job=%s attempt=%s: temporary files are left in %s", job, attempt, place)


def closed_ports(broker_url: str) -> tuple[int, ...]:
    """Return the TCP port of the broker; () if it has none."""
    parts = urlsplit(broker_url)
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    return (port,) if parts.hostname and port else ()


def broker_socket(broker_url: str) -> Path | None:
    """Return the unix socket of the broker; None if it has none."""
    parts = urlsplit(broker_url)
    return None if parts.hostname or not parts.path.startswith("/") else Path(parts.path)


def _temporary(config: ExecutorConfig, job: int, attempt: int) -> Path:
    return Path(tempfile.gettempdir(), f"tidepool-trainings-{getuid()}", f"{config.mark}.{job}.{attempt}")


def _make_private(folder: Path) -> None:
    """Make a folder whose name every user of this machine can know. Raises OSError if another one has made it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != getuid():
        raise PermissionError(errno.EACCES, "another user of this machine has made it: remove it", str(folder))


def _existing(*places: Path | None) -> tuple[str, ...]:
    return tuple(str(place) for place in places if place is not None and place.exists())
