"""Surroundings of a rank whose script is written for WMLA: variables, folders, modules to import."""

import hashlib
import io
import os
import zipfile
from contextlib import suppress
from pathlib import Path

from tidepool.env import RankContext
from tidepool.protocol import LaunchSpec
from tidepool.recorded_metrics import RECORDED_FILE

__all__ = [
    "COMPAT",
    "DRIVER",
    "build_fabric",
    "driver_folder",
    "environment",
    "link_recorded_metrics",
    "link_results",
    "link_submitted_code",
]

#: The name of the folder below `compat/`.
COMPAT = "wmla"
#: The variable of a launch that names the driver. Without it the job's number has to do.
DRIVER = "DLI_DRIVER_ID"

_CODE = "_submitted_code"
_EXEC = "DLI_EXECID"
#: Below a user's folder of results: the trainings' folders, by number.
_TRAININGS = "batchworkdir"
#: Largest length of a file's name in bytes.
_MAX_NAME_BYTES = 255
#: Modules and packages of WMLA's `fabric.zip`. What a model brings itself (`elog`, `emetrics`, `edtcallback`) is left
#: out: the model's own come first, and those beside these sources after all others.
_ARCHIVED = ("_wmla", "callbacks.py", "fabric_model.py", "pyedt")

_SOURCES = Path(__file__).resolve().parents[1] / "compat" / "wmla"
#: The oldest that the format knows: the same sources make the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


def environment(context: RankContext, runtime_root: Path, fabric_home: str) -> dict[str, str]:
    """Variables that WMLA documents or its samples read. Variables of the launch itself take precedence."""
    launch, results = context.launch, context.folder.parents[3]
    user = context.folder.parents[2].name
    archive = [str(Path(fabric_home, "libs", "fabric.zip"))] if fabric_home else []
    path = [str(runtime_root / "compat" / COMPAT), *archive, launch.code_folder, str(runtime_root)]
    return {
        "PYTHONPATH": os.pathsep.join(path),
        "FABRIC_HOME": fabric_home,
        "FABRIC_BACKEND": "pytorch",
        "FRAME_WORK": "PyTorch",
        "DLI_DATA_FS": launch.data_dir,
        "DLI_RESULT_FS": str(results),
        "DLI_SHARED_FS": str(results),
        "DL_NFS_PATH": str(results),
        "DLI_CS_DATASTORE_META": f"type=fs,data_path={launch.data_dir}",
        _EXEC: str(context.job),
        "TRAINING_ID": launch.environment.get(_EXEC, str(context.job)),
        "USER": user,
        "DLI_RUN_AS_USERNAME": user,
        "DLI_WORK_DIR": launch.code_folder,
        "MODEL_PATH": launch.code_folder,
        "DATA_PATH": launch.data_dir,
        "PS_PATH": "",
        "RESUME_WEIGHT_PATH": launch.initial_weights or "",
        "DLI_IS_ELASTIC": "true" if launch.engine == "elastic" else "false",
        "DLI_LOGGER_LEVEL": "INFO",
        "DLI_EXTRA_CONF": "",
        "JOB_STATE_DIR": str(context.folder),
        **{name: value for name, value in launch.environment.items() if name != "PYTHONPATH"},
    }


def driver_folder(context: RankContext, attempt: Path | None = None) -> Path:
    """Log folder of the driver. Several ranks may be the driver, one after the other, on any host; the folder stays.

    attempt: another one's folder than this one's.
    """
    log = (attempt or context.folder) / "log"
    name = context.launch.environment.get(DRIVER, f"driver-{context.job:04}")
    return next(iter(sorted(log.glob(f"{name}.*"))), log / f"{name}.{context.host}")


def link_submitted_code(context: RankContext) -> None:
    """Scripts look for files of theirs in RESULT_DIR/_submitted_code/<model>, too."""
    code = Path(context.launch.code_folder)
    if code.parent.name == _CODE:
        with suppress(FileExistsError):
            (context.folder / _CODE).symlink_to(Path("..", _CODE))


def link_recorded_metrics(context: RankContext) -> None:
    """Turn records of this rank's script (EMetrics) into the curves of a training that has no session."""
    with suppress(FileExistsError):
        (context.folder / RECORDED_FILE).symlink_to(context.log_dir.relative_to(context.folder) / RECORDED_FILE)


def link_results(launch: LaunchSpec) -> None:
    """Scripts build the path of RESULT_DIR by themselves: `$DLI_RESULT_FS/$USER/batchworkdir/$DLI_EXECID`.

    Whoever is there first makes the link; it always leads to the newest attempt. The id has the user's name in it,
    which may be no name of a file: there is no link then.
    """
    training = Path(launch.folder).parent
    name = launch.environment.get(_EXEC, "")
    is_file_name = Path(name).name == name and len(os.fsencode(name)) <= _MAX_NAME_BYTES
    if training.parent.name == _TRAININGS and is_file_name:
        with suppress(FileExistsError):
            (training.parent / name).symlink_to(Path(training.name, "current"))


def build_fabric(folder: Path) -> Path:
    """Return a FABRIC_HOME below `folder`, made unless it is there already. Other sources make another one.

    Its `libs/fabric.zip` is what scripts put first on their path, before they import `fabric_model`.
    """
    content = _archive()
    home = folder / hashlib.sha256(content).hexdigest()[:16]
    archive = home / "libs" / "fabric.zip"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        unfinished = archive.with_name(f".fabric.{os.getpid()}")
        unfinished.write_bytes(content)
        unfinished.rename(archive)
    return home


def _archive() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for file in _archived_files():
            entry = zipfile.ZipInfo(file.relative_to(_SOURCES).as_posix(), _TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes())
    return stream.getvalue()


def _archived_files() -> list[Path]:
    roots = [_SOURCES / name for name in _ARCHIVED]
    return sorted(file for root in roots for file in ([root] if root.is_file() else root.rglob("*.py")))
