"""Real groups whose members are threads of the test's own process."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from tidepool.torch.comm.process_group import Group, make_group
from torch.distributed import TCPStore

SECONDS = 120.0  # a machine that runs the suite is busy


@contextmanager
def groups(size: int) -> Iterator[list[Group]]:
    """One group as each of its members sees it."""
    store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=SECONDS), wait_for_workers=False)

    def member(rank: int) -> Group:
        return make_group(
            address="127.0.0.1",
            store_address="127.0.0.1",
            store_port=store.port,
            prefix="test",
            generation=2,
            rank=rank,
            size=size,
            device=torch.device("cpu"),
        )

    made = together(*[lambda rank=rank: member(rank) for rank in range(size)])
    try:
        yield made
    finally:
        for group in made:
            group.break_off()
            group.drop()


def together(*work: Callable[[], Any]) -> list[Any]:
    """Results of all of `work`, each done by a thread of its own. Raises what the first of them raised."""
    with ThreadPoolExecutor(len(work)) as pool:
        return [future.result(SECONDS) for future in [pool.submit(one) for one in work]]
