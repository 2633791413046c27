"""Container images as environments: what each engine is asked, and what it is told that an image cannot be."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tests.workers.executor.environments.test_cache import wheel
from workers.executor.environments import images
from workers.executor.environments.cache import Environments, Ready
from workers.executor.environments.engines import ENGINES, ContainerSpec, engine_in, outermost
from workers.executor.environments.images import ImageError, image_engine, inspected
from workers.executor.environments.requirements import digest_of, image_in, wanted_of
from workers.executor.environments.software import software_in

IMAGE = f"docker.io/pytorch/pytorch@sha256:{'0f' * 32}"


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in podman's place, which a test writes."""
    program = tmp_path / "podman"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return program


def written(program: Path, body: str) -> None:
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)


def test_a_host_without_an_engine_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert engine_in(os.environ) == ""
    with pytest.raises(ImageError, match="this host has none of podman, enroot, apptainer: install one there"):
        image_engine(os.environ)


def test_podman_is_used_unless_enroot_is_alone_or_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    written(tmp_path / "enroot", "")
    assert image_engine(os.environ) is ENGINES["enroot"]
    written(tmp_path / "podman", "")
    assert image_engine(os.environ) is ENGINES["podman"]
    assert engine_in({**os.environ, "TIDEPOOL_IMAGE_ENGINE": "enroot"}) == "enroot"


def test_an_image_tells_its_python_and_packages(podman: Path) -> None:
    written(podman, f'while test "$1" != {IMAGE}; do shift; done; shift; exec python3 "$@"')
    found = inspected(IMAGE, ENGINES["podman"])
    assert found.python.startswith("3.")
    assert all(name == name.lower() for name in found.packages)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo 'python3: not found' >&2; exit 127", "needs one on its PATH: python3: not found"),
        ("exit 1", "needs one on its PATH: it says nothing"),
        ("""echo '{"python": "3.10.4", "packages": {}}'""", "has Python 3.10.4, and trainings need 3.11 or newer"),
    ],
)
def test_an_image_that_cannot_train_is_refused_in_words(podman: Path, body: str, why: str) -> None:
    written(podman, body)
    with pytest.raises(ImageError, match=why):
        inspected(IMAGE, ENGINES["podman"])


