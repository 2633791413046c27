"""Users of the broker, one for each host that has joined.

A host's user reads and writes the host's own queue, and writes to the control plane's queue. Nothing of it is stored:
its password is derived from the site's key and the number of the host's key, and `UserKeeper` creates it again where
the broker has lost it. Where a broker cannot have such users, hosts share the one in TIDEPOOL_EXECUTOR_BROKER_URL.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import redis
from django.conf import settings
from django.db import transaction
from django.utils.crypto import salted_hmac

from core.broker import connect_registrar
from core.errors import Conflict
from workers.models import Host

__all__ = ["UserKeeper", "admit", "expel", "problem", "restore", "shares_broker", "user_name"]

logger = logging.getLogger(__name__)

_CONTROL = "control"
#: Characters between the name of a queue and a priority, in the names of kombu's lists.
_PRIORITY = "\x06\x16"
#: Commands on the keys of a host: those of kombu's queues and locks. None of them lists keys or administers.
_OWN_COMMANDS = (
    *("+@connection", "+@transaction", "+@list", "+@hash", "+@set", "+@sortedset"),
    *("+get", "+set", "+del", "+exists", "+expire", "+pexpire", "+type", "+evalsha", "+script|load", "-@dangerous"),
)
_TOO_OLD = "it is older than Redis 7 and Valkey 7.2, and knows no rules for writing alone"
_OPEN = "it lets in everybody without a password, see docker/prepare for one that does not"
_NO_RIGHTS = "the control plane's user may not administer users there: set TIDEPOOL_BROKER_REGISTRAR_URL"
_NO_TCP = "TIDEPOOL_EXECUTOR_BROKER_URL is not the address of a TCP port"


def user_name(host: str) -> str:
    """Return the name of the host's user. Sites that share a broker do not touch each other's users."""
    return f"{_prefix()}{host}"


def _own_url(host: Host) -> str:
    """Return the broker's URL with the user of this host."""
    parts = urlsplit(settings.TIDEPOOL_EXECUTOR_BROKER_URL)
    place = parts.netloc.rpartition("@")[2]
    login = f"{quote(user_name(host.name), safe='')}:{_password(host)}"
    return urlunsplit(parts._replace(netloc=f"{login}@{place}"))


def shares_broker(host: Host) -> bool:
    """Return whether the host uses the broker with a password that others use, too.

    All parts of the embedded stack are one operating system user's, who could read every password anyway.
    """
    return not host.own_broker_user and not settings.BROKER_IS_EMBEDDED


def problem() -> str:
    """Return why hosts cannot have users of their own, as the end of a sentence about the broker; "": they can.

    Raises redis.RedisError or OSError if the broker does not answer.
    """
    if urlsplit(settings.TIDEPOOL_EXECUTOR_BROKER_URL).scheme not in ("redis", "rediss"):
        return _NO_TCP
    trial = f"{_prefix()}-"  # no host's name begins with a dash
    broker = connect_registrar()
    try:
        everybody: dict[str, Any] = broker.acl_getuser("default") or {}
        if {"on", "nopass"}.issubset(everybody.get("flags", ())):
            return _OPEN
        _write_user(trial, ["reset", "off", f"%W~{_CONTROL}"])
        broker.acl_deluser(trial)
    except redis.exceptions.NoPermissionError:
        return _NO_RIGHTS
    except redis.ResponseError:
        return _TOO_OLD
    return ""


def _set_user(host: Host) -> None:
    """Create the host's user, or give it its present password and rights."""
    _write_user(user_name(host.name), _rules(host))


def _write_user(name: str, rules: list[str]) -> None:
    # redis-py's own method for it knows no rules for writing alone, and no second set of rules.
    connect_registrar().execute_command("ACL", "SETUSER", name, *rules)  # type: ignore[no-untyped-call]


def _delete_user(host: Host) -> None:
    """Delete the host's user; its connections are closed."""
    connect_registrar().acl_deluser(user_name(host.name))


