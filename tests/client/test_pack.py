"""Tests of the files that are sent of a folder: the same ones are the same archive."""

import io
import subprocess
import zipfile
from pathlib import Path

import pytest
from tidepool.client import pack
from tidepool.client.errors import InvalidRequest
from tidepool.client.pack import package, requirements_of, write_zip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "project"
    for name, text in {
        "train.py": "import helper\nfrom parts.net import Net\nimport torch\n",
        "helper.py": "import deeper\n",
        "deeper.py": "",
        "parts/net.py": "",
        "parts/__init__.py": "",
        "other.py": "",
        "data.bin": "x" * 100,
        ".env": "SECRET=1",
        "venv/pyvenv.cfg": "",
        "__pycache__/train.pyc": "",
    }.items():
        file = top / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return top


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


def _names(path: Path) -> set[str]:
    return {file.as_posix() for file in package(path).files}


def test_a_script_goes_with_what_it_imports(folder: Path) -> None:
    assert _names(folder / "train.py") == {"train.py", "helper.py", "deeper.py", "parts/net.py", "parts/__init__.py"}
    assert package(folder / "train.py").entry_point == "train.py"


def test_a_script_of_a_package_goes_with_all_of_it(folder: Path) -> None:
    (folder / "parts/train.py").write_text("from .net import Net\nimport helper\n")
    code = package(folder / "parts/train.py")
    assert (code.folder, code.entry_point, code.name) == (folder, "parts/train.py", "project")
    assert {file.as_posix() for file in code.files} == {
        *("parts/train.py", "parts/net.py", "parts/__init__.py"),
        *("helper.py", "deeper.py"),
    }


def test_a_script_goes_with_its_requirements(folder: Path) -> None:
    (folder / "requirements.txt").write_text("timm")
    assert "requirements.txt" in _names(folder / "train.py")
    assert _names(folder / "other.py") == {"other.py", "requirements.txt"}


def test_a_folder_goes_without_what_nobody_means(folder: Path) -> None:
    assert _names(folder) == {
        *("train.py", "helper.py", "deeper.py", "other.py"),
        *("parts/net.py", "parts/__init__.py", "data.bin"),
    }


def test_git_says_what_belongs_to_it(folder: Path) -> None:
    (folder / ".gitignore").write_text("data.bin\nvenv\n__pycache__\n.env\n")
    _git(folder, "init")
    _git(folder, "add", "deeper.py")
    (folder / "deeper.py").unlink()

    for path in (folder, folder / "train.py"):
        assert _names(path) == {
            *(".gitignore", "train.py", "helper.py", "other.py"),
            *("parts/net.py", "parts/__init__.py"),
        }


def test_a_script_that_git_ignores_goes_alone(folder: Path) -> None:
    (folder / ".gitignore").write_text("train.py\n")
    _git(folder, "init")
    assert "other.py" not in _names(folder / "train.py")


def test_a_script_goes_with_the_files_of_its_requirements(folder: Path) -> None:
    (folder / "requirements.txt").write_text("-r more.txt\n-e ./lib\n")
    (folder / "more.txt").write_text("tqdm")
    (folder / "lib").mkdir()
    (folder / "lib/pyproject.toml").write_text("")
    assert _names(folder / "other.py") == {"other.py", "requirements.txt", "more.txt", "lib/pyproject.toml"}
    (folder / "requirements.txt").unlink()
    (folder / "environment.yml").write_text("dependencies: []")
    assert _names(folder / "other.py") == {"other.py", "environment.yml"}
    for name in ("pyproject.toml", "uv.lock"):
        (folder / name).write_text("")
    assert _names(folder / "other.py") == {"other.py", "environment.yml", "pyproject.toml", "uv.lock"}


def test_a_file_of_requirements_is_one_text_with_those_that_it_includes(folder: Path) -> None:
    (folder / "wanted.txt").write_text("-r more.txt\ntimm  # models\n")
    (folder / "more.txt").write_text("tqdm")
    assert requirements_of(folder / "wanted.txt") == "\ntimm  # models\ntqdm"


