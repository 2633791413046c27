"""Latency of an allocation event to 500 and 2,000 browsers of one web process, against a channel layer.

    python -m benchmarks.websockets [--long] [--json FILE]

A real uvicorn serves the site with a database of its own, and another one the same clients by a consumer in a group of
channels_redis (`plain_fanout.py`), over the same broker, in turns. An event goes out when the one before has come to
all clients, at least 0.7 s later; its time counts from before it is written (to the database, ours) or sent (the
competitor's) until a client has read it. Every client must get every event. "While 8 train" adds what trainings
publish meanwhile, eight progress events a second. Publisher, web process and clients share this machine.
"""

import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.results import Result, arguments, result, show
from benchmarks.site import signed_in
from tests.journey.running_stack import ROOT, free_port
from tests.waiting import wait_until

CLIENTS = (500, 2000)
GAP_SECONDS = 0.7
ARRIVAL_SECONDS = 60.0
WARM_UP = 3
NAMES = {"ours": "Tidepool", "plain": "channel layer"}

Send = Callable[[dict[str, Any]], None]


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    events = 60 if options.long else 15
    with tempfile.TemporaryDirectory(prefix="tide") as folder, _broker(Path(folder)) as url:
        cookie = _prepare(Path(folder), url)
        results: list[Result] = []
        for clients in CLIENTS:
            times = {}
            for side in ("plain", "ours"):
                with _site(side, Path(folder), url) as port, _watchers(port, clients, cookie) as watchers:
                    times[side] = _measure(watchers, SENDERS[side], events)
                    if side == "ours" and clients == CLIENTS[0]:
                        with _trainings():
                            busy = _measure(watchers, SENDERS[side], events)
            results += _rows(f"{clients} clients", times["ours"], times["plain"])
        results += _rows(f"{CLIENTS[0]} clients while 8 train", busy)
    print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    show(results, options.json)


def _rows(name: str, ours: list[float], plain: list[float] | None = None) -> list[Result]:
    sides = {"ours": ours} | ({"plain": plain} if plain else {})
    rows = []
    for side, times in sides.items():
        median = result(f"{name}, {NAMES[side]}", "ms", times)
        worst = statistics.quantiles(times, n=100)[98]
        rows += [median, replace(median, name=f"{name}, {NAMES[side]}, p99", median=worst)]
    if plain is None:
        return rows
    compared = [
        replace(mine, competitor="channel layer", ratio=mine.median / its.median)
        for mine, its in zip(rows[:2], rows[2:], strict=True)
    ]
    return [*compared, *rows[2:]]


def _measure(watchers: subprocess.Popen[str], send: Send, events: int) -> list[float]:
    assert watchers.stdout is not None
    times: list[float] = []
    for number in range(WARM_UP + events):
        begun = time.monotonic()
        send(_allocation(number))
        arrived = json.loads(_line(watchers))
        if number >= WARM_UP:
            times += arrived
        time.sleep(max(0.0, begun + GAP_SECONDS - time.monotonic()))
    return times


def _allocation(number: int) -> dict[str, Any]:
    point = {
        "job": 1,
        "at": "2026-03-01T12:00:00.000000Z",
        "slots": number % 8,
        "generation": number,
        "attempt": 1,
        "reason": {"code": "GREW_INTO_FREE_SLOTS", "params": {}, "text": ""},
        "pause_ms": 38.4,
        "sent": time.time(),
    }
    return {"allocation": [point]}


def _publish(data: dict[str, Any]) -> None:
    from core import live

    live.publish(live.CLUSTER, "append", data)


def _group_send(data: dict[str, Any]) -> None:
    from asgiref.sync import async_to_sync
    from channels_redis.pubsub import RedisPubSubChannelLayer

    from benchmarks.plain_fanout import GROUP

    async def send() -> None:
        layer = RedisPubSubChannelLayer(hosts=[os.environ["PLAIN_FANOUT_BROKER"]])
        await layer.group_send(GROUP, {"type": "live.event", "data": data})
        await layer.flush()

    async_to_sync(send)()


SENDERS: dict[str, Send] = {"ours": _publish, "plain": _group_send}


@contextmanager
def _trainings() -> Iterator[None]:
    """Eight trainings report their progress, each once a second."""
    from core import live

    over = threading.Event()

    def report() -> None:
        number = 0
        while not over.wait(0.125):
            number += 1
            live.publish(live.CLUSTER, "state", {"jobs": {str(number % 8): {"progress": number / 1e4}}})

    thread = threading.Thread(target=report)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _broker(folder: Path) -> Iterator[str]:
    from webapp.embedded.broker import broker_command, find_broker, is_answering, socket_url

    path = folder / "broker.sock"
    with subprocess.Popen(broker_command(find_broker("auto"), path, folder), stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: is_answering(path), "the broker answers")
            yield socket_url(path)
        finally:
            process.terminate()


def _prepare(folder: Path, broker_url: str) -> str:
    """A home with a database and somebody who is logged in there; this process publishes into it."""
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "webapp.settings",
        "TIDEPOOL_HOME": str(folder),
        "TIDEPOOL_BROKER_URL": broker_url,
        "PLAIN_FANOUT_BROKER": f"unix://{folder / 'broker.sock'}?db=2",
    }
    import django

    django.setup()
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    client = signed_in(User.objects.create_user("watcher"))
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


@contextmanager
def _site(side: str, folder: Path, broker_url: str) -> Iterator[int]:
    port = free_port()
    application = {"ours": "webapp.asgi:application", "plain": "benchmarks.plain_fanout:application"}[side]
    environment = dict(os.environ)
    if side == "plain":
        del environment["DJANGO_SETTINGS_MODULE"]
    command = [sys.executable, "-m", "uvicorn", application, "--port", str(port), "--log-level", "warning"]
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
        try:
            wait_until(lambda: _listens(port), "the web process listens")
            yield port
        finally:
            process.kill()


@contextmanager
def _watchers(port: int, clients: int, cookie: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.watchers", str(port), str(clients), cookie]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        try:
            assert _line(process) == "connected\n"
            # The last of them have said what they subscribe to, but the server may not have heard it yet.
            time.sleep(2)
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    """The next line, or the end of the benchmark: an event that does not come to all is no measurement."""
    watchdog = threading.Timer(ARRIVAL_SECONDS, process.kill)
    watchdog.start()
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
    finally:
        watchdog.cancel()
    assert line, f"not all clients got it within {ARRIVAL_SECONDS:g} s"
    return line


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    main()
