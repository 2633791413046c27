"""The ASGI application: pages and API over HTTP, live events over a websocket."""

from __future__ import annotations

import os

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application
from django.urls import path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
# Before the imports below, which need the apps.
_http = get_asgi_application()

from webapp.consumers import LiveConsumer  # noqa: E402
from webapp.origin import FullOrigin  # noqa: E402

__all__ = ["application"]

application = ProtocolTypeRouter(
    {
        "http": _http,
        "websocket": FullOrigin(AuthMiddlewareStack(URLRouter([path("ws/live/", LiveConsumer.as_asgi())]))),
    }
)
