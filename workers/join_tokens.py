"""Join tokens: an administrator creates one, and a machine exchanges it for the configuration of an executor."""

import hashlib
import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import F
from django.utils import timezone
from tidepool.protocol import PROTOCOL_VERSION

from core.audit.entries import audit
from core.errors import Conflict, NotAllowed, NotFound, field_error
from workers.actions import enroll_host
from workers.broker_users import admit, expel
from workers.host_keys import new_key
from workers.join_limits import JoinLimits
from workers.models import Host, JoinToken

__all__ = [
    "MOST_HOSTS",
    "MOST_HOURS",
    "Invitation",
    "create_join_token",
    "join_command",
    "join_command_of_containers",
    "redeem",
    "withdraw_join_token",
]

MOST_HOSTS = 1000
MOST_HOURS = 24 * 30
#: Seconds that an executor has from the exchange of its token to its first report. Its name is taken meanwhile.
_START_SECONDS = 120
#: File in the folder of results with a random mark: equal marks mean the same folder.
_MARK = ".tidepool"


@dataclass(frozen=True)
class Invitation:
    """Configuration of an executor. The broker's password and the host's key are secrets."""

    host: str
    broker_url: Annotated[str, "URL of the broker with the executors' password."]
    results: Annotated[str, "Folder that all hosts share."]
    data_roots: list[str]
    key: Annotated[str, "Key by which the host and the site sign their messages."]
    mark: Annotated[str, "Content of `.tidepool` in the folder of results."]
    protocol: int = PROTOCOL_VERSION


@transaction.atomic
def create_join_token(
    actor: AbstractBaseUser | str,
    *,
    hosts: int = 1,
    hours: float = 24,
    names: Sequence[str] = (),
    networks: Sequence[str] = (),
) -> tuple[str, JoinToken]:
    """Create a token for a number of hosts, of these names and networks alone. It cannot be read again later."""
    if not 1 <= hosts <= MOST_HOSTS:
        raise field_error("hosts", f"A token is for 1 to {MOST_HOSTS} hosts.")
    if not 0 < hours <= MOST_HOURS:
        raise field_error("hours", f"A token is valid for more than 0 and at most {MOST_HOURS} hours.")
    limits = JoinLimits.checked(names, networks)
    _executors_broker()
    now = timezone.now()
    JoinToken.objects.filter(expires_at__lte=now).delete()
    token = f"join_{secrets.token_urlsafe(32)}"
    row = JoinToken.objects.create(
        digest=_digest(token),
        hosts_left=hosts,
        expires_at=now + timedelta(hours=hours),
        names=limits.names,
        networks=limits.networks,
        created_by=actor if isinstance(actor, str) else actor.get_username(),
    )
    given = {"names": row.names, "networks": row.networks}
    after = {"hosts": hosts, "expires_at": row.expires_at, **{name: value for name, value in given.items() if value}}
    audit(actor, "created", kind="join token", key=row.pk, name=f"join token {row.pk}", after=after)
    return token, row


def join_command(site: str, token: str) -> str:
    """Return the command for a machine with a checkout and its packages. site: URL at which it reaches the site."""
    return f"python -m workers.executor.join --url {site} --token {token}"


def join_command_of_containers(site: str, token: str) -> str:
    variables = f"TIDEPOOL_URL={site} TIDEPOOL_JOIN_TOKEN={token} TIDEPOOL_POOL=/mnt/pool"
    return f"{variables} docker compose -f docker/executor.yml up -d --build"


@transaction.atomic
def withdraw_join_token(actor: AbstractBaseUser, pk: int) -> None:
    row = JoinToken.objects.select_for_update().filter(pk=pk).first()
    if row is None:
        raise NotFound("Join token not found: it has expired or was used up.")
    before = {"hosts": row.hosts_left, "expires_at": row.expires_at}
    audit(actor, "revoked", kind="join token", key=pk, name=f"join token {pk}", before=before)
    row.delete()


@transaction.atomic
def redeem(token: str, host: str, address: str = "", *, own_user: bool = False) -> Invitation:
    """Use the token for one host, and return its configuration.

    address: of the machine, as the site sees it. own_user: whether its executor can have its own user of the broker.
    """
    row = JoinToken.objects.select_for_update().filter(digest=_digest(token), expires_at__gt=timezone.now()).first()
    if row is None:
        raise NotAllowed(
            "The join token is wrong, has expired, was revoked or is used up: ask an administrator for a new one.",
            code="join_token",
        )
    if why := JoinLimits(row.names, row.networks).why_refused(host, address):
        raise NotAllowed(why, code="join_token")
    enroll_host(host, f"join token {row.pk}")
    _take_name(host)
    invitation = Invitation(
        host=host,
        key=new_key(host),
        broker_url=_broker_url(host, own_user),
        results=str(settings.TIDEPOOL_RESULTS_ROOT),
        data_roots=[str(root) for root in settings.TIDEPOOL_DATA_ROOTS],
        mark=_mark(Path(settings.TIDEPOOL_RESULTS_ROOT)),
    )
    if row.hosts_left == 1:
        row.delete()
    else:
        JoinToken.objects.filter(pk=row.pk).update(hosts_left=F("hosts_left") - 1)
    return invitation


def _take_name(host: str) -> None:
    """Give the name to the caller. Raises Conflict while another executor has it, or has just joined to start with it.

    The host's row is locked until the caller's transaction ends, so of several that join at once, one gets the name.
    """
    now = timezone.now()
    row = Host.objects.select_for_update().get(name=host)
    reported = row.last_report_at
    if (
        row.state != Host.State.OFFLINE
        and reported
        and reported > now - timedelta(seconds=settings.TIDEPOOL_LEASE_SECONDS)
    ):
        raise _name_taken(f"A host named {host} is already reporting: choose another name, or stop its executor first.")
    joined = row.joined_at
    if joined and (reported is None or reported < joined):
        left = math.ceil(_START_SECONDS - (now - joined).total_seconds())
        if left > 0:
            raise _name_taken(
                f"A host named {host} has just joined, and starts: choose another name, or try again in {left} s if "
                "its executor did not start."
            )
    Host.objects.filter(pk=row.pk).update(joined_at=now)


def _name_taken(sentence: str) -> Conflict:
    return Conflict(sentence, code="name_taken", fields={"host": ["This name is taken."]})


def _broker_url(host: str, own_user: bool) -> str:
    """Return the URL with which the host's executor reaches the broker."""
    shared = _executors_broker()
    row = Host.objects.get(name=host)
    if own_user:
        return admit(row)
    expel(row)
    Host.objects.filter(pk=row.pk).update(own_broker_user=False)
    return shared


def _executors_broker() -> str:
    if not settings.TIDEPOOL_EXECUTOR_BROKER_URL:
        raise Conflict(
            "Hosts cannot join yet: set TIDEPOOL_EXECUTOR_BROKER_URL to the broker's address for other machines, and "
            "start the site again."
        )
    return str(settings.TIDEPOOL_EXECUTOR_BROKER_URL)


def _mark(results: Path) -> str:
    """Return the unique mark of this folder, created at the first call."""
    file = results / _MARK
    scratch = results / f"{_MARK}.{os.getpid()}.{secrets.token_hex(4)}"
    if not file.exists():
        scratch.write_text(f"{secrets.token_hex(16)}\n", encoding="ascii")
        try:
            os.link(scratch, file)
        except FileExistsError:  # another process was first
            pass
        finally:
            scratch.unlink()
    return file.read_text(encoding="ascii").strip()


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
