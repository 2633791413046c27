"""The web server of `up` and docker-compose.yml: one process that serves any number of ports, with or without TLS.

`python -m webapp.embedded.serve 127.0.0.1 http:8000 https:8643 --certificate FILE`
"""

import asyncio
import resource
import signal
import socket
from argparse import ArgumentParser
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import uvicorn

from webapp.embedded.connection_limits import LimitedHttp, LimitedWebsocket
from webapp.embedded.ports import Listener, parse_listener

__all__ = ["main", "raise_open_files"]


#: Limit of open files and connections, if the system permits it; the usual 1024 are too few for a server.
OPEN_FILES = 65_536
#: Largest websocket message from a browser.
WEBSOCKET_BYTES = 16 * 1024


class _Server(uvicorn.Server):
    """Leaves signals to `_serve`: uvicorn's own handlers only reach the server that was started last."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def main(arguments: Sequence[str] | None = None) -> None:
    parser = ArgumentParser(prog="webapp.embedded.serve", description=__doc__)
    parser.add_argument("address")
    parser.add_argument("listeners", nargs="+", type=parse_listener, metavar="SCHEME:PORT")
    parser.add_argument("--certificate", help="PEM file with key and certificate, for https")
    chosen = parser.parse_args(arguments)
    listeners: list[Listener] = chosen.listeners
    raise_open_files()
    # Bind all ports before the first one answers, so that a client that reaches one can use all.
    plain = [_socket(chosen.address, listener.port) for listener in listeners if not listener.is_tls]
    by_tls = [_socket(chosen.address, listener.port) for listener in listeners if listener.is_tls]
    servers = [(_Server(_config(None)), plain)] if plain else []
    if by_tls:
        servers.append((_Server(_config(chosen.certificate)), by_tls))
    with asyncio.Runner(loop_factory=servers[0][0].config.get_loop_factory()) as runner:
        runner.run(_serve(servers))


def raise_open_files() -> None:
    """Let this process open as many files as the system allows, up to `OPEN_FILES`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


async def _serve(servers: list[tuple[_Server, list[socket.socket]]]) -> None:
    """Serve until a signal; then stop all servers at the same time, within the same grace period."""

    def stop() -> None:
        for server, _ in servers:
            server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    await asyncio.gather(*(server.serve(sockets=sockets) for server, sockets in servers))


def _config(certificate: str | None) -> uvicorn.Config:
    return uvicorn.Config(
        "webapp.asgi:application",
        lifespan="off",
        access_log=False,
        server_header=False,
        http=LimitedHttp,
        ws=LimitedWebsocket,
        # A frame is encoded once for all browsers, and would be compressed for each of them.
        ws_per_message_deflate=False,
        proxy_headers=False,  # webapp/client_addresses.py
        # Browsers send short questions by a websocket; a few of them may wait.
        ws_max_size=WEBSOCKET_BYTES,
        timeout_graceful_shutdown=2,
        ssl_certfile=certificate,
    )


def _socket(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=2048)


if __name__ == "__main__":
    main()
