"""The ASGI application: pages and API over HTTP, live events over a websocket."""

import gc
import os
from typing import Any

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.urls import path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
# Before the imports below, which need the apps.
_http = get_asgi_application()

from accounts.body_limits import LimitedBodies  # noqa: E402
from webapp.client_addresses import TrustedProxies  # noqa: E402
from webapp.consumers import FullOrigin, LiveConsumer  # noqa: E402
from webapp.job_streams.sender import JobStreams  # noqa: E402
from wmla.preflight import Preflight  # noqa: E402

__all__ = ["application"]

_site: Any = Preflight(LimitedBodies(JobStreams(_http)))
if settings.TIDEPOOL_MLFLOW_SOCKET:
    from tracking.proxy import TrackingProxy

    _site = TrackingProxy(_site)

application = TrustedProxies(
    ProtocolTypeRouter(
        {
            "http": _site,
            "websocket": FullOrigin(AuthMiddlewareStack(URLRouter([path("ws/live/", LiveConsumer.as_asgi())]))),
        }
    ),
    settings.TIDEPOOL_TRUSTED_PROXIES,
)

# A full garbage collection blocks every websocket, for 0.2 s with 2,000 of them. Loaded modules are therefore frozen,
# and full collections made rare: most cyclic garbage is collected while young.
gc.collect()
gc.freeze()
gc.set_threshold(5_000, 20, 50)
