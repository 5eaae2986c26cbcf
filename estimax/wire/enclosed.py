"""Files that a manifest names: only those inside its own folder are opened.

    path = enclosed.regular_file(folder, "functions/predict.json")

A manifest may come from anybody. Names that lead out of its folder, by "..", by an
absolute path or by a symbolic link, would let it read, or verify guesses about, other
files of the machine; a pipe or a device would block the reader or never end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PurePosixPath


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
    """Return the path of a file inside `folder`, which need not exist.

    Raises ValueError if the name or a symbolic link leads out of the folder, or if the
    name belongs to something else than a file.
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
