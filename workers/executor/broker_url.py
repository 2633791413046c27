"""The broker's URL, as kombu and redis-py both read it."""

from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

__all__ = ["verified"]


def verified(url: str, ca_file: Path | None = None) -> str:
    """Have the certificate of a `rediss://` broker checked, unless the URL itself says otherwise: kombu would not.

    `ca_file`: who may have signed it, in place of those that this machine trusts.
    """
    parts = urlsplit(url)
    if parts.scheme != "rediss":
        return url
    wanted = {"ssl_cert_reqs": "required", "ssl_check_hostname": "true"}
    if ca_file is not None:
        wanted["ssl_ca_certs"] = str(ca_file)
    said = dict(parse_qsl(parts.query))
    if said.get("ssl_cert_reqs", "required").lower() in ("none", "cert_none"):
        wanted["ssl_check_hostname"] = "false"
    return urlunsplit(parts._replace(query=urlencode(wanted | said)))
