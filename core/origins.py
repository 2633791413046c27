"""Check of the `Origin` of requests, because browsers send cookies whichever page makes a request."""

from django.conf import settings
from django.http.request import split_domain_port, validate_host

__all__ = ["is_own_origin", "own_origin"]


def is_own_origin(origin: str, host: str, *, is_tls: bool) -> bool:
    """Return whether the origin is exactly this site's: scheme, host and port, or one of TIDEPOOL_ORIGINS.

    Another port of the same host is another site here, though browsers send the same cookies to both.
    """
    if origin in settings.TIDEPOOL_ORIGINS:
        return True
    return origin == own_origin(host, is_tls=is_tls)


def own_origin(host: str, *, is_tls: bool) -> str | None:
    """Return the site's origin for this `Host`, such as https://gpus.example.org; None for an unknown host."""
    scheme = "https" if settings.TIDEPOOL_HTTPS or is_tls else "http"
    domain, _ = split_domain_port(host)
    return f"{scheme}://{host}" if domain and validate_host(domain, settings.ALLOWED_HOSTS) else None
