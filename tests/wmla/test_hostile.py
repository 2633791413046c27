"""Archives and addresses made to do harm: refused in a line of text, with nothing left behind."""

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from jobs.models import InstanceGroup, Job
from models_registry.models import RegisteredModel
from tests.core.archives import tar_of, tar_with, zip_of
from tests.wmla.conftest import ARGS, DLI, Submit, model_tar
from wmla.identifiers import job_of

pytestmark = pytest.mark.django_db

MAIN = ("m/main.py", b"x = 1\n")


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    return info, content


def main() -> tuple[tarfile.TarInfo, bytes]:
    return member(MAIN[0], content=MAIN[1])


EVIL = {
    "dots": [main(), member("m/../../../evil.py", content=b"x")],
    "absolute": [main(), member("/tmp/evil.py", content=b"x")],
    "symbolic link": [main(), member("m/link", tarfile.SYMTYPE, "/etc/passwd")],
    "link and a file through it": [
        main(),
        member("m/out", tarfile.SYMTYPE, "/tmp"),
        member("m/out/evil.py", content=b"x"),
    ],
    "hard link": [main(), member("m/link", tarfile.LNKTYPE, "m/main.py")],
    "device": [main(), member("m/null", tarfile.CHRTYPE)],
    "pipe": [main(), member("m/pipe", tarfile.FIFOTYPE)],
    "duplicate": [main(), main()],
    "file where a folder is": [main(), member("m/main.py/x", content=b"x")],
    "backslash": [main(), member("m\\..\\evil.py", content=b"x")],
    "control character": [main(), member("m/a\nb", content=b"x")],
}


def left_behind(home: Path) -> list[str]:
    folders = (home / "models", home / "results")
    return [str(path) for folder in folders for path in folder.rglob("*") if path.is_file() or ".incoming" in path.name]


def refused(answer: Any, home: Path) -> str:
    assert answer.status_code == 400, answer.content
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.content.startswith(b"Error 400: ")
    assert (Job.objects.count(), RegisteredModel.objects.count(), left_behind(home)) == (0, 0, [])
    return answer.content.decode()


def upload(content: bytes, name: str = "m.modelDir.tar") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content)


@pytest.mark.parametrize("kind", EVIL)
@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_an_archive_with_anything_but_files_below_itself_is_refused(
    submit: Submit, home: Path, kind: str, mode: str
) -> None:
    refused(submit(upload=upload(tar_with(EVIL[kind], mode=mode).getvalue())), home)
    assert not Path("/tmp/evil.py").exists()


def test_bombs_are_refused_by_what_is_written(submit: Submit, home: Path, settings: Any) -> None:
    settings.TIDEPOOL_UPLOAD_MAX_BYTES = 2_000_000
    settings.TIDEPOOL_UPLOAD_MAX_FILES = 50
    large = tar_of({"m/main.py": b"x", "m/zeros": b"\0" * 3_000_000})
    many = tar_of({f"m/{number}.py": b"x" for number in range(60)})
    assert "larger than" in refused(submit(upload=upload(large.getvalue())), home)
    assert "more than 50" in refused(submit(upload=upload(many.getvalue())), home)


def test_a_bomb_by_its_ratio_is_refused(submit: Submit, home: Path) -> None:
    bomb = tar_of({"m/main.py": b"x", "m/zeros": b"\0" * 30_000_000})
    assert "suspiciously" in refused(submit(upload=upload(bomb.getvalue())), home)


def test_a_header_that_claims_much_is_refused(submit: Submit, home: Path) -> None:
    info = tarfile.TarInfo("m/main.py")
    info.size = 2**40
    refused(submit(upload=upload(gzip.compress(info.tobuf()))), home)


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b", b"\x1f\x8b\x08" + b"x" * 50, b"x" * 2000, b"PK\x03\x04"])
def test_what_is_no_archive_is_refused(submit: Submit, home: Path, content: bytes) -> None:
    refused(submit(upload=upload(content)), home)


def test_archives_in_several_parts_are_below_one_cap(
    alice_client: Client, group: InstanceGroup, data: Path, home: Path, settings: Any
) -> None:
    settings.TIDEPOOL_UPLOAD_MAX_FILES = 5
    parts = [upload(tar_of({f"m{part}/{n}.py": b"x" for n in range(3)}).getvalue()) for part in range(2)]
    address = f"{DLI}/execs?{urlencode({'sigName': 'sig-elastic', 'args': ARGS})}"
    assert "more than 5" in refused(alice_client.post(address, {"file": parts}), home)


