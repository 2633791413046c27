"""The calls that list, send and take files of runs. MLflow is asked whether the caller may; no byte passes it."""

import asyncio
import re
from contextlib import suppress
from typing import Any

from django.conf import settings
from tidepool.units import size_words

from accounts.body_limits import announced_bytes
from core.errors import FULL
from tracking import artifacts, call_rules
from tracking.artifacts import Missing, Place, Writing, place_of
from tracking.authentication import Caller
from tracking.launch import PREFIX, artifact_root
from tracking.proxied_call import Answered, Exchange
from tracking.token_reach import Asks, belongs_to_job

__all__ = ["Files"]

_ADDRESS = re.compile(rf"{PREFIX}/(?:ajax-)?api/2\.0/mlflow-artifacts/artifacts(?:/(.*))?")
_OF_A_RUN = f"{PREFIX}/get-artifact"
_PIECE_BYTES = 1024**2
#: MLflow's names for permissions to write.
_WRITING = frozenset({"EDIT", "MANAGE"})
_READING = frozenset({"READ", "USE", *_WRITING})


class Files:
    """Files of one request. ask: sends a call to MLflow on behalf of a caller, and returns status and JSON."""

    def __init__(self, exchange: Exchange, caller: Caller, ask: Asks) -> None:
        self._exchange, self._caller, self._ask = exchange, caller, ask

    async def answer(self) -> bool:
        """Return whether it was a request for files, and is answered. Raises Answered."""
        if self._exchange.path == _OF_A_RUN:
            await self._send(await self._place_in_run())
            return True
        found = _ADDRESS.fullmatch(self._exchange.path)
        if found is None:
            return False
        method, is_list = self._exchange.method, not found[1]
        if (is_list and method != "GET") or method not in ("GET", "PUT", "DELETE"):
            raise Answered(405, "Files can only be listed, read, written and removed.")
        place = self._place(self._exchange.question("path") if is_list else found[1])
        await self._refuse_stranger(place, _READING if method == "GET" else _WRITING)
        if is_list:
            await self._exchange.answer_json({"files": await asyncio.to_thread(artifacts.listed, place)})
        elif method == "GET":
            await self._send(place)
        elif method == "PUT":
            await self._take(place)
        else:
            await self._remove(place)
        return True

    async def refuse_foreign_source(self, source: str) -> None:
        """Raise Answered unless the caller may read what a version of a model shall be made of."""
        kind, _, rest = source.partition(":/")
        name = rest.strip("/").partition("/")[0]
        if kind == "mlflow-artifacts":
            await self._refuse_stranger(self._place(rest), _READING)
        elif kind == "runs":
            await self._must_read("2.0/mlflow/runs/get", run_id=name)
        elif name.startswith("m-"):
            await self._must_read(f"2.0/mlflow/logged-models/{name}")

    async def _must_read(self, path: str, **values: str) -> Any:
        status, found = await self._ask(self._caller, "GET", path, values)
        if status != 200:
            raise Answered(404 if status == 404 else 403, "Run or model not found among yours.")
        return found

    def _place(self, path: str) -> Place:
        if artifacts.is_too_long(path):
            raise Answered(400, "A path has at most 2,000 bytes, and each name in it 255.")
        place = place_of(artifact_root(), path)
        if place is None or not call_rules.is_safe_path(self._exchange.path):
            raise Answered(403, "The path is not one of a run's files.")
        return place

    async def _place_in_run(self) -> Place:
        if self._exchange.method != "GET":
            raise Answered(405, "This address is read only.")
        run = self._exchange.question("run_uuid") or self._exchange.question("run_id")
        info = (await self._must_read("2.0/mlflow/runs/get", run_id=run))["run"]["info"]
        kind, _, folder = str(info["artifact_uri"]).partition(":/")
        if kind != "mlflow-artifacts":
            raise Answered(404, "The files of this run are stored elsewhere.")
        place = self._place(f"{folder.strip('/')}/{self._exchange.question('path')}")
        await self._refuse_stranger(place, _READING)
        return place

    async def _refuse_stranger(self, place: Place, allowed: frozenset[str]) -> None:
        if self._caller.job is not None and not await belongs_to_job(self._caller, place.parts, self._ask):
            raise Answered(403, "The token opens only the files of its own training.")
        if self._caller.is_admin:
            return
        question = {"username": self._caller.user, "resource_type": "experiment", "resource_id": place.experiment}
        status, answer = await self._ask(self._caller, "GET", "3.0/mlflow/users/permissions/get", question)
        if status != 200 or answer.get("permission") not in allowed:
            raise Answered(403, "These files are not yours.")

    async def _send(self, place: Place) -> None:
        try:
            stream, size = await asyncio.to_thread(artifacts.open_file, place)
        except Missing:
            raise Answered(404, "File not found.") from None
        with stream:
            headers = [
                (b"content-type", b"application/octet-stream"),
                (b"content-length", str(size).encode()),
                (b"content-disposition", b"attachment"),
            ]
            await self._exchange.begin(200, headers)
            left = size
            while left and (piece := await asyncio.to_thread(stream.read, min(left, _PIECE_BYTES))):
                left -= len(piece)
                await self._exchange.write(piece, has_more=True)
            await self._exchange.write(b"", has_more=False)

    async def _take(self, place: Place) -> None:
        most = int(settings.TIDEPOOL_UPLOAD_MAX_BYTES)
        if announced_bytes(self._exchange.scope) > most:
            raise Answered(413, f"A file may have at most {size_words(most)}.")
        try:
            writing = await asyncio.to_thread(Writing, place)
            try:
                await self._copy(writing, most)
                await asyncio.to_thread(writing.finish)
            finally:
                await asyncio.to_thread(writing.discard)
        except Missing:
            raise Answered(409, "The path names a file where a folder is expected, or the reverse.") from None
        except OSError as error:
            if error.errno in FULL:
                raise Answered(507, "The disk for files of runs is full.") from None
            raise
        await self._exchange.answer_json({})

    async def _copy(self, writing: Writing, most: int) -> None:
        """Pieces are gathered: one comes in 64 kB, and a thread costs more than writing that.

        The next ones come while the disk takes those before.
        """
        size, gathered, has_more = 0, bytearray(), True
        under_way: asyncio.Future[None] | None = None
        try:
            while has_more:
                piece, has_more = await self._exchange.piece()
                size += len(piece)
                if size > most:
                    raise Answered(413, f"A file may have at most {size_words(most)}.")
                gathered += piece
                if len(gathered) >= _PIECE_BYTES or not has_more:
                    if under_way is not None:
                        await under_way
                    under_way = asyncio.ensure_future(asyncio.to_thread(writing.write, gathered))
                    gathered = bytearray()
        finally:
            if under_way is not None:
                await under_way

    async def _remove(self, place: Place) -> None:
        if len(place.parts) < 4:  # experiment, run, "artifacts", and something in it
            raise Answered(403, "Files of a run are removed one by one, or by their folder.")
        with suppress(Missing):
            await asyncio.to_thread(artifacts.remove, place)
        await self._exchange.answer_json({})
