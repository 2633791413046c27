"""The protocol between the control plane, executors, shims, coordinators and ranks: messages and journal entries.

Every message is a frozen `msgspec.Struct` that travels as JSON. A message that starts a conversation has a version
number and names the job and its attempt; a message that changes something names a revision or a generation, and older
ones are dropped. A
rank's `MemberMessage` and the `CoordinatorMessage` that answers it follow a `Join`. The rules:

* `Sync` (control plane -> executor, a Celery task on `host.<name>`) carries the desired state of that host. It is
  level-triggered: losing it, doubling it or receiving an old one changes nothing.
* `Report` (executor -> control plane, a Celery task on `control`) carries all facts about that host, plus the journal
  entries that the control plane has not acknowledged yet.
* A journal is an append-only file of JSON lines in a job's folder, written before any message is sent. Its entries (see
  `tidepool.protocol.entries`) are numbered from 1 by their position in the file, so resending is harmless and needs no
  state in the executor.
"""

from tidepool.protocol import (
    codec,
    defaults,
    entries,
    envelopes,
    environments,
    first_process,
    given_secrets,
    host_facts,
    measures,
    messages,
    recordings,
    shims,
    stacks,
    stores,
)
from tidepool.protocol.codec import *  # noqa: F403
from tidepool.protocol.defaults import *  # noqa: F403
from tidepool.protocol.entries import *  # noqa: F403
from tidepool.protocol.envelopes import *  # noqa: F403
from tidepool.protocol.environments import *  # noqa: F403
from tidepool.protocol.first_process import *  # noqa: F403
from tidepool.protocol.given_secrets import *  # noqa: F403
from tidepool.protocol.host_facts import *  # noqa: F403
from tidepool.protocol.measures import *  # noqa: F403
from tidepool.protocol.messages import *  # noqa: F403
from tidepool.protocol.recordings import *  # noqa: F403
from tidepool.protocol.shims import *  # noqa: F403
from tidepool.protocol.stacks import *  # noqa: F403
from tidepool.protocol.stores import *  # noqa: F403

__all__ = [
    *codec.__all__,
    *defaults.__all__,
    *entries.__all__,
    *envelopes.__all__,
    *environments.__all__,
    *first_process.__all__,
    *given_secrets.__all__,
    *host_facts.__all__,
    *measures.__all__,
    *messages.__all__,
    *recordings.__all__,
    *shims.__all__,
    *stacks.__all__,
    *stores.__all__,
]
