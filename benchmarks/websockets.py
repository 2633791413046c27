"""Latency of an allocation event to 500 and 2,000 browsers of one web process, against a channel layer.

    python -m benchmarks.websockets [--long] [--slow] [--json FILE]

A real uvicorn serves the site with a database of its own, and another one the same clients by a consumer in a group of
channels_redis (`plain_fanout.py`), over the same broker, in turns. An event goes out when the one before has come to
all clients, at least 0.7 s later; its time counts from before it is written (to the database, ours) or sent (the
competitor's) until a client has read it. Every client must get every event. "While 8 train" adds what trainings
publish meanwhile, eight progress events a second. Publisher, web process and clients share this machine.

--slow measures another thing, and nothing else: how long 200 browsers that come at once need to be heard, at the server
of `manage.py up`, alone and beside 500 connections that send nothing, a head or a body byte by byte, or a head without
end, and come again where they are closed; and the memory of the web process.
"""

import itertools
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
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from benchmarks.results import Result, arguments, result, show
from benchmarks.site import signed_in
from tests.journey.running_stack import ROOT, free_port
from tests.waiting import wait_until
from workers.topics import CLUSTER

CLIENTS = (500, 2000)
SLOW_CLIENTS, SLOW_CONNECTIONS = 200, 500
GAP_SECONDS = 0.7
ARRIVAL_SECONDS = 60.0
WARM_UP = 3
NAMES = {"ours": "Tidepool", "plain": "channel layer"}

Send = Callable[[dict[str, Any]], None]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--slow", action="store_true", help="handshakes beside slow connections, and memory")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    events = 60 if options.long else 15
    with tempfile.TemporaryDirectory(prefix="tide") as folder, _broker(Path(folder)) as url:
        cookie = _prepare(Path(folder), url)
        results: list[Result] = []
        if options.slow:
            results = _beside_slow_ones(Path(folder), url, cookie, 15 if options.long else 5)
        for clients in () if options.slow else CLIENTS:
            times = {}
            for side in ("plain", "ours"):
                with _site(side, Path(folder), url) as (port, _), _watchers(port, clients, cookie) as (watchers, _):
                    times[side] = _measure(watchers, SENDERS[side], events)
                    if side == "ours" and clients == CLIENTS[0]:
                        with _trainings():
                            busy = _measure(watchers, SENDERS[side], events)
            results += _rows(f"{clients} clients", times["ours"], times["plain"])
        if not options.slow:
            results += _rows(f"{CLIENTS[0]} clients while 8 train", busy)
    print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    show(results, options.json)


def _beside_slow_ones(folder: Path, broker_url: str, cookie: str, rounds: int) -> list[Result]:
    """Rows of seconds until all are heard, and of MiB, the web process new in each round."""
    seconds: dict[str, list[float]] = {"alone": [], "beside slow ones": []}
    memory: dict[str, list[float]] = {}
    for _, kind in itertools.product(range(rounds), seconds):
        with ExitStack() as stack:
            port, web = stack.enter_context(_site("served", folder, broker_url))
            page = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            page.sendall(b"GET /login/ HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            assert page.recv(12) == b"HTTP/1.1 200", "the site is loaded"
            if kind != "alone":
                stack.enter_context(_slow_connections(port))
            memory.setdefault(f"memory before, {kind}", []).append(_mebibytes(web))
            watchers = stack.enter_context(_watchers(port, SLOW_CLIENTS, cookie, at_once=SLOW_CLIENTS))
            seconds[kind].append(watchers[1])
            memory.setdefault(f"with {SLOW_CLIENTS} websockets, {kind}", []).append(_mebibytes(web))
    rows = [result(f"{SLOW_CLIENTS} handshakes, {kind}", "s", values) for kind, values in seconds.items()]
    return [*rows, *(result(kind, "MiB", values) for kind, values in memory.items())]


def _mebibytes(process: subprocess.Popen[bytes]) -> float:
    return float(psutil.Process(process.pid).memory_info().rss) / 1024**2


@contextmanager
def _slow_connections(port: int) -> Iterator[None]:
    """Keep so many open for as long as the body runs, which begins when all have been slow for 3 seconds."""
    over = threading.Event()
    begun = threading.Event()
    thread = threading.Thread(target=_send_slowly, args=(port, begun, over))
    thread.start()
    try:
        assert begun.wait(ARRIVAL_SECONDS)
        yield
    finally:
        over.set()
        thread.join()


#: First bytes of a slow connection, and the bytes that it sends each second.
SLOW_WAYS = (
    (b"", b""),
    (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ", b"a"),
    (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"".join(b"X-%d: a\r\n" % number for number in range(2000))),
    (b"POST /login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n", b"a"),
)


def _send_slowly(port: int, begun: threading.Event, over: threading.Event) -> None:
    connections: dict[int, socket.socket] = {}
    for turn in itertools.count():
        for number in range(SLOW_CONNECTIONS):
            first, more = SLOW_WAYS[number % len(SLOW_WAYS)]
            try:
                if number not in connections:
                    connections[number] = socket.create_connection(("127.0.0.1", port), timeout=5)
                    connections[number].sendall(first)
                    connections[number].setblocking(False)
                elif _is_closed(connections[number]):
                    connections.pop(number).close()
                else:
                    connections[number].send(more)
            except OSError:  # closed, or it takes no more
                if number in connections and _is_closed(connections[number]):
                    connections.pop(number).close()
        if turn == 3:
            begun.set()
        if over.wait(1):
            break
    for connection in connections.values():
        connection.close()


def _is_closed(connection: socket.socket) -> bool:
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


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

    live.publish(CLUSTER, "append", data)


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
            live.publish(CLUSTER, "state", {"jobs": {str(number % 8): {"progress": number / 1e4}}})

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
def _site(side: str, folder: Path, broker_url: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    port = free_port()
    application = {"plain": "benchmarks.plain_fanout:application"}.get(side, "webapp.asgi:application")
    environment = dict(os.environ)
    if side == "plain":
        del environment["DJANGO_SETTINGS_MODULE"]
    command = [sys.executable, "-m", "uvicorn", application, "--port", str(port), "--log-level", "warning"]
    if side == "served":
        command = [sys.executable, "-m", "webapp.embedded.serve", "127.0.0.1", f"http:{port}"]
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
        try:
            wait_until(lambda: _listens(port), "the web process listens")
            yield port, process
        finally:
            process.kill()


@contextmanager
def _watchers(port: int, clients: int, cookie: str, at_once: int = 50) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """The process, and the seconds in which all of them were heard: `at_once` at a time."""
    command = [sys.executable, "-m", "benchmarks.watchers", str(port), str(clients), cookie, str(at_once)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        try:
            word, seconds = _line(process).split()
            assert word == "connected"
            yield process, float(seconds)
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
