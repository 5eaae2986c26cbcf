"""Find the files that a URL with a pattern means, on any file system of pyarrow.

    matching("s3://bucket/day=*/part-*.parquet")     # sorted URLs
    matching("file:///data/train-[0-9].csv")

`*` and `[…]` match within one name, as in `glob`, and not a name that begins with a
dot. `?` begins the query of a URL and is no pattern. Folders are listed one level at a
time, from the first name with a pattern: `day=*` does not list what is below a day.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from estimax.core.errors import InputError
from estimax.storage import files

# What may stand in the path of a URL as it is, besides letters and digits.
_PLAIN = "/=:@!$&'()+,;~-._"


def has_pattern(url: str) -> bool:
    """Return whether the path of a URL has a pattern.

    >>> has_pattern("s3://b/day=*/a.csv"), has_pattern("s3://b/a.csv?region=eu-west-1")
    (True, False)
    """
    host, *path = _names(url)
    # A host may be an address such as [::1].
    return "*" in host or any(map(_is_pattern, path))


def expand(url: str) -> list[str]:
    """Return the files that a URL means: the matches of its pattern, or itself.

    A URL without a pattern is not looked for.

    >>> expand("s3://bucket/train.csv")
    ['s3://bucket/train.csv']
    """
    return matching(url) if has_pattern(url) else [url]


def matching(url: str) -> list[str]:
    """Return the URLs of all files that match a URL with a pattern, sorted.

    Raises:
      InputError: Nothing matches, the first name (the bucket) is a pattern, or the file
        system cannot be listed.
    """
    names = _names(url)
    if "*" in names[0]:
        raise InputError(
            f"{url}: expected the name of a bucket or host, found a pattern. Patterns "
            "may begin after it, such as s3://bucket/*.csv."
        )
    first = next(i for i, name in enumerate(names) if i and _is_pattern(name))
    scheme = url.partition("://")[0]
    query = url.partition("?")[1] + url.partition("?")[2]
    top = f"{scheme}://{'/'.join(names[:first])}"
    try:
        # The root of a file system is written "file:///", without a name.
        system, folder, is_encoded = files.file_system(
            (top if names[first - 1] else f"{top}/") + query
        )
        found = sorted(find(system, folder, names[first:]))
    except Exception as error:  # of any kind: each file system has its own
        raise InputError(
            f"{url}: the files cannot be listed: {files.reason(error)}. Check the "
            "address, the network and the credentials."
        ) from error
    if not found:
        raise InputError(f"no file matches {url!r}.")
    encoded = [quote(path, safe=_PLAIN) if is_encoded else path for path in found]
    return [f"{top}/{path}{query}" for path in encoded]


def find(system: Any, folder: str, names: Sequence[str]) -> Iterator[str]:
    """Yield the paths, relative to `folder`, of files that match one name per level.

    `system` is a `pyarrow.fs.FileSystem`.
    """
    from pyarrow import fs

    name, rest = names[0], names[1:]
    if _is_pattern(name):
        listed = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        entries = [info for info in listed if _matches(info.base_name, name)]
    else:
        entries = [system.get_file_info(posixpath.join(folder, name))]
    for info in entries:
        here = info.base_name
        if not rest and info.is_file:
            yield here
        # An object store has no folders of its own: a plain name may be a prefix of
        # files although it is not found itself.
        elif rest and not info.is_file:
            for path in find(system, posixpath.join(folder, here), rest):
                yield posixpath.join(here, path)


def _names(url: str) -> list[str]:
    """Return the names between the slashes of a URL, the bucket or host first."""
    return url.partition("://")[2].partition("?")[0].split("/")


def _is_pattern(name: str) -> bool:
    return "*" in name or "[" in name


def _matches(name: str, pattern: str) -> bool:
    is_hidden = name.startswith(".") and not pattern.startswith(".")
    return not is_hidden and fnmatch.fnmatchcase(name, pattern)
