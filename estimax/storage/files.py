"""Open files by path or URL, and check names of files inside a folder.

    with files.open_to_read("s3://bucket/train-00.tfrecord") as file: ...
    path = files.regular_file(folder, "weights.safetensors")    # or ValueError

A path with `://` is opened by fsspec if it has that file system, else by pyarrow. The
names in the manifest of a checkpoint or a bundle are not trusted: `check_name` and
`regular_file` refuse a name that leads out of its folder.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from estimax.core.errors import InputError

Pathish = str | os.PathLike[str]
# How long pyarrow tries to reach Google Cloud Storage; its own limit is 15 minutes.
_GCS_SECONDS = 60


def is_remote(path: Pathish) -> bool:
    """Return whether a path is a URL and not a path of the local file system.

    >>> is_remote("gs://bucket/a"), is_remote("data/a")
    (True, False)
    """
    return "://" in os.fspath(path)


def open_to_read(path: Pathish) -> BinaryIO:
    """Open a file to read bytes, without buffering: callers read large pieces.

    Raises:
      InputError: The file does not exist, may not be read, or is not a regular file but
        a folder, a named pipe or a device.
    """
    if is_remote(path):
        return _open_remote(os.fspath(path), "rb", "read")
    try:
        file = _open_at_once(path)
    except OSError as error:
        message = f"{path}: cannot be read: {reason(error)}."
        if any(sign in os.fspath(path) for sign in "*?["):
            message += (
                " A pattern is not expanded here: list the files, for example with "
                "ex.input.Dataset.list_files or glob.glob."
            )
        raise InputError(message) from error
    kind = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(kind):
        file.close()
        what = "a named pipe" if stat.S_ISFIFO(kind) else "a device or a socket"
        raise InputError(
            f"{path}: expected a file, found {what}. Reading resumes from saved "
            "positions, which only a file has: write the data to a file first."
        )
    return file


def size_of(file: BinaryIO) -> int | None:
    """Return the size of an open local file in bytes; None for a remote one."""
    try:
        return os.fstat(file.fileno()).st_size
    except (AttributeError, OSError):  # a remote file has no descriptor
        return None


def _open_at_once(path: Pathish) -> BinaryIO:
    """Open without blocking, which a named pipe does until it has a writer."""

    def opener(path: str, flags: int) -> int:
        return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))

    return cast(BinaryIO, open(path, "rb", buffering=0, opener=opener))


def open_to_write(path: Pathish) -> BinaryIO:
    """Create a file, or empty an existing one, and open it to write bytes."""
    if is_remote(path):
        return _open_remote(os.fspath(path), "wb", "written")
    try:
        return open(path, "wb")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {reason(error)}.") from error


def file_system(url: str) -> tuple[Any, str, bool]:
    """Return the `pyarrow.fs.FileSystem` of a URL, the path in it, and its encoding.

    The last is True if names in URLs are percent-encoded, as pyarrow expects them;
    fsspec takes them as they are.
    """
    from pyarrow import fs

    found = _fsspec_system(url)
    if found is None:
        return (*fs.FileSystem.from_uri(_limit_retries(url)), True)
    return fs.PyFileSystem(fs.FSSpecHandler(found[0])), found[1], False


def _fsspec_system(url: str) -> tuple[Any, str] | None:
    """Return the file system of fsspec and the path in it; None if it has none.

    fsspec alone is installed with many packages; a store needs one more, such as s3fs.
    """
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]  # no types

        system, path = url_to_fs(url)
    except (ImportError, ValueError):  # the latter for an unknown protocol
        return None
    return system, path


def _limit_retries(url: str) -> str:
    """Return the URL for pyarrow, with a limit on the time to reach the store.

    >>> _limit_retries("gs://bucket/a")
    'gs://bucket/a?retry_limit_seconds=60'
    """
    if not url.startswith(("gs://", "gcs://")) or "retry_limit_seconds=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}retry_limit_seconds={_GCS_SECONDS}"


def _open_remote(url: str, mode: str, done: str) -> BinaryIO:
    try:
        found = _fsspec_system(url)
        if found is not None:
            return cast(BinaryIO, found[0].open(found[1], mode))
        system, path, _ = file_system(url)
        opener = system.open_input_file if mode == "rb" else system.open_output_stream
        return cast(BinaryIO, opener(path))
    except Exception as error:  # of any kind: each file system has its own
        raise InputError(
            f"{url}: cannot be {done}: {reason(error)}. Check the name, the network "
            "and the credentials of this machine for the store."
        ) from error


def reason(error: Exception) -> str:
    """Return the text of an error without its number and file."""
    told = getattr(error, "strerror", None) or str(error).rstrip(".")
    return told or type(error).__name__


def check_name(name: str) -> None:
    """Raise ValueError unless `name` is a relative path inside a folder.

    >>> check_name("functions/predict.json")
    >>> check_name("../secret")
    Traceback (most recent call last):
    ValueError: '../secret' is not a relative path inside the folder
    """
    parts = PurePosixPath(name)
    if (
        str(parts) != name
        or parts.is_absolute()
        or ".." in parts.parts
        or name in ("", ".")
        or any(character in name for character in "\0\\")
    ):
        raise ValueError(f"{name!r} is not a relative path inside the folder")


def regular_file(folder: Path, name: str) -> Path:
    """Return the path of the file `name` in `folder`; the file need not exist.

    Raises:
      ValueError: The name or a symbolic link leads out of the folder, or the path is
        not a regular file.
    """
    check_name(name)
    path = folder / name
    root = os.path.realpath(folder)
    if os.path.commonpath([root, os.path.realpath(path)]) != root:
        raise ValueError(f"{name!r} is a symbolic link that leads out of the folder")
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return path
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            raise ValueError(f"{name!r}: {error.strerror}") from None
        raise
    if not stat.S_ISREG(mode):
        raise ValueError(f"{name!r} is not a regular file")
    return path
