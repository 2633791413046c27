"""Keys by which a host and the control plane sign what they send each other.

A key is derived from the site's, the host's name and the number of the key, and stored nowhere on the site. A host gets
it as it joins. `Host.key_number` is 0 while a host has none, as one that was enrolled by name.
"""

from django.conf import settings
from django.db.models import F
from django.utils.crypto import salted_hmac

from workers.models import Host

__all__ = ["host_key", "new_key", "present_key"]


def host_key(host: str, number: int) -> str:
    digest = salted_hmac("workers.host_key", f"{host}.{number}", secret=settings.SECRET_KEY, algorithm="sha256")
    return digest.hexdigest()


def new_key(host: str) -> str:
    """Return another key for an enrolled host; its former one is worth nothing from now on."""
    Host.objects.filter(name=host).update(key_number=F("key_number") + 1, key_boot=0)
    return _stored(host)


def present_key(host: str) -> str:
    """Return the key of an enrolled host, its first one if it has none yet."""
    Host.objects.filter(name=host, key_number=0).update(key_number=1)
    return _stored(host)


def _stored(host: str) -> str:
    return host_key(host, Host.objects.values_list("key_number", flat=True).get(name=host))