def test_an_image_that_hangs_is_given_up(podman: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(podman, "exec sleep 60")
    monkeypatch.setattr(images, "_PROBE_SECONDS", 0.2)
    with pytest.raises(ImageError, match="did not answer"):
        inspected(IMAGE, ENGINES["podman"])


@pytest.mark.parametrize("is_there", [True, False])
def test_podman_knows_its_images(podman: Path, tmp_path: Path, is_there: bool) -> None:
    written(podman, str(is_there).lower())
    assert ENGINES["podman"].has(IMAGE) is is_there
    asked: list[Sequence[str]] = []
    ENGINES["podman"].pull(IMAGE, tmp_path, asked.append)
    assert asked == [["podman", "pull", IMAGE]]


def test_enroot_unpacks_an_image_under_a_name_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    written(
        tmp_path / "enroot", f"test $1 = create && echo $3 >{tmp_path}/list; test $1 != list || cat {tmp_path}/list"
    )
    (tmp_path / "list").write_text("another\n")
    enroot, asked = ENGINES["enroot"], list[Sequence[str]]()

    def run(words: Sequence[str]) -> None:
        asked.append(words)
        if words[1] == "import":
            Path(words[3]).touch()
        subprocess.run(words)

    assert not enroot.has(IMAGE)
    enroot.pull(IMAGE, tmp_path, run)
    assert enroot.has(IMAGE)
    assert asked[0] == ["enroot", "import", "--output", f"{tmp_path}/image.sqsh", f"docker://{IMAGE}"]
    assert not (tmp_path / "image.sqsh").exists()


def test_apptainer_unpacks_an_image_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPTAINER_CACHEDIR", str(tmp_path / "cache"))
    apptainer = ENGINES["apptainer"]
    cut = ConnectionError("cut off")

    def run(words: Sequence[str]) -> None:
        assert [*words[:3], words[4]] == ["apptainer", "build", "--sandbox", f"docker://{IMAGE}"]
        Path(words[3]).mkdir()
        if cut in failures:
            raise failures.pop()

    failures = [cut]
    with pytest.raises(ConnectionError):
        apptainer.pull(IMAGE, tmp_path, run)
    assert not apptainer.has(IMAGE)
    for _ in range(2):
        apptainer.pull(IMAGE, tmp_path, run)
    assert apptainer.has(IMAGE)
    assert len([*(tmp_path / "cache").iterdir()]) == 1


def test_what_the_runtime_lacks_is_installed_beside_an_image(podman: Path, tmp_path: Path) -> None:
    (wheels := tmp_path / "wheels").mkdir()
    for name in ("cloudpickle", "msgspec", "setproctitle"):
        wheel(wheels, name, "3.1.7")
    has = {"python": "3.12.1", "packages": {"psutil": "5.9", "numpy": "1.26.4+build"}}
    written(podman, f"test $1 = image || echo '{json.dumps(has)}'")
    links = {"UV_FIND_LINKS": str(wheels), "UV_OFFLINE": "1", "PATH": os.defpath}
    environments = Environments(tmp_path / "cache", links, dict)
    wait_until(lambda: environments.ask((1, 1), f"--image {IMAGE}", tmp_path / "log") is not None)
    answer = environments.ask((1, 1), f"--image {IMAGE}", tmp_path / "log")
    assert isinstance(answer, Ready), answer
    assert (answer.image, answer.python, answer.torch) == (IMAGE, "3.12.1", "")
    beside = {path.name for path in Path(answer.folder, "needs").glob("*.py")}
    assert beside == {"cloudpickle.py", "msgspec.py", "setproctitle.py"}
    assert software_in(answer).packages == {"psutil": "5.9", "numpy": "1.26.4+build"}


CONTAINER = ContainerSpec(
    IMAGE, [Path("/pool/run"), Path("/pool")], [Path("/pool/needs"), Path("/data")], ["PYTHONPATH"], keeps_fd=True
)


def test_podmans_container_has_the_folders_and_no_privilege() -> None:
    words = ENGINES["podman"].command(CONTAINER)
    assert [word for word in words if word.startswith("--volume")] == [
        "--volume=/pool:/pool",
        "--volume=/data:/data:ro",
        "--volume=/pool/needs:/pool/needs:ro",
    ]
    assert {"--cap-drop=all", "--security-opt=no-new-privileges", "--preserve-fds=1", "--env=PYTHONPATH"} <= {*words}
    assert words[-1] == IMAGE


def test_enroots_container_has_the_folders() -> None:
    words = ENGINES["enroot"].command(CONTAINER)
    assert [word for word in words if word.startswith("--mount")] == [
        "--mount=/pool:/pool:none:x-create=dir,rbind,rw",
        "--mount=/data:/data:none:x-create=dir,rbind,ro",
        "--mount=/pool/needs:/pool/needs:none:x-create=dir,rbind,ro",
    ]
    script = Path(words[words.index("--rc") + 1])
    told = subprocess.run(["sh", script, "echo", "a b"], capture_output=True, text=True)
    assert (words[-1], told.stdout) == ("python3", "a b\n")


def test_apptainers_container_has_the_folders_and_no_privilege() -> None:
    words = ENGINES["apptainer"].command(CONTAINER)
    assert [word for word in words if word.startswith("--bind")] == [
        "--bind=/pool:/pool",
        "--bind=/data:/data:ro",
        "--bind=/pool/needs:/pool/needs:ro",
    ]
    assert {"--cleanenv", "--no-privs", "--no-home"} <= {*words}


def test_a_folder_below_another_needs_no_place_of_its_own() -> None:
    assert outermost([Path("/a/b"), Path("/a"), Path("/ab")]) == [Path("/a"), Path("/ab")]


def test_the_digest_names_the_image_alone() -> None:
    first, other = (wanted_of([f"--image {name}"], {}, "3.11.2") for name in (IMAGE, "x"))
    assert first is not None
    assert other is not None
    assert first.image == image_in([f"--image {IMAGE}"]) == IMAGE
    assert digest_of(first, {}, "3.11.2") == digest_of(first, {"torch": "2.13.0"}, "3.12.1")
    assert digest_of(first, {}, "3.11.2") != digest_of(other, {}, "3.11.2")
