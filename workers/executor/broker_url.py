"""Certificate checks in the broker's URL, for kombu and redis-py."""

from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

__all__ = ["verified"]


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
