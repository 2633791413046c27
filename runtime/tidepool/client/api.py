"""Client of a site."""

import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, overload

from tidepool.client.config import resolve
from tidepool.client.decoding import decoded
from tidepool.client.errors import InvalidRequest
from tidepool.client.http import Connection, new_key
from tidepool.client.rows import Dataset, JobInfo, Model, Script, StudyInfo
from tidepool.client.studies import Study
from tidepool.client.training import Job, Progress

if TYPE_CHECKING:
    from tidepool.client.pack import Package

__all__ = ["Client", "Submission"]


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A request for a job; objects are given by name or id."""

    name: str
    model: str | int
    #: Instance group; None: the only one that the user may submit to.
    instance_group: str | int | None
    max_slots: int
    #: Version of the model; None: the newest.
    model_version: int | None = None
    min_slots: int = 1
    dataset: str | int | None = None
    priority: int | None = None
    parameters: Mapping[str, Any]
    arguments: Sequence[str]
    #: Further options of the API, such as `seed` or `effective_batch_size`.
    options: Mapping[str, Any]
    #: Commit, difference and command that the code came from, see `tidepool.client.source`; None: not recorded.
    source: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        values = asdict(self)
        options = values.pop("options")
        return {**{name: value for name, value in values.items() if value is not None}, **options}


class Client:
    """A connection to one site.

    url and token: default to `TIDEPOOL_URL` and `TIDEPOOL_TOKEN`, or those saved by `tidepool login` under `profile`.
    Raises NotLoggedIn if there are none.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, profile: str | None = None) -> None:
        self.profile = resolve(url, token, profile)
        self.connection = Connection(self.profile)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    @property
    def url(self) -> str:
        return self.profile.url

    def whoami(self) -> dict[str, Any]:
        """Return `id`, `username` and `role` of the user."""
        return dict(self.connection.get("me/"))

    def software(self) -> dict[str, Any]:
        """Return the software of ranks: `python`, `packages` by name, `modules`, and `mlflow_modules`."""
        return dict(self.connection.get("software/"))

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def job(self, number: int) -> Job:
        """Return the job with this number. Nothing is requested until something of it is needed."""
        return Job(self.connection, int(number))

    def jobs(self, *, state: str | None = None, most: int | None = 100, **filters: Any) -> list[Job]:
        """Return the user's jobs, newest first; for an administrator, those of all users.

        state: one of its states, `active` or `finished`. filters: `search, tag, owner, model, dataset,
        instance_group, sort`.
        """
        rows = self.connection.rows("jobs/", most=most, state=state, **filters)
        return [Job(self.connection, row["id"], decoded(JobInfo, row)) for row in rows]

    @overload
    def submit(
        self,
        what: "str | Path | Package | None" = None,
        *arguments: str,
        key: str | None = None,
        metric: None = None,
        **given: Any,
    ) -> Job: ...

    @overload
    def submit(
        self, what: "str | Path | Package | None" = None, *arguments: str, metric: str, goal: str = ..., **given: Any
    ) -> Study: ...

    def submit(
        self,
        what: "str | Path | Package | None" = None,
        *arguments: str,
        key: str | None = None,
        metric: str | None = None,
        goal: str = "minimize",
        **given: Any,
    ) -> Job | Study:
        """Submit a script, a folder or a registered model. See `plan` for the arguments.

        key: idempotency key, with which the site creates one job even if the request is repeated; random by default.
        Pass a fixed key in a program that may be restarted. metric: name of a metric, with which lists in place of
        values, as in `parameters={"lr": [0.1, 0.03]}`, make a study with one job for each combination.
        """
        parameters = given.get("parameters") or {}
        swept = {name: list(value) for name, value in parameters.items() if isinstance(value, list | tuple)}
        if metric is None and swept:
            raise InvalidRequest(f"{next(iter(swept))} has several values: add metric=, which shows which is best.")
        if metric is not None and not swept:
            raise InvalidRequest("metric= compares several values: give a list, as in parameters={'lr': [0.1, 0.03]}.")
        if metric is not None and key is not None:
            raise InvalidRequest("A sweep takes no key: leave it out.")
        planned = self.plan(what, *arguments, **given)
        return self.send(planned, key=key) if metric is None else self.sweep(planned, swept, metric=metric, goal=goal)

    def sweep(self, planned: Submission, values: Mapping[str, Sequence[Any]], *, metric: str, goal: str) -> Study:
        """Create a study with one job, like the submission made by `plan`, for each combination of the values."""
        return self.create_study(_without(planned, values), **_grid(values), metric=metric, goal=goal)

    def preview_sweep(
        self, planned: Submission, values: Mapping[str, Sequence[Any]], *, metric: str, goal: str
    ) -> dict[str, Any]:
        """Preview a sweep like `preview_study`."""
        return self.preview_study(_without(planned, values), **_grid(values), metric=metric, goal=goal)

    def send(self, planned: Submission, *, key: str | None = None) -> Job:
        """Submit a submission made by `plan`."""
        return self._sent("jobs/", planned.as_json(), key)

    def _sent(self, path: str, values: dict[str, Any], key: str | None) -> Job:
        """Submit a job. A site that does not take the source gets the request without it."""
        key = key or new_key()
        try:
            made = self.connection.json("POST", path, json=values, key=key)
        except InvalidRequest as error:
            if "source" not in error.fields:
                raise
            words = f"The commit and the command are not recorded: {' '.join(error.fields['source'])}"
            warnings.warn(words, stacklevel=_callers_level())
            rest = {name: value for name, value in values.items() if name != "source"}
            made = self.connection.json("POST", path, json=rest, key=key)
        return Job(self.connection, made["id"], decoded(JobInfo, made))

    def submit_manifest(
        self,
        manifest: str,
        what: "str | Path | Package | None" = None,
        *,
        model: str | int | None = None,
        dataset: str | int | None = None,
        instance_group: str | int | None = None,
        entry_point: str = "",
        name: str = "",
        arguments: Sequence[str] | None = None,
        key: str | None = None,
    ) -> Job:
        """Submit an AdaptDLJob in YAML, with the code of `what` or of `model`. See `plan` for the other arguments.

        name, arguments: instead of the manifest's name and the `args` of its container.
        """
        code = _packed(what) if isinstance(what, str | Path) else what
        values = self._manifest(manifest, code, model, dataset, instance_group, entry_point)
        values |= {"name": name} if name else {}
        values |= {"arguments": list(arguments)} if arguments is not None else {}
        return self._sent("jobs/adaptdl/", {**values, "source": _source_of(code)}, key)

    def preview_manifest(
        self,
        manifest: str,
        what: "str | Path | Package | None" = None,
        *,
        model: str | int | None = None,
        dataset: str | int | None = None,
        instance_group: str | int | None = None,
        entry_point: str = "",
    ) -> dict[str, Any]:
        """Preview an AdaptDLJob like `preview`, with the arguments of `submit_manifest`. Its code is uploaded."""
        values = self._manifest(manifest, what, model, dataset, instance_group, entry_point)
        return dict(self.connection.json("POST", "jobs/adaptdl/preview/", json=values))

    def _manifest(
        self,
        manifest: str,
        what: "str | Path | Package | None",
        model: str | int | None,
        dataset: str | int | None,
        instance_group: str | int | None,
        entry_point: str,
    ) -> dict[str, Any]:
        if (what is None) == (model is None):
            raise InvalidRequest(
                "Give the folder that the manifest's command runs, or a registered model: one of them."
            )
        taken = None if what is None else self.take_code(what, entry_point)
        return {
            "manifest": manifest,
            "model": taken.model if taken else model,
            "model_version": taken.version if taken else None,
            "dataset": dataset,
            "instance_group": self._group(instance_group)["name"],
        }

    def preview(self, planned: Submission) -> dict[str, Any]:
        """Preview a submission: `start_text`, `others_text` and more. Nothing is written."""
        return dict(self.connection.json("POST", "jobs/preview/", json=replace(planned, source=None).as_json()))

    def plan(
        self,
        what: "str | Path | Package | None" = None,
        *arguments: str,
        model: str | int | None = None,
        name: str | None = None,
        dataset: str | int | None = None,
        instance_group: str | int | None = None,
        min_slots: int = 1,
        max_slots: int | None = None,
        priority: int | None = None,
        parameters: Mapping[str, Any] | None = None,
        entry_point: str = "",
        engine: str = "",
        include: Sequence[str] = (),
        **options: Any,
    ) -> Submission:
        """Upload the code, and return a submission with defaults filled in.

        what: a script or folder, packed by `tidepool.client.pack`; or give `model`, the name of a registered one.
        arguments: passed to the script unchanged. instance_group: default: the only one. max_slots: default: all GPUs
        of the group for an elastic script, otherwise the number of processes that the script itself requests, or 1.
        engine: elastic, fixed or single, if the script does not determine it. include: files and folders that are sent
        besides; a warning names what the code opens and is not sent. options: further options of the API, such as
        `seed`. Raises InvalidRequest.
        """
        if (what is None) == (model is None):
            raise InvalidRequest("Give a script or a folder, or the name of a registered model: one of them.")
        code = _packed(what, include) if isinstance(what, str | Path) else what
        taken = None if code is None else self.take_code(code, entry_point, engine)
        group: str | int | None = instance_group or self.profile.instance_group or None
        if max_slots is None:
            max_slots = max(min_slots, self._most_slots(taken, model, group))
        return Submission(
            name=name or f"{taken.model if taken else model}-{time.strftime('%Y%m%d-%H%M%S')}",
            model=taken.model if taken else model or "",
            # The version is given by number, because another process may have uploaded a newer one since.
            model_version=taken.version if taken else None,
            instance_group=group,
            dataset=dataset,
            min_slots=min_slots,
            max_slots=max_slots,
            priority=priority,
            parameters=dict(parameters or {}),
            arguments=[str(word) for word in arguments],
            options=options,
            source=_source_of(code),
        )

    def take_code(
        self, what: "str | Path | Package", entry_point: str = "", engine: str = "", include: Sequence[str] = ()
    ) -> Script:
        """Upload a script or folder; unchanged files yield the existing version of the model.

        engine: "": detected from the script. include: see `plan`.
        """
        from tidepool.client.pack import archived

        code = _packed(what, include) if isinstance(what, str | Path) else what
        with archived(code) as archive:
            # Repeating the request yields the same version, so a lost response is harmless.
            values = self.connection.json(
                "POST",
                "scripts/",
                files={"file": (f"{code.name}.zip", archive, "application/zip")},
                data={"entry_point": entry_point or code.entry_point, "engine": engine},
            )
        return decoded(Script, values)

    def _group(self, wanted: str | int | None) -> dict[str, Any]:
        wanted = wanted or self.profile.instance_group or None
        groups = list(self.connection.rows("instance-groups/"))
        found = [group for group in groups if wanted is None or wanted in (group["name"], group["id"])]
        if len(found) == 1:
            return found[0]
        names = ", ".join(group["name"] for group in groups)
        if not groups:
            raise InvalidRequest("You may not submit to any instance group: ask an administrator.")
        if wanted is None:
            raise InvalidRequest(f"Choose an instance group with instance_group: {names}.")
        raise InvalidRequest(f"Instance group {wanted!r} not found: use {names}.")

    def _most_slots(self, taken: Script | None, model: str | int | None, group: str | int | None) -> int:
        if taken:
            engine, processes = taken.engine, taken.processes
        else:
            latest = self.model(model or "").latest
            engine, processes = latest["engine"], latest.get("processes")
        if engine != "elastic":
            return (processes or 1) if engine == "fixed" else 1
        return self._capacity(self._group(group)) or 1

    def _capacity(self, group: Mapping[str, Any], of: str = "capacity") -> int:
        return int(self.connection.get(f"resource-groups/{group['resource_group']}/").get(of) or 0)

    # --- studies ------------------------------------------------------------------------------------------------------

    def study(self, number: int) -> Study:
        """Return the study with this number. Nothing is requested until something of it is needed."""
        return Study(self.connection, int(number))

    def studies(self, *, most: int | None = 100) -> list[Study]:
        """Return the user's studies, newest first; for an administrator, those of all users."""
        rows = self.connection.rows("studies/", most=most)
        return [Study(self.connection, row["id"], decoded(StudyInfo, row)) for row in rows]

    def create_study(self, planned: Submission, *, space: Mapping[str, Any], metric: str, **search: Any) -> Study:
        """Create a study whose trials are like a submission made by `plan`, but for the parameters of `space`.

        space: parameter -> list of values, or a range made by `tidepool.uniform`, `log_uniform` or `whole`. search:
        `goal`, `sampler`, `pruner`, `trials`, `minutes`, `gpu_hours`, `at_once`, `value_of` and `seed`.
        """
        values = self.connection.json("POST", "studies/", json=_study(planned, space, metric, search))
        return Study(self.connection, values["id"], decoded(StudyInfo, values))

    def preview_study(
        self, planned: Submission, *, space: Mapping[str, Any], metric: str, **search: Any
    ) -> dict[str, Any]:
        """Preview a study like `create_study`: `trials`, `points`, `at_once`, `gpu_hours` and `notices`."""
        planned = replace(planned, source=None)
        return dict(self.connection.json("POST", "studies/preview/", json=_study(planned, space, metric, search)))

    # --- datasets and models ------------------------------------------------------------------------------------------

    def datasets(self) -> list[Dataset]:
        return [decoded(Dataset, row) for row in self.connection.rows("datasets/")]

    def dataset(self, reference: str | int) -> Dataset:
        return decoded(Dataset, self.connection.get(f"datasets/{reference}/"))

    def add_dataset(
        self,
        name: str,
        path: str | Path | None = None,
        *,
        server_path: str | None = None,
        kind: str | None = None,
        description: str = "",
        progress: Progress | None = None,
    ) -> Dataset:
        """Register a dataset, or the next version of one of yours: a local file or folder, or a path on the server.

        Local files are sent in pieces: after a lost connection, another call continues with the missing ones.
        """
        if (path is None) == (server_path is None):
            raise InvalidRequest("Give a local file or folder, or a path on the server: one of them.")
        given: dict[str, Any] = {"name": name, "description": description, **({"kind": kind} if kind else {})}
        if path is None:
            return decoded(Dataset, self.connection.json("POST", "datasets/", json={**given, "path": server_path}))
        from tidepool.client.uploads import uploaded

        with uploaded(self.connection, Path(path).expanduser(), progress) as number:
            return decoded(Dataset, self.connection.json("POST", "datasets/", json={**given, "upload": number}))

    def delete_dataset(self, reference: str | int) -> None:
        self.connection.json("DELETE", f"datasets/{reference}/")

    def environments(self) -> list[dict[str, Any]]:
        """Return the named environments that the user's trainings may choose, each as `environment` returns it."""
        return list(self.connection.rows("environments/"))

    def environment(self, reference: str | int) -> dict[str, Any]:
        """Return `name, kind, source, lock, lines, groups, default_of, notes` and `trainings`, their number."""
        return dict(self.connection.get(f"environments/{reference}/"))

    def models(self) -> list[Model]:
        return [decoded(Model, row) for row in self.connection.rows("models/")]

    def model(self, reference: str | int) -> Model:
        return decoded(Model, self.connection.get(f"models/{reference}/"))

    def add_model(
        self,
        name: str,
        path: "str | Path | Package",
        *,
        include: Sequence[str] = (),
        progress: Progress | None = None,
        **given: Any,
    ) -> Model:
        """Register a model, or the next version of one of yours. given: `engine, entry_point, dataset, description …`.

        include: see `plan`. The files are sent like those of a dataset.
        """
        from tidepool.client.uploads import uploaded

        code = _packed(path, include) if isinstance(path, str | Path) else path
        data = {"name": name, **given}
        if code.entry_point:
            data.setdefault("entry_point", code.entry_point)
        with uploaded(self.connection, code, progress) as number:
            return decoded(Model, self.connection.json("POST", "models/", json={**data, "upload": number}))

    def delete_model(self, reference: str | int) -> None:
        self.connection.json("DELETE", f"models/{reference}/")

    def upload(self, path: str | Path, *, progress: Progress | None = None) -> int:
        """Upload a file or folder in pieces, or its missing pieces; return the number of the finished upload."""
        from tidepool.client.uploads import uploaded

        with uploaded(self.connection, Path(path).expanduser(), progress) as number:
            return number

    # --- the cluster --------------------------------------------------------------------------------------------------

    def cluster(self) -> dict[str, Any]:
        """Return `counts`, and `hosts` with their slots and the holders."""
        return dict(self.connection.get("cluster/"))

    def capacity(self, instance_group: str | int | None = None, *, one_host: bool = False) -> int:
        """Return the number of GPUs that a training can get in an instance group; one_host: those of its largest host.

        instance_group: default: the only one.
        """
        return self._capacity(self._group(instance_group), "largest_host" if one_host else "capacity")

    def hosts(self) -> list[dict[str, Any]]:
        return list(self.connection.rows("hosts/"))

    def queue(self) -> list[JobInfo]:
        """Return the user's waiting jobs, in order of their queue positions."""
        waiting = [job.info for job in self.jobs(state="PENDING", most=None)]
        return sorted(waiting, key=lambda job: (job.instance_group, job.queue_position or 10**9, job.id))