def test_a_second_part_replaces_no_file_of_the_first(
    alice_client: Client, group: InstanceGroup, data: Path, home: Path
) -> None:
    parts = [model_tar({"main.py": b"x = 1\n"}), SimpleUploadedFile("main.py", b"evil")]
    address = f"{DLI}/execs?{urlencode({'sigName': 'sig-elastic', 'args': ARGS})}"
    assert "twice" in refused(alice_client.post(address, {"file": parts}), home)


@pytest.mark.parametrize("name", ["../../evil.py", "/etc/evil.py", "a\\b.py", "e\tv.py"])
def test_the_name_of_a_part_leads_nowhere(submit: Submit, home: Path, alice: User, name: str) -> None:
    answer = submit("--exec-start PyTorch", upload=SimpleUploadedFile(name, b"x = 1\n"))
    if answer.status_code == 200:
        assert "/" not in job_of(alice, answer.json()["id"]).model.entry_point
    else:
        refused(answer, home)
    assert not Path("/etc/evil.py").exists()


def test_a_zip_is_read_by_the_same_rules(submit: Submit, alice: User, home: Path) -> None:
    refused(submit(upload=upload(zip_of({"m/main.py": b"x"}, unix_mode=0o120777).getvalue(), "m.zip")), home)
    assert submit(upload=upload(zip_of({"m/main.py": b"x = 1\n"}).getvalue(), "m.zip")).status_code == 200


@pytest.mark.parametrize(
    "args",
    [
        ARGS.replace("main.py", "../../x"),
        ARGS.replace("main.py", "/etc/passwd"),
        ARGS.replace("main.py", "'a\nb.py'"),
        ARGS.replace("main.py", '"main.py'),
        ARGS.replace("pytorch_edt", ".."),
        ARGS + " --x '\0'",
        ARGS.replace("edtPyTorch", "'; rm -rf /'"),
        ARGS.replace("data_path=mnist", "data_path=../../../etc"),
        ARGS + " --appName '../../x'",
        ARGS + " --appName 'a\nb'",
        "x" * 100_000,
        "--exec-start",
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1") + " '",
    ],
)
def test_evil_arguments_are_refused(submit: Submit, home: Path, args: str) -> None:
    refused(submit(args), home)


def test_what_a_shell_would_run_is_only_text(submit: Submit, alice: User, home: Path) -> None:
    words = ["$(touch /tmp/tidepool-evil)", "`id`", "a;b", "|", "&&", ">", "/tmp/x", "*"]
    args = ARGS + " -- " + " ".join(f"'{word}'" for word in words)
    job = job_of(alice, submit(args).json()["id"])
    assert job.arguments[4:] == words
    assert job.submitted_args == args


@pytest.mark.parametrize("sig", ["a" * 5000, "'; DROP TABLE", "\ud83d\ude00", "%", "sig-elastic\n"])
def test_evil_names_of_groups_are_not_found(submit: Submit, home: Path, sig: str) -> None:
    name = sig.encode("utf-16", "surrogatepass").decode("utf-16")
    assert "not found" in refused(submit(sig_name=name), home)


@pytest.mark.parametrize("path", ["execs", "execs/frameworks", "conf", "status"])
@pytest.mark.parametrize("body", [b'{"a": 1}', b"\xff\xfe", b"x" * 3_000_000])
def test_get_may_have_any_body(alice_client: Client, path: str, body: bytes) -> None:
    answer = alice_client.generic("GET", f"{DLI}/{path}", body, content_type="application/json")
    assert answer.status_code == 200
    assert answer.content == alice_client.get(f"{DLI}/{path}").content


@pytest.mark.parametrize("path", ["execs/wmla-1", "execs/wmla-1/log"])
@pytest.mark.parametrize("body", [b'{"a": 1}', b"\xff\xfe", b"x" * 3_000_000])
def test_get_of_an_unknown_training_may_have_any_body(alice_client: Client, path: str, body: bytes) -> None:
    answer = alice_client.generic("GET", f"{DLI}/{path}", body, content_type="application/json")
    assert (answer.status_code, answer.content[:40]) == (404, b"Error 404: Training wmla-1 not found: li")


@pytest.mark.parametrize("path", ["execs/wmla-1/stop", "execs/wmla-1/deploy"])
@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data", "x/y", ""])
def test_post_may_have_any_body(alice_client: Client, path: str, kind: str) -> None:
    answer = alice_client.generic("POST", f"{DLI}/{path}", b"\xff{", content_type=kind)
    assert (answer.status_code, answer.content[:40]) == (404, b"Error 404: Training wmla-1 not found: li")


def test_gzip_in_gzip_is_no_tar(submit: Submit, home: Path) -> None:
    twice = io.BytesIO(gzip.compress(tar_of(dict([MAIN])).getvalue()))
    refused(submit(upload=upload(twice.getvalue())), home)
