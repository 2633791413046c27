"""A job of the cluster: commands, queries and results."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tidepool.client.decoding import decoded
from tidepool.client.errors import JobFailed, MissingPackage, NotAllowed, NotFound, TidepoolError, with_site
from tidepool.client.following import Follower, fetch_info
from tidepool.client.http import Connection, new_key
from tidepool.client.patience import Patience
from tidepool.client.recording_rows import Flame, Stacks, StepTrace
from tidepool.client.rows import Checkpoint, Event, JobInfo, LogLine, MetricPoint, ResultFile, Why
from tidepool.client.slow_rows import WhySlow

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

__all__ = ["Job"]

#: Seconds at the end of a limited wait in which the job is polled, because a stream may be silent for as long.
_BY_ASKING_SECONDS, _PAUSE_SECONDS = 5.0, 0.2
#: Callback for progress: bytes received, and in total; None: unknown.
Progress = Callable[[int, int | None], object]


class Job:
    """A job, by its number. `info` has its last fetched state; `refresh()` fetches it again."""

    def __init__(self, connection: Connection, number: int, info: JobInfo | None = None) -> None:
        self._connection = connection
        self.id = number
        self._info = info

    def __repr__(self) -> str:
        shown = f" {self._info.name!r} {self._info.state}" if self._info else ""
        return f"<tidepool.Job {self.id}{shown}>"

    @property
    def url(self) -> str:
        """URL of the job's page."""
        return f"{self._connection.url}/jobs/{self.id}/"

    @property
    def info(self) -> JobInfo:
        return self._info or self.refresh()

    @property
    def state(self) -> str:
        """State at the last `refresh()`."""
        return self.info.state

    def refresh(self) -> JobInfo:
        self._info = fetch_info(self._connection, self.id)
        return self._info

    def learn(self, info: JobInfo) -> None:
        """Store a state that was received elsewhere."""
        self._info = info

    # --- commands -----------------------------------------------------------------------------------------------------

    def cancel(self) -> JobInfo:
        """Cancel the job permanently. Repeated calls have no effect."""
        return self._command("cancel")

    def suspend(self) -> JobInfo:
        """Suspend the job; after a resume, it continues from its checkpoint."""
        return self._command("suspend")

    def resume(self) -> JobInfo:
        return self._command("resume")

    def keep_gpus(self) -> JobInfo:
        """Keep GPUs that the job does not use for an hour, after it was warned: three times in an attempt."""
        return self._command("keep-gpus")

    def set_priority(self, priority: int) -> JobInfo:
        """Set the priority, from 1 to 10,000. Under fair share, twice the priority means twice the GPUs."""
        return self._change(priority=priority)

    def resize(self, *, max_slots: int | None = None, min_slots: int | None = None) -> JobInfo:
        """Change the limits of its GPUs. Running elastic jobs grow and shrink; `min_slots` can only be changed while it
        waits."""
        return self._change(max_slots=max_slots, min_slots=min_slots)

    def undo(self, event: int | None = None) -> JobInfo:
        """Undo the newest change of its priority or limits, or the change of the event with this number."""
        if event is None:
            changes = [each.seq for each in self.events() if {"field", "old", "new"} <= set(each.reason.params)]
            if not changes:
                raise NotFound(f"Nobody has changed the priority or the limits of training {self.id}: nothing to undo.")
            event = changes[-1]
        return self._command(f"events/{event}/undo")

    def set_limit(self, max_seconds: int) -> JobInfo:
        """Limit the time for which it may hold GPUs after each start, including the present one; 0: no limit."""
        return self._change(max_seconds=max_seconds)

    def tag(self, *add: str, remove: Sequence[str] = ()) -> JobInfo:
        """Add and remove tags."""
        self._info = decoded(
            JobInfo, self._connection.json("POST", self._path("tags/"), json={"add": add, "remove": remove})
        )
        return self._info

    def clone(self, *, exactly: bool = False, key: str | None = None) -> "Job":
        """Submit the job again with the same code. key: see `Client.submit`.

        exactly: run with the versions of Python and all packages that the newest attempt had.
        """
        asked = {"exactly": True} if exactly else None
        values = self._connection.json("POST", self._path("clone/"), json=asked, key=key or new_key())
        return Job(self._connection, values["id"], decoded(JobInfo, values))

    def wait(self, timeout: float | None = None, *, check: bool = True) -> JobInfo:
        """Wait until the job ends, however long the site does not answer.

        Raises TimeoutError after `timeout` seconds, JobFailed if it did not succeed. check: whether to raise JobFailed.
        """
        self._wait(self.patience(again=f"tidepool.job({self.id}).wait()", seconds=timeout))
        if check:
            self.raise_for_state()
        return self.info

    def patience(self, **options: Any) -> Patience:
        """Return the patience of a wait for this job that begins now."""
        return Patience(self.id, self._connection.url, **options)

    def _wait(self, patience: Patience) -> None:
        begun = time.monotonic()
        if patience.left > _BY_ASKING_SECONDS:
            for change in Follower(self._connection, self.id, logs=False).changes_through_outages(patience):
                self._info = change if isinstance(change, JobInfo) else self._info
                if patience.left < _BY_ASKING_SECONDS:
                    break
        while not patience.call(self.refresh).is_over:
            if patience.left <= 0:
                raise TimeoutError(
                    f"Job {self.id} is {self.info.state} after {time.monotonic() - begun:.0f} s: "
                    f"{self.info.reason.text} `{patience.again}` waits again."
                )
            time.sleep(min(_PAUSE_SECONDS, max(0.0, patience.left)))

    def raise_for_state(self) -> None:
        """Raise JobFailed if the job has ended without success."""
        info = self.info
        if info.is_over and info.state != "SUCCEEDED":
            error = info.error or {}
            words = with_site(str(error.get("message") or info.reason.text), self._connection.url)
            traceback = str(error.get("traceback") or "")
            raise JobFailed(
                f"Job {self.id} is {info.state}: {words}", job=self.id, state=info.state, traceback=traceback
            )

    # --- queries ------------------------------------------------------------------------------------------------------

    def why(self) -> Why:
        """Return the reason for its number of GPUs."""
        return decoded(Why, self._connection.get(self._path("why/")))

    def why_slow(self) -> WhySlow:
        """Return its time by cause: shares of all ranks and of each, and what would make it faster."""
        return decoded(WhySlow, self._connection.get(self._path("time/")))

    def take_stacks(self) -> Stacks:
        """Have all its processes write their stacks. The hosts answer within seconds: see `stacks`."""
        return decoded(Stacks, self._connection.json("POST", self._path("stacks/")))

    def stacks(self) -> Stacks:
        """Return the stacks of its processes that were taken last, and those that a stall has left."""
        return decoded(Stacks, self._connection.get(self._path("stacks/")))

    def record_flame(self, *, rank: int = 0, seconds: int = 10, native: bool = False) -> Flame:
        """Have a rank record a flame graph for 5 to 60 seconds: see `flame` and `save_flame`.

        native: with functions of C, where py-spy is installed.
        """
        given = {"rank": rank, "seconds": seconds, "native": native}
        return decoded(Flame, self._connection.json("POST", self._path("flame/"), json=given))

    def flame(self) -> Flame:
        """Return the flame graph that was recorded last, as a table of functions."""
        return decoded(Flame, self._connection.get(self._path("flame/")))

    def save_flame(self, target: str | Path) -> Path:
        """Write the flame graph that was recorded last to a file in speedscope's form. Raises NotFound without one."""
        return self._save("flame.speedscope.json", target)

    def record_trace(self, *, rank: int = 0, steps: int = 3) -> StepTrace:
        """Have a rank record its next 1 to 20 optimizer steps: see `trace` and `save_trace`."""
        return decoded(
            StepTrace, self._connection.json("POST", self._path("trace/"), json={"rank": rank, "steps": steps})
        )

    def trace(self) -> StepTrace:
        """Return the longest operators of the trace that was recorded last."""
        return decoded(StepTrace, self._connection.get(self._path("trace/")))

    def save_trace(self, target: str | Path) -> Path:
        """Write the trace that was recorded last to a file, which Perfetto opens. Raises NotFound without one."""
        return self._save("trace.json.gz", target)

    def events(self) -> list[Event]:
        return [decoded(Event, row) for row in self._connection.rows(self._path("events/"))]

    def provenance(self) -> dict[str, Any]:
        """Return what exactly ran: `commit`, `diff`, `command`, `packages` by name, and `attempts`."""
        return dict(self._connection.get(self._path("provenance/")))

    def freeze(self) -> str:
        """Return the packages of the newest attempt as the text of a requirements file. Raises NotFound without one."""
        found = self.provenance()
        if not found["packages"]:
            raise NotFound(
                f"The packages of training {self.id} are not known: it has not started since they are recorded."
            )
        lines = [f"# Training {self.id}: Python {found['python']}, environment {found['environment']}"]
        for name, version in found["packages"].items():
            origin = found["origins"].get(name)
            if origin is None:
                hashes = "".join(f" --hash={each}" for each in found["hashes"].get(name, ()))
                lines.append(f"{name}=={version}{hashes}")
            else:
                is_address = "://" in origin and not origin.startswith("file:")
                lines.append(f"{name} @ {origin}" if is_address else f"# {name}=={version}, from {origin} on the host")
        return "".join(f"{line}\n" for line in lines)

    def allocation(self) -> list[dict[str, Any]]:
        """Return its number of GPUs over time; each point holds until the next."""
        return list(self._connection.rows(self._path("allocation/")))

    def ranks(self) -> list[dict[str, Any]]:
        return list(self._connection.rows(self._path("ranks/")))

    def points(self, names: Iterable[str] | None = None, *, every: int | None = None) -> list[MetricPoint]:
        """Return metrics as points. every: each n-th step; None: few enough for a chart."""
        wanted: list[str | None] = [None] if names is None else list(names)
        rows = (row for name in wanted for row in self._connection.rows(self._path("metrics/"), name=name, every=every))
        return [decoded(MetricPoint, row) for row in rows]

    def metrics(self, names: Iterable[str] | None = None, *, every: int | None = None) -> "pd.DataFrame":
        """Return metrics as a table: a row for each step, with `epoch` and a column for each metric.

        Raises MissingPackage without pandas, which `points()` does not need.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingPackage(
                "job.metrics() makes a pandas DataFrame, and pandas is not installed: `pip install pandas`, or use "
                "job.points()."
            ) from error
        points = self.points(names, every=every)
        columns: dict[str, dict[int, float | None]] = {}
        epochs: dict[int, int] = {}
        for point in points:
            columns.setdefault(point.name, {})[point.step] = point.value
            epochs[point.step] = point.epoch
        steps = pd.Index(sorted(epochs), name="step")
        table = pd.DataFrame({"epoch": pd.Series(epochs, dtype="int64")}, index=steps)
        for name, values in columns.items():
            table[name] = pd.Series(values, dtype="float64")
        return table

    # --- logs ---------------------------------------------------------------------------------------------------------

    def logs(
        self, *, follow: bool = False, rank: int | str | None = None, stream: str = "stdout", tail: int | None = None
    ) -> Iterator[str]:
        """Yield the lines of a rank's log (default: rank 0). follow: until the job ends, even without success.

        tail: only this number of lines of the present log.
        """
        return (line.text for line in self.log_lines(follow=follow, rank=rank, stream=stream, tail=tail))

    def log_lines(
        self,
        *,
        follow: bool = False,
        rank: int | str | None = None,
        stream: str = "stdout",
        tail: int | None = None,
        watch: Callable[[JobInfo], object] = lambda info: None,
        patience: Patience | None = None,
    ) -> Iterator[LogLine]:
        """Yield the lines like `logs`, with the attempt and member of each. watch: called with each fetched state.

        patience: with a site that does not answer; None: raise Unreachable.

        When a job loses its rank 0 or starts another attempt, following continues from the beginning of another log.
        """
        follower = Follower(self._connection, self.id, rank, stream)
        if tail is not None:
            yield from follower.last(tail, then_follow=follow)
        if not follow:
            yield from () if tail is not None else follower.lines(is_over=True)
            return
        changes = follower.changes() if patience is None else follower.changes_through_outages(patience)
        for change in changes:
            if isinstance(change, JobInfo):
                self._info = change
                watch(change)
            elif isinstance(change, LogLine):
                yield change

    def value(self, *, timeout: float | None = None, raw: bool = False) -> Any:
        """Wait for the end, and return the value returned by rank 0 of a submitted function; None for a script.

        The site may be away for any time meanwhile. Raises JobFailed with the traceback, TimeoutError after `timeout`
        seconds, and NotAllowed for another user's job, because unpickling can execute its author's code. raw: return
        the pickle's bytes instead of the object.
        """
        patience = self.patience(seconds=timeout)
        if self._info is None or not self._info.is_over:
            self._wait(patience)
        return patience.call(lambda: self._value(self.info, raw))

    def _value(self, info: JobInfo, raw: bool) -> Any:
        # Not loaded by those who only look.
        from tidepool.client.values import failure_of, loaded, value_bytes

        if info.state != "SUCCEEDED":
            raise failure_of(info, self.ranks() if info.error else (), self._connection.url)
        if not raw and info.owner != self._connection.username:
            raise NotAllowed(
                f"Job {self.id} is {info.owner}'s, and loading its value would run what {info.owner} wrote: "
                "take the bytes by job.value(raw=True)."
            )
        content = value_bytes(self.id, info.value_sha256, self._content)
        return content if raw or content is None else loaded(self.id, content)

    def _content(self, path: str) -> bytes:
        content = BytesIO()
        self._fetch("files/download/", {"path": path}, content)
        return content.getvalue()

    # --- results ------------------------------------------------------------------------------------------------------

    def checkpoints(self) -> list[Checkpoint]:
        return [decoded(Checkpoint, row) for row in self._connection.rows(self._path("checkpoints/"))]

    def keep_checkpoint(self, checkpoint: int, kept: bool = True) -> None:
        """Keep the checkpoint, even when newer ones are written; kept=False: let newer ones replace it again."""
        self._connection.json("PATCH", self._path(f"checkpoints/{checkpoint}/"), json={"kept": kept})

    def make_version(self, checkpoint: int, name: str = "") -> str:
        """Create a model version from a checkpoint's weights and the training's code; the checkpoint is kept from then
        on.

        name: of the model; "": the name of the training's model, followed by -trained. Returns a name such as
        "digits-cnn-trained v2".
        """
        made = self._connection.json("POST", self._path(f"checkpoints/{checkpoint}/version/"), json={"name": name})
        return f"{made['name']} v{made['number']}"

    def files(self) -> list[ResultFile]:
        """List the files that each attempt has written to RESULT_DIR, LOG_DIR and the working folder."""
        return [decoded(ResultFile, row) for row in self._connection.rows(self._path("files/"))]

    def download(
        self, folder: str | Path, paths: Iterable[str] | None = None, *, progress: Progress | None = None
    ) -> list[Path]:
        """Download its results (model, checkpoints, logs, metrics, code) into a folder, which is created.

        paths: only these paths of `files()`. Returns the written files.
        """
        top = Path(folder)
        top.mkdir(parents=True, exist_ok=True)
        if paths is not None:
            return [self._download_one(path, top, progress) for path in paths]
        # Not loaded by those who only look.
        from tempfile import TemporaryFile
        from zipfile import ZipFile

        with TemporaryFile() as archive:
            self._fetch("result/", {}, archive, progress)
            with ZipFile(archive) as files:
                # `extract` takes no absolute names, and none that lead out of the folder.
                return [Path(files.extract(entry, top)) for entry in files.infolist() if not entry.is_dir()]

    def _download_one(self, path: str, top: Path, progress: Progress | None) -> Path:
        target = (top / path.lstrip("/")).resolve()
        if not target.is_relative_to(top.resolve()):
            raise TidepoolError(f"{path!r} leads out of the folder: download it by another name.")
        return self._save("files/download/", target, {"path": path}, progress)

    def _save(
        self, address: str, target: str | Path, params: dict[str, Any] | None = None, progress: Progress | None = None
    ) -> Path:
        """Write what an address of the training sends to a file, of which nobody sees a part."""
        if params is None:
            params = {}
        target = Path(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        partly = target.with_name(f".{target.name}.part")
        try:
            with partly.open("wb") as file:
                self._fetch(address, params, file, progress)
            partly.replace(target)
        finally:
            partly.unlink(missing_ok=True)
        return target

    def _fetch(self, path: str, params: dict[str, Any], target: IO[bytes], progress: Progress | None = None) -> None:
        with self._connection.stream(self._path(path), params) as response:
            total = response.headers.get("Content-Length")
            done = 0
            for piece in response.iter_bytes():
                target.write(piece)
                done += len(piece)
                if progress is not None:
                    progress(done, int(total) if total else None)
        target.flush()

    def _path(self, more: str = "") -> str:
        return f"jobs/{self.id}/{more}"

    def _command(self, name: str) -> JobInfo:
        self._info = decoded(JobInfo, self._connection.json("POST", self._path(f"{name}/")))
        return self._info

    def _change(self, **values: int | None) -> JobInfo:
        given = {name: value for name, value in values.items() if value is not None}
        self._info = decoded(JobInfo, self._connection.json("PATCH", self._path(), json=given))
        return self._info