def _study(planned: Submission, space: Mapping[str, Any], metric: str, search: Mapping[str, Any]) -> dict[str, Any]:
    wanted = {name: value for name, value in search.items() if value is not None}
    return {**planned.as_json(), "space": dict(space), "metric": metric, **wanted}


def _source_of(code: "Package | None") -> dict[str, Any]:
    """Return where the code comes from; of a registered model only the command is known."""
    from tidepool.client.source import Source, code_source, typed_command

    found = Source() if code is None else code_source(code.origin or code.folder, code.files)
    return replace(found, command=typed_command()).as_json()


def _without(planned: Submission, values: Mapping[str, Any]) -> Submission:
    rest = {name: value for name, value in planned.parameters.items() if name not in values}
    return replace(planned, parameters=rest)


def _grid(values: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    space = {name: list(each) for name, each in values.items()}
    return {"space": space, "sampler": "grid", "trials": prod(map(len, space.values()))}


def _packed(path: str | Path, include: Sequence[str] = ()) -> "Package":
    """Pack the code, and warn of what the training may need and does not get."""
    from tidepool.client.pack import package

    code = package(path, include)
    for each in code.left_out:
        words = f"{each.sentence}: include=[{each.path.as_posix()!r}] takes it along."
        warnings.warn(words, stacklevel=_callers_level())
    return code


def _callers_level() -> int:
    """Return the stack level, for a warning of the calling function, of the line outside of this package."""
    frame: FrameType | None = sys._getframe()
    level = 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tidepool":
        frame, level = frame.f_back, level + 1
    return level