def admit(host: Host) -> str:
    """Give a host that joins a user, and return its URL of the broker. Raises Conflict if the broker does not answer.

    Connections with a former password are closed. The host shares the executors' user where it can have none.
    """
    try:
        host.own_broker_user = not problem()
        if host.own_broker_user:
            _delete_user(host)
            _set_user(host)
    except (redis.RedisError, OSError) as error:
        logger.warning("host=%s could not be given a user of the broker: %s", host.name, error)
        raise Conflict("The site's broker does not answer: try again in a moment.", code="broker") from None
    host.removed_at, host.removed_boot = None, ""  # else `UserKeeper` would delete the user
    host.save(update_fields=["own_broker_user", "removed_at", "removed_boot"])
    return _own_url(host) if host.own_broker_user else str(settings.TIDEPOOL_EXECUTOR_BROKER_URL)


def expel(host: Host) -> None:
    """Delete the host's user once the caller's transaction is committed. `UserKeeper` does it if the broker is away."""
    if host.own_broker_user:
        transaction.on_commit(lambda: _change(host, _delete_user))


def restore(host: Host) -> None:
    """Create the user of a removed host again once the caller's transaction is committed. See `expel`."""
    if host.own_broker_user:
        transaction.on_commit(lambda: _change(host, _set_user))


class UserKeeper:
    """Makes the users at the broker those of the hosts in the database: a broker that restarts may have lost them."""

    def __init__(self) -> None:
        #: Users that have the rights of this release, with the numbers of their keys.
        self._set: dict[str, int] = {}
        self._is_failing = False

    def keep(self) -> None:
        """Create missing users and delete those of hosts that were removed. Errors of the broker are logged once."""
        rows = Host.objects.filter(own_broker_user=True, removed_at=None)
        hosts = {user_name(host.name): host for host in rows.only("name", "key_number")}
        if not hosts and not self._set:
            return
        try:
            self._keep(hosts)
        except (redis.RedisError, OSError) as error:
            if not self._is_failing:
                logger.warning("users of the broker cannot be kept, retrying: %s", error)
            self._is_failing = True
        else:
            self._is_failing = False

    def _keep(self, hosts: dict[str, Host]) -> None:
        there = {name for name in _names() if name.startswith(_prefix())}
        for name in sorted(there - {*hosts}):
            connect_registrar().acl_deluser(name)
            logger.info("the broker's user %s was deleted: its host is removed", name)
        for name, host in hosts.items():
            if name not in there or self._set.get(name) != host.key_number:
                _set_user(host)
        self._set = {name: host.key_number for name, host in hosts.items()}


def _names() -> Iterable[str]:
    found = connect_registrar().acl_users()
    return [name.decode() if isinstance(name, bytes) else name for name in found]


def _change(host: Host, change: Callable[[Host], None]) -> None:
    try:
        change(host)
    except (redis.RedisError, OSError) as error:
        logger.warning("host=%s its user of the broker could not be changed, retrying: %s", host.name, error)


def _rules(host: Host) -> list[str]:
    digest = hashlib.sha256(_password(host).encode()).hexdigest()
    queue = f"host.{host.name}"
    unacknowledged = [f"{kind}.{host.name}" for kind in ("unacked", "unacked_index", "unacked_mutex")]
    bindings = [f"_kombu.{kind}.{queue}" for kind in ("binding", "binding_permanent")]
    own = [queue, f"{queue}{_PRIORITY}?", *bindings, *unacknowledged]
    reports = " ".join(f"%W~{key}" for key in (_CONTROL, f"{_CONTROL}{_PRIORITY}?"))
    return [
        *("reset", "on", f"#{digest}", "resetchannels", *(f"~{key}" for key in own), *_OWN_COMMANDS),
        f"({reports} +lpush +llen +exists)",
    ]


def _password(host: Host) -> str:
    text = f"{host.name}.{host.key_number}"
    return salted_hmac("workers.broker_user", text, secret=settings.SECRET_KEY, algorithm="sha256").hexdigest()


def _prefix() -> str:
    site = salted_hmac("workers.broker_site", "", secret=settings.SECRET_KEY, algorithm="sha256").hexdigest()
    return f"host.{site[:8]}."
