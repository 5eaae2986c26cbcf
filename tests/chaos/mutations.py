"""Random damage to bytes, to JSON values and to the files of a folder."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DEEP = 100_000  # far deeper than any recursive parser can go
_DEEP_MARK = "@deep@"
HOSTILE_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    -(2**63),
    2**63,
    2**64,
    10**30,
    0.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "text",
    "7",
    "\0",
    "\ud800",
    "a" * 100_000,
    "..",
    "../secret",
    "/etc/passwd",
    [],
    {},
    [[]],
    [-1],
    [2**40, 2**40],
    [1.5],
    ["3"],
    [0] * 40,
    {"a": 1},
    _DEEP_MARK,
)


def mutated_bytes(draw: random.Random, data: bytes, other: bytes) -> tuple[bytes, str]:
    """Damage `data`, sometimes with a piece of `other`; return it and what was done."""
    done = []
    for _ in range(draw.choice([1, 1, 1, 1, 2, 5])):
        data, what = draw.choice(_BYTE_MUTATIONS)(draw, data, other)
        done.append(what)
    return data, ", ".join(done)


def _flip(draw: random.Random, data: bytes, other: bytes) -> tuple[bytes, str]:
    if not data:
        return data, "nothing"
    at, bit = draw.randrange(len(data)), draw.randrange(8)
    flipped = bytes([data[at] ^ 1 << bit])
    return data[:at] + flipped + data[at + 1 :], f"flip bit {bit} of byte {at}"


def _overwrite(draw: random.Random, data: bytes, other: bytes) -> tuple[bytes, str]:
    at, length = _range(draw, data)
    fill = draw.choice([b"\0", b"\xff", b"9", b"\n"])
    new = data[:at] + fill * length + data[at + length :]
    return new, f"set {length} bytes at {at} to {fill!r}"


def _insert(draw: random.Random, data: bytes, other: bytes) -> tuple[bytes, str]:
    at, new = draw.randrange(len(data) + 1), draw.randbytes(draw.choice([1, 1, 8, 100]))
    return data[:at] + new + data[at:], f"insert {len(new)} bytes at {at}"


def _delete(draw: random.Random, data: bytes, other: bytes) -> tuple[bytes, str]:
    at, length = _range(draw, data)
    return data[:at] + data[at + length :], f"delete {length} bytes at {at}"


def _truncate(draw: random.Random, data: bytes, other: bytes) -> tuple[bytes, str]:
    at = draw.choice([0, max(0, len(data) - 1), draw.randrange(len(data) + 1)])
    return data[:at], f"cut off at {at}"


def _repeat(draw: random.Random, data: bytes, other: bytes) -> tuple[bytes, str]:
    at, length = _range(draw, data)
    piece = data[at : at + length]
    return data[:at] + piece + data[at:], f"repeat {length} bytes at {at}"


def _splice(draw: random.Random, data: bytes, other: bytes) -> tuple[bytes, str]:
    at, length = _range(draw, other)
    place = draw.randrange(len(data) + 1)
    new = data[:place] + other[at : at + length] + data[place + length :]
    return new, f"put bytes {at}:{at + length} of another file at {place}"


def _shuffle_blocks(draw: random.Random, data: bytes, other: bytes) -> Any:
    size = draw.choice([8, 64, 512])
    blocks = [data[i : i + size] for i in range(0, len(data), size)]
    if len(blocks) < 2:
        return data, "nothing"
    i, j = draw.sample(range(len(blocks)), 2)
    blocks[i], blocks[j] = blocks[j], blocks[i]
    return b"".join(blocks), f"swap blocks {i} and {j} of {size} bytes"


def _range(draw: random.Random, data: bytes) -> tuple[int, int]:
    at = draw.randrange(len(data) + 1)
    return at, min(draw.choice([1, 2, 8, 64, 1024]), len(data) - at)


_BYTE_MUTATIONS: Sequence[Callable[..., tuple[bytes, str]]] = (
    _flip,
    _flip,
    _overwrite,
    _insert,
    _delete,
    _truncate,
    _repeat,
    _splice,
    _shuffle_blocks,
)


def mutate_file(path: Path, draw: random.Random, other: Path | None = None) -> str:
    """Damage the content of a file in place; return what was done."""
    before = path.read_bytes()
    donor = (other or path).read_bytes()
    data, what = before, ""
    while data == before:  # some kinds of damage may change nothing
        data, what = mutated_bytes(draw, before, donor)
    path.write_bytes(data)
    return f"{path.name}: {what}"


def break_file(path: Path, draw: random.Random) -> str:
    """Replace a file by nothing, a folder, a link or a pipe; return what was done."""
    path.unlink()
    kind = draw.choice(["gone", "gone", "folder", "dangling", "loop", "pipe", "empty"])
    if kind == "folder":
        path.mkdir()
    elif kind == "dangling":
        path.symlink_to("no-such-file")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "empty":
        path.touch()
    return f"{path.name}: now {kind}"


def mutated_json(value: Any, draw: random.Random) -> tuple[Any, str]:
    """Change one random item of a JSON value; return the new value and the change.

    The value may contain a mark that `json_text` turns into very deep nesting.
    """
    value = json.loads(json.dumps(value))
    holders = list(_holders(value, "$"))
    if not holders:
        return draw.choice(HOSTILE_VALUES), "replace all"
    holder, key, where = draw.choice(holders)
    what = draw.choice(["replace", "replace", "replace", "delete", "copy", "rename"])
    if what == "delete":
        del holder[key]
    elif what == "copy":
        source, other, from_where = draw.choice(holders)
        holder[key] = json.loads(json.dumps(source[other]))
        where = f"{where} = {from_where}"
    elif what == "rename" and isinstance(holder, dict):
        name = draw.choice(["", "other", "../secret", "/etc/passwd", "a" * 300, "\0"])
        holder[name] = holder.pop(key)
        where = f"{where} to {name[:20]!r}"
    else:
        holder[key] = draw.choice(HOSTILE_VALUES)
        where = f"{where} = {holder[key]!r:.60}"
    return value, f"{what} {where}"


def json_text(value: Any) -> str:
    """Return a value that `mutated_json` made as JSON."""
    deep = "[" * DEEP + "]" * DEEP
    return json.dumps(value, indent=1).replace(f'"{_DEEP_MARK}"', deep)


def is_deep(value: Any) -> bool:
    """Return whether `json_text` nests too deeply to compute a checksum."""
    return f'"{_DEEP_MARK}"' in json.dumps(value)


def _holders(value: Any, where: str) -> Any:
    if isinstance(value, dict):
        for key in value:
            yield value, key, f"{where}.{key}"
            yield from _holders(value[key], f"{where}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield value, i, f"{where}[{i}]"
            yield from _holders(item, f"{where}[{i}]")


def swap(one: Path, other: Path) -> str:
    """Exchange two files or folders; return what was done."""
    aside = one.with_name("aside")
    shutil.move(one, aside)
    shutil.move(other, one)
    shutil.move(aside, other)
    return f"swap {one.parent.name}/{one.name} and {other.parent.name}/{other.name}"


def files_of(folder: Path) -> list[Path]:
    """Return every file below a folder, in a fixed order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
