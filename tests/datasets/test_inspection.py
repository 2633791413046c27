"""Tests of inspections: findings in folders of each kind, and sentences where something does not fit."""

import base64
import os
from pathlib import Path

import numpy as np
import pytest

from datasets.digits import write_digits
from datasets.inspection.findings import parts_of
from datasets.inspection.inspector import Inspection, inspect
from datasets.inspection.pictures import png
from tests.datasets.cifar_files import batch, meta, write_cifar

PNG = png(bytes(12), 2, 2, channels=3)
JPEG = b"\xff\xd8\xff\xe0" + bytes(20) + b"\xff\xd9"


def look(folder: Path, kind: str = "any") -> Inspection:
    return inspect(parts_of(folder), kind)


def fill(folder: Path, files: dict[str, bytes | str]) -> Path:
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def counts(found: Inspection) -> dict[str, dict[str, int]]:
    return {part.role: part.classes for part in found.findings.parts}


def test_cifar_as_in_the_tutorial_is_recognised(tmp_path: Path) -> None:
    found = look(write_cifar(tmp_path, per_batch=20), "images")

    assert found.findings.problems == []
    assert found.findings.format == "CIFAR-10 python batches"
    assert [(part.role, part.folder, part.items) for part in found.findings.parts] == [
        ("training", "train_db", 100),
        ("testing", "test_db", 20),
    ]
    assert counts(found)["training"]["airplane"] == 10
    assert len(found.findings.samples) == 10
    assert base64.b64decode(found.findings.samples[0].png).startswith(b"\x89PNG")


def test_one_cifar_folder_is_split_by_its_batches(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    found = look(tmp_path / "train_db/cifar-10-batches-py", "images")

    assert {part.role: part.items for part in found.findings.parts} == {"training": 100, "testing": 20}
    assert found.findings.warnings == []


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"data_batch_1": batch([1, 2])[:-40]}, "damaged or cut off"),
        ({"data_batch_1": batch([1, 11])}, "labels are not numbers from 0 to 9"),
        ({"data_batch_1": batch([1]).replace(b"u1", b"O8")}, "not an array of bytes"),
        ({"data_batch_1": batch([1, 2]), "batches.meta": meta(["a", "b"])}, "does not name 10 classes"),
        ({"data_batch_1": batch([1, 2]), "batches.meta": b"\x80\x02cos\nsystem\n."}, "os.system, which is never run"),
        ({"data_batch_1": b"junk"}, "damaged or cut off"),
    ],
)
def test_damaged_batches_are_named(tmp_path: Path, files: dict, sentence: str) -> None:
    assert sentence in " ".join(look(fill(tmp_path, files), "images").findings.problems)


def test_class_folders(tmp_path: Path) -> None:
    names = ["train/cat/1.png", "train/cat/2.png", "train/dog/1.jpg", "val/cat/1.png", "test/bird/1.png"]
    found = look(fill(tmp_path, {name: JPEG if name.endswith("jpg") else PNG for name in names}), "images")

    assert found.findings.problems == []
    assert counts(found) == {"training": {"cat": 2, "dog": 1}, "validation": {"cat": 1}, "testing": {"bird": 1}}
    assert "The class 'dog' has 1 image" in " ".join(found.findings.warnings)
    assert "bird: only in testing" in " ".join(found.findings.warnings)
    assert [sample.file for sample in found.findings.samples][:2] == ["train/cat/1.png", "train/dog/1.jpg"]


def test_a_class_called_train_is_a_class(tmp_path: Path) -> None:
    found = look(fill(tmp_path, {f"{name}/1.png": PNG for name in ("car", "plane", "train")}), "images")

    assert counts(found) == {"": {"car": 1, "plane": 1, "train": 1}}


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"a/1.png": PNG, "2.png": PNG}, "1 image outside the class folders, such as 2.png"),
        ({"a/1.png": b""}, "a/1.png is empty"),
        ({"a/1.png": "<html>"}, "a/1.png is not an image"),
        ({"a/1.png": PNG[:-20]}, "a/1.png is cut off"),
        ({"a/1.jpg": JPEG[:-2]}, "a/1.jpg is cut off"),
        ({"1.png": PNG}, "There are no labelled images"),
        ({"a.csv": "a,b\n1,2\n"}, "There are no labelled images"),
        ({"x.npz": b"PK not a zip"}, "x.npz cannot be read"),
        ({}, "The folder contains no files"),
        ({"train/a/1.png": PNG, "test/.keep": b""}, "The testing folder contains no files"),
    ],
)
def test_what_does_not_fit_images_is_named(tmp_path: Path, files: dict, sentence: str) -> None:
    assert sentence in " ".join(look(fill(tmp_path, files), "images").findings.problems)


def test_the_digits_have_classes_and_pictures(tmp_path: Path) -> None:
    write_digits(tmp_path)
    found = look(tmp_path, "images")

    assert found.findings.problems == []
    assert {part.role: part.items for part in found.findings.parts} == {"training": 1438, "testing": 359}
    assert sorted(sample.label for sample in found.findings.samples) == list("0123456789")


