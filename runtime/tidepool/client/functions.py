"""Functions as trainings."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidepool.client.api import Client
from tidepool.client.calls import as_package, packed, refuse_other_software
from tidepool.client.training import Job

__all__ = ["submit_function"]


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
    name: str | None = None,
    key: str | None = None,
    **given: Any,
) -> Job:
    """Submit a call of it, to be made by each of so many processes; `job.value()` gives what rank 0 returned.

    elastic: it uses a `Session`, and has at least `min_processes`; else it has all of them, and finds torchrun's
    variables where there are several. as_torchrun: also where it is alone. given: as to `Client.plan`. Raises TypeError
    for what cannot be sent, InvalidRequest where the cluster could not load it; nothing has been submitted then.
    """
    call = packed(function, arguments, keywords or {})
    if not client.loads_calls:
        refuse_other_software(call, client.software())
        client.loads_calls = True
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
