"""Functions as trainings."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidepool.client.api import Client
from tidepool.client.calls import as_package, missing_words, packed, refuse_other_software
from tidepool.client.training import Job

__all__ = ["submit_function"]

logger = logging.getLogger(__name__)


def submit_function(
    client: Client,
    function: Callable[..., Any],
    arguments: Sequence[Any] = (),
    keywords: Mapping[str, Any] | None = None,
    *,
    processes: int = 1,
    elastic: bool = False,
    as_torchrun: bool = False,
    min_processes: int = 1,
    on_cpus: bool = False,
    name: str | None = None,
    key: str | None = None,
    cell: str = "",
    **given: Any,
) -> Job:
    """Submit a call of the function, which each process makes; `job.value()` returns rank 0's result.

    elastic: the function uses a `Session`, and runs on at least `min_processes`; otherwise it runs on all processes,
    with torchrun's variables if there are several. as_torchrun: set them also for a single process. on_cpus: run all
    processes on the CPUs of one host, whose GPU is held only once. cell: source of the cell that the function runs.
    given: as for `Client.plan`. A warning names the modules that the cluster lacks. Raises TypeError for objects that
    cannot be sent, and InvalidRequest if the cluster could not load the call; nothing is submitted then.
    """
    call = packed(function, arguments, keywords or {}, cell=cell)
    if on_cpus and processes > 1:
        call = replace(call, facts=replace(call.facts, cpu_processes=processes))
        processes, as_torchrun = 1, False
    software = client.software()
    refuse_other_software(call, software)
    for sentence in missing_words(call, software, given.get("requirements") or ""):
        logger.warning("%s", sentence)
    engine = "elastic" if elastic else "fixed" if processes > 1 or as_torchrun else "single"
    title = call.facts.name.strip("<>")
    with as_package(call) as code:
        planned = client.plan(
            code,
            engine=engine,
            name=name or f"{title}-{time.strftime('%Y%m%d-%H%M%S')}",
            max_slots=processes,
            min_slots=min_processes if elastic else processes,
            **given,
        )
    return client.send(planned, key=key)
