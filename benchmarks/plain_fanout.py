"""The competitor of `benchmarks.websockets`: a consumer that joins a group of the channel layer, as Channels' tutorial
does it. It asks for no log-in and keeps no numbers, which is less than `/ws/live/` does.
"""

import json
import os
from typing import Any

import django
from channels.generic.websocket import AsyncWebsocketConsumer
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.urls import path

__all__ = ["GROUP", "LAYER", "application"]

GROUP = "live"
LAYER = "channels_redis.pubsub.RedisPubSubChannelLayer"


class PlainConsumer(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        await self.channel_layer.group_add(GROUP, self.channel_name)
        await self.accept()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Answer that a subscription was heard, as `/ws/live/` does; here all get everything."""
        await self.send(text_data="{}")

    async def live_event(self, event: dict[str, Any]) -> None:
        await self.send(text_data=json.dumps(event["data"]))


if not settings.configured:
    settings.configure(
        SECRET_KEY="only for the benchmark",
        INSTALLED_APPS=["channels"],
        CHANNEL_LAYERS={
            "default": {"BACKEND": LAYER, "CONFIG": {"hosts": [os.environ.get("PLAIN_FANOUT_BROKER", "")]}}
        },
    )
    django.setup()

application = ProtocolTypeRouter({"websocket": URLRouter([path("ws/live/", PlainConsumer.as_asgi())])})