def test_empty_folders_are_sent(folder: Path) -> None:
    (folder / "out/plots").mkdir(parents=True)
    (folder / "venv/empty").mkdir()
    archive = io.BytesIO()
    write_zip(package(folder), archive)
    assert [entry.filename for entry in zipfile.ZipFile(archive).infolist() if entry.is_dir()] == ["out/plots/"]
    _git(folder, "init")
    assert package(folder / "train.py").empty_folders == (Path("out/plots"),), "git knows no empty folder"


def test_a_script_alone_goes_with_the_empty_folders_that_it_names(folder: Path) -> None:
    for name in ("out", "elsewhere"):
        (folder / name).mkdir()
    (folder / "other.py").write_text("open('out/log.txt', 'w'), 'out'")
    assert package(folder / "other.py").empty_folders == (Path("out"),)


def _left_out(path: Path, *include: str) -> dict[str, str]:
    return {each.path.as_posix(): each.why for each in package(path, include).left_out}


def test_what_git_ignores_and_the_code_opens_is_named(folder: Path) -> None:
    (folder / ".gitignore").write_text("*.bin\nvenv\n*.yaml\nlocal/\n")
    (folder / "conf.yaml").touch()
    (folder / "unused.yaml").touch()
    (folder / "local").mkdir()
    (folder / "local/deep.yaml").touch()
    (folder / "train.py").write_text("open('conf.yaml'), open('nowhere.yaml'), 'local/', '/etc/passwd', '../x', 'a.py'")
    _git(folder, "init")
    for path in (folder, folder / "train.py"):
        assert _left_out(path) == dict.fromkeys(("conf.yaml", "local"), "git ignores it (.gitignore)")
        assert _left_out(path, "conf.yaml", "local") == {}
    assert {"conf.yaml", "local/deep.yaml"} <= {
        file.as_posix() for file in package(folder, ["conf.yaml", "local"]).files
    }


def test_what_a_script_alone_opens_is_named(folder: Path) -> None:
    (folder / "other.py").write_text("import json\njson.load(open('data.bin'))")
    assert _left_out(folder / "other.py") == {"data.bin": "the script does not import it"}


def test_links_are_named_and_their_content_can_be_included(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "big/one.csv").write_text("1,2")
    (folder / "linked").symlink_to(tmp_path / "big")
    (folder / "shared.py").symlink_to(tmp_path / "big/one.csv")
    assert _left_out(folder) == {
        "linked": f"it is a link to {tmp_path / 'big'}",
        "shared.py": f"it is a link to {tmp_path / 'big/one.csv'}",
    }
    assert _left_out(folder / "other.py") == {}, "a script alone has no use for them"
    code = package(folder, ["linked", "shared.py"])
    assert (code.left_out, {Path("linked/one.csv"), Path("shared.py")} <= {*code.files}) == ((), True)
    archive = io.BytesIO()
    write_zip(code, archive)
    assert zipfile.ZipFile(archive).read("linked/one.csv") == b"1,2"


@pytest.mark.parametrize("path", ["../elsewhere", "/etc/passwd", "nowhere.yaml"])
def test_only_what_is_in_the_folder_can_be_included(folder: Path, path: str) -> None:
    with pytest.raises(InvalidRequest):
        package(folder, [path])


def test_links_do_not_lead_out(folder: Path) -> None:
    (folder / "link.py").symlink_to("/etc/passwd")
    assert "link.py" not in _names(folder)


def test_the_same_files_are_the_same_archive(folder: Path) -> None:
    first, second = io.BytesIO(), io.BytesIO()
    write_zip(package(folder), first)
    for file in folder.rglob("*.py"):
        file.touch()
    write_zip(package(folder), second)
    assert first.getvalue() == second.getvalue()
    assert zipfile.ZipFile(first).testzip() is None


def test_what_cannot_be_sent_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "empty").mkdir()
    for path in (folder / "no.py", folder / "data.bin", folder / "empty"):
        with pytest.raises(InvalidRequest):
            package(path)
    monkeypatch.setattr(pack, "MAX_BYTES", 50)
    with pytest.raises(InvalidRequest, match=r"data\.bin"):
        package(folder)
