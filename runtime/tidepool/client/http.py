"""Requests to the site, with safe retries and a class for each kind of error.

Requests that only read, or that have an idempotency key, are retried after a lost connection or a 5xx. Others are
retried only if they cannot have arrived.
"""

import logging
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from tidepool.client.config import Profile
from tidepool.client.errors import (
    Conflict,
    InvalidRequest,
    NotAllowed,
    NotFound,
    NotLoggedIn,
    TidepoolError,
    Unreachable,
    WrongVersion,
    with_site,
)
from tidepool.client.skew import advice, skew
from tidepool.client.wire import NeverSent, Request, Response, Transport, TransportError, Wire, body_of
from tidepool.version import VERSION, VERSION_HEADER

__all__ = ["Connection", "new_key"]

logger = logging.getLogger(__name__)

#: Seconds for which a request is retried, and the longest pause between two attempts.
TRIES_FOR = 20.0
_LONGEST_WAIT = 4.0
#: Pause from which the user is told about a retry.
_TOLD_WAIT = 0.5
#: TLS errors: a retry would fail in the same way.
_UNTRUSTED, _NO_TLS = "CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER"
_BUSY = frozenset({502, 503, 504})
_BY_STATUS: dict[int, type[TidepoolError]] = {401: NotLoggedIn, 403: NotAllowed, 404: NotFound, 409: Conflict}


def new_key() -> str:
    """Return a unique idempotency key."""
    return os.urandom(16).hex()