def test_arrays_of_objects_are_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", labels=np.array([{}, 1], dtype=object), allow_pickle=True)

    assert "cannot be read" in look(tmp_path, "images").findings.problems[0]


def test_a_table_has_columns_rows_and_classes(tmp_path: Path) -> None:
    text = "width;height;label\n1;2.5;cat\n3;;dog\n5;1.5;cat\n"
    found = look(fill(tmp_path, {"train.csv": text, "test.csv": text}), "csv")

    assert found.findings.problems == []
    assert [(part.role, part.items) for part in found.findings.parts] == [("training", 3), ("testing", 3)]
    assert counts(found)["training"] == {"cat": 2, "dog": 1}
    assert [(column.name, column.is_number, column.missing) for column in found.findings.columns] == [
        ("width", True, 0),
        ("height", True, 1),
        ("label", False, 0),
    ]
    assert found.findings.columns[0].mean == 3
    assert found.findings.head is not None
    assert found.findings.head.rows[1] == ["3", "", "dog"]


def test_a_table_without_names_gets_numbers(tmp_path: Path) -> None:
    found = look(fill(tmp_path, {"points.csv": "1,2\n3,4\n"}), "csv")

    assert found.findings.head is not None
    assert found.findings.head.columns == ["column 1", "column 2"]
    assert found.findings.parts[0].items == 2


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"a.csv": "a,b\n1,2\n1,2,3\n1\n"}, "a.csv has 3 fields in row 3, but 2 columns"),
        ({"a.csv": "a,b\n" + "1\n" * 9}, "a.csv has 6 more rows of another length"),
        ({"a.csv": b"name,n\nM\xfcller,1\n"}, "a.csv is not UTF-8 (byte 0xfc is no character)"),
        ({"a.csv": b"a,b\n1,\0\n"}, "a.csv contains NUL bytes"),
        ({"a.csv": b""}, "a.csv is empty"),
        ({"a.csv": 'a,b\n1,"open\n'}, "a.csv cannot be read as CSV"),
        ({"a.csv": "a,b\n1,2\n", "b.csv": "a,b,c\n1,2,3\n"}, "b.csv has 3 columns, but a.csv has 2"),
        ({"a.txt": "a,b\n"}, "There is no .csv or .tsv file"),
    ],
)
def test_what_does_not_fit_tables_is_named(tmp_path: Path, files: dict, sentence: str) -> None:
    assert sentence in " ".join(look(fill(tmp_path, files), "csv").findings.problems)


def test_tables_in_other_encodings_with_a_mark_are_read(tmp_path: Path) -> None:
    files = {"a.csv": "name,n\nMüller,1\n".encode("utf-16"), "b.csv": "name,n\nMüller,1\n".encode("utf-8-sig")}
    found = look(fill(tmp_path, files), "csv")

    assert found.findings.problems == []
    assert found.findings.head is not None
    assert found.findings.head.rows == [["Müller", "1"]]


def test_any_asks_nothing_of_the_files(tmp_path: Path) -> None:
    found = look(fill(tmp_path, {"a.csv": "a,b\n1\n", "notes.txt": "x"}))

    assert found.findings.problems == []
    assert "a.csv has 1 fields in row 2" in " ".join(found.findings.warnings)


def test_any_still_needs_files_that_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, {"a.bin": "x", "b.bin": "y"})
    real = Path.open

    def refusing(self: Path, *args: object, **more: object) -> object:
        if self.name == "b.bin":
            raise PermissionError(13, "Permission denied")
        return real(self, *args, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refusing)

    assert look(tmp_path).findings.problems == [
        "b.bin cannot be read (Permission denied): grant read access to the account that runs Tidepool."
    ]


def test_links_and_devices_are_left_out(tmp_path: Path) -> None:
    fill(tmp_path / "data", {"a.bin": "x"})
    fill(tmp_path, {"secret": "do not read"})
    (tmp_path / "data/link").symlink_to(tmp_path / "secret")
    (tmp_path / "data/loop").symlink_to(tmp_path / "data")
    os.mkfifo(tmp_path / "data/pipe")
    found = look(tmp_path / "data")

    assert (found.file_count, found.size_bytes) == (1, 1)
    assert "3 links or devices were skipped" in found.findings.warnings[0]


def test_the_digest_follows_names_and_contents(tmp_path: Path) -> None:
    def digest(**files: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        return look(fill(folder, {**files})).digest

    first = digest(a="1", b="2")
    assert digest(a="1", b="2") == first
    assert len({first, digest(a="1", b="3"), digest(a="1", c="2"), digest(a="12", b="")}) == 4


def test_progress_grows_to_the_end(tmp_path: Path) -> None:
    told: list[float] = []
    fill(tmp_path, {f"{name}/{number}.png": PNG for name in "ab" for number in range(5)})
    inspect(parts_of(tmp_path), "images", told.append)

    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)


def test_the_digest_is_of_the_whole_however_large(tmp_path: Path) -> None:
    fill(tmp_path, {"a.bin": bytes(3 * 1024**2)})
    told: list[float] = []
    found = inspect(parts_of(tmp_path), "any", told.append)

    assert len(found.digest) == 64
    assert len(told) >= 3
