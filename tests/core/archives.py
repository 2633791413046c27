"""Archives for tests, good and evil."""

import io
import tarfile
import zipfile

__all__ = ["tar_of", "tar_with", "zip_of"]


def tar_of(files: dict[str, bytes], *, mode: str = "w:gz") -> io.BytesIO:
    members = []
    for name, content in files.items():
        info = tarfile.TarInfo(name)
        info.size = len(content)
        members.append((info, content))
    return tar_with(members, mode=mode)


def tar_with(members: list[tuple[tarfile.TarInfo, bytes]], *, mode: str = "w:gz") -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    stream.seek(0)
    return stream


def zip_of(files: dict[str, bytes], *, unix_mode: int = 0o644) -> io.BytesIO:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = unix_mode << 16
            archive.writestr(info, content)
    stream.seek(0)
    return stream