class Connection:
    """Connection to one site with one token."""

    def __init__(
        self,
        profile: Profile,
        *,
        tries_for: float = TRIES_FOR,
        timeout: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
        transport: Transport | None = None,
    ) -> None:
        self.url = profile.url
        self._tries_for, self._sleep = tries_for, sleep
        self._headers = {
            "Host": urlsplit(profile.url).netloc,
            "User-Agent": f"tidepool/{VERSION}",
            "Accept": "application/json",
            **({"Authorization": f"Bearer {profile.token}"} if profile.token else {}),
        }
        self.transport = transport or Wire(profile.url, partial(_certificates, profile), seconds=timeout)
        self._is_skew_told = False
        #: Whether the user was told of the present outage.
        self._is_outage_told = False

    def close(self) -> None:
        if isinstance(self.transport, Wire):
            self.transport.close()

    @cached_property
    def username(self) -> str:
        """Name of the token's owner."""
        return str(self.get("me/")["username"])

    def get(self, path: str, **params: Any) -> Any:
        """Return the JSON of a URL below `/api/v1/`; parameters that are None are omitted."""
        return self.json("GET", path, params={name: value for name, value in params.items() if value is not None})

    def rows(self, path: str, *, most: int | None = None, **params: Any) -> Iterator[dict[str, Any]]:
        """Yield the rows of a list over all its pages, at most `most`."""
        given = {"page_size": None if most is None else min(most, 1000), **params}
        page, sent = self.get(path, **given), 0
        while True:
            rows = page["results"] if isinstance(page, dict) else page
            for row in rows:
                if most is not None and sent >= most:
                    return
                sent += 1
                yield row
            if not isinstance(page, dict) or not page.get("next") or sent == most:
                return
            page = self.json("GET", page["next"])

    def json(self, method: str, path: str, **sent: Any) -> Any:
        response = self.request(method, path, **sent)
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError:
            raise Unreachable(f"{self.url} does not answer as Tidepool does: check the address.") from None

    def request(
        self,
        method: str,
        path: str,
        *,
        key: str | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **body: Any,
    ) -> Response:
        """Send a request. key: idempotency key, with which the site executes it only once. body: see `body_of`."""
        request = self._request(method, path, params, {**(headers or {}), **({"Idempotency-Key": key} if key else {})})
        request = replace(request, body=body_of(**body))

        def send() -> Response:
            response = self.transport(request)
            response.read()
            return response

        response = self._repeated(send, method in ("GET", "HEAD") or key is not None)
        raise_for(response, self.url)
        return response

    @contextmanager
    def stream(
        self,
        path: str,
        params: Mapping[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> Iterator[Response]:
        """Start a download; only connecting is retried. seconds: timeout between two pieces."""
        request = replace(self._request("GET", path, params, headers or {}), seconds=seconds)
        response = self._repeated(lambda: self.transport(request), may_repeat=True)
        try:
            raise_for(response, self.url)
            yield response
        except TransportError as error:
            raise _unreachable(self.url, error) from error
        finally:
            response.close()

    def _compare_versions(self, response: Response) -> None:
        """Warn once about a different version of the site. Raise WrongVersion if it is incompatible."""
        sites = response.headers.get(VERSION_HEADER, VERSION)
        difference = skew(VERSION, sites)
        if difference == "apart":
            raise WrongVersion(f"{advice(VERSION, sites, self.url)} (they are too far apart to understand each other)")
        if difference == "slight" and not self._is_skew_told:
            self._is_skew_told = True
            logger.warning("%s", advice(VERSION, sites, self.url))

    def _request(self, method: str, path: str, params: Mapping[str, Any] | None, headers: Mapping[str, str]) -> Request:
        """Send a request. path: below `/api/v1/`, or a complete URL, as in the links between pages of lists."""
        parts = urlsplit(path)
        prefix = "" if parts.scheme else f"{urlsplit(self.url).path}/api/v1/"
        question = urlencode({name: _text(value) for name, value in (params or {}).items() if value is not None})
        question = "&".join(part for part in (parts.query, question) if part)
        target = quote(f"{prefix}{parts.path}", safe="/%:~") + (f"?{question}" if question else "")
        return Request(method, target, {**self._headers, **headers})

    def _repeated(self, send: Callable[[], Response], may_repeat: bool) -> Response:
        ends, wait = time.monotonic() + self._tries_for, 0.25
        while True:
            problem: Exception | None = None
            try:
                response = send()
                self._compare_versions(response)
                # 429: the site refused it before doing anything.
                if response.status_code != 429 and not (may_repeat and response.status_code in _BUSY):
                    self._is_outage_told = False
                    return response
                pause = float(response.headers.get("Retry-After") or wait)
            except TransportError as error:
                if not (may_repeat or isinstance(error, NeverSent)):
                    raise _unreachable(self.url, error, sent=True) from error
                if _UNTRUSTED in str(error) or _NO_TLS in str(error):
                    raise _unreachable(self.url, error) from error
                problem, pause = error, wait * (0.5 + os.urandom(1)[0] / 256)
            if time.monotonic() + pause > ends:
                if problem is not None:
                    raise _unreachable(self.url, problem) from problem
                return response
            if wait == _TOLD_WAIT and not self._is_outage_told:
                self._is_outage_told = True
                state = "is busy" if problem is None else "does not answer"
                logger.warning("%s %s; it is asked again for %.0f s.", self.url, state, self._tries_for)
            self._sleep(pause)
            wait = min(2 * wait, _LONGEST_WAIT)


def raise_for(response: Response, site: str) -> None:
    """Raise the error for an error response of the site."""
    if response.is_success:
        return
    try:
        said = response.json()
        message, code = with_site(str(said["error"]), site), str(said.get("code", ""))
        fields = {name: [with_site(each, site) for each in found] for name, found in (said.get("fields") or {}).items()}
    except (ValueError, KeyError, TypeError):
        message, code, fields = f"The site answered {response.status_code} {response.reason}.", "", {}
    if 300 <= response.status_code < 400:
        raise Unreachable(f"The site sends on to {response.headers.get('location')}: log in with that address.")
    if response.status_code == 401:
        raise NotLoggedIn(f"{message} `tidepool login`", code=code)
    if kind := _BY_STATUS.get(response.status_code):
        raise kind(message, code=code)
    if 400 <= response.status_code < 500 and response.status_code != 429:
        raise InvalidRequest(message, code=code, fields=fields)
    raise Unreachable(message, code=code)


def _certificates(profile: Profile) -> ssl.SSLContext:
    """Return the system's CA certificates, or only those of the file."""
    try:
        return ssl.create_default_context(cafile=profile.ca_file or None)
    except OSError as error:
        raise InvalidRequest(
            f"The certificates in {profile.ca_file} cannot be read ({error}): check --ca-file."
        ) from error


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unreachable(url: str, error: Exception, *, sent: bool = False) -> Unreachable:
    words = str(error) or type(error).__name__
    if _NO_TLS in words:
        return Unreachable(f"What answers at {url} does not speak TLS: is it http://{urlsplit(url).netloc}?")
    if _UNTRUSTED in words:
        return Unreachable(
            f"{url} shows a certificate that this machine does not know ({words}). If it is your site's own, fetch the "
            "certificate that signs it from an administrator: `tidepool login --ca-file FILE`."
        )
    if sent:
        return Unreachable(
            f"The connection to {url} was lost, and it may have arrived ({words}): look before you repeat."
        )
    return Unreachable(f"{url} does not answer ({words}): check the address and the network.")
