"""Process groups that plain scripts form: when they have, and the store of rank 0 that torch opens for them."""

import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from tidepool.json_sockets import tcp_sockets
from tidepool.socket_filters import refuse_other_machines

__all__ = ["watch_group"]

_LOOK_SECONDS = 0.25


def watch_group(environment: Mapping[str, str], tell: Callable[[], None]) -> None:
    """Wait until the script has formed a group, and tell it once.

    If all ranks are on this machine, the store of rank 0, which torch opens to everybody, takes no others from then on.
    environment: torchrun's variables.
    """
    is_open = environment.get("RANK") == "0" and environment.get("GROUP_WORLD_SIZE") == "1"
    while True:
        if is_open and (stores := _listening_at(int(environment["MASTER_PORT"]))):
            is_open = False
            for store in stores:
                with store:
                    refuse_other_machines(store)
        # Never imported here: only a script that has torch can have a group. It may be in the middle of importing it.
        is_initialized = getattr(sys.modules.get("torch.distributed"), "is_initialized", None)
        if is_initialized is not None and is_initialized():
            with suppress(OSError):  # the shim is gone, and this process ends with it
                tell()
            return
        time.sleep(_LOOK_SECONDS)


def _listening_at(port: int) -> list[socket.socket]:
    """Return duplicates of this process's sockets that listen at the port."""
    return [
        one.dup()
        for _, one in tcp_sockets()
        if one.getsockname()[1] == port and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    ]
