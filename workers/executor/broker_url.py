"""The broker's URL: whether it can be read, and certificate checks in it, for kombu and redis-py."""

from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

__all__ = ["IN_BRACKETS", "is_readable", "verified"]

#: Advice on an address that is not readable, the end of a sentence.
IN_BRACKETS = "write an IPv6 address in brackets, such as redis://[fd00::1]:6379/0"


def is_readable(url: str) -> bool:
    """Return whether host and port of a URL can be told apart."""
    try:
        urlsplit(url).port  # noqa: B018 (it is read when it is asked for)
    except ValueError:
        return False
    return True


def verified(url: str, ca_file: Path | None = None) -> str:
    """Add certificate checks to the URL of a `rediss://` broker, unless the URL sets them; kombu's default is none.

    ca_file: certificate authorities to trust instead of this machine's.
    """
    parts = urlsplit(url)
    if parts.scheme != "rediss":
        return url
    options = {"ssl_cert_reqs": "required", "ssl_check_hostname": "true"}
    if ca_file is not None:
        options["ssl_ca_certs"] = str(ca_file)
    given = dict(parse_qsl(parts.query))
    if given.get("ssl_cert_reqs", "required").lower() in ("none", "cert_none"):
        options["ssl_check_hostname"] = "false"
    return urlunsplit(parts._replace(query=urlencode(options | given)))
