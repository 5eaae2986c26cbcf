"""Random damage to the text of a run file: bytes, lines, tokens, pieces of YAML."""

import random
import re

INSERTED = [
    *(
        b"${",
        b"${vars.data}",
        b"${name}",
        b"$${",
        b"${env:HOME}",
        b"*a ",
        b"&a ",
        b"<<: ",
    ),
    *(
        b"!!str ",
        b"!!python/tuple ",
        b"!x ",
        b"---\n",
        b"...\n",
        b"? ",
        b"- ",
        b": ",
        b"\t",
    ),
    *(
        b"[",
        b"]",
        b"{",
        b"}",
        b"'",
        b'"',
        b"|",
        b">",
        b"#",
        b"%",
        b"@",
        b"`",
        b",",
        b"\n",
    ),
    *(
        b"null",
        b"true",
        b".inf",
        b".nan",
        b"-1",
        b"1e999",
        b"0x",
        b"9" * 30,
        b"2020-01-01",
    ),
    *(b"\0", b"\xff", b"\xc2\x85", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\\ud800", b"\r"),
    *(b"include: [run.yaml]\n", b"vars: {a: 1}\n", b"model: {class: 'os:system'}\n"),
]
_TOKEN = re.compile(rb"[\w.]+|[^\w\s]")


def mutated(data: bytes, chance: random.Random) -> bytes:
    mutations = [flip, insert, drop_line, repeat_line, indent_line, swap, cut, repeat]
    for _ in range(chance.choice([1, 1, 1, 2, 3, 8])):
        data = chance.choice(mutations)(data, chance)
    return data


def flip(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) or 1)
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def insert(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(INSERTED) + data[at:]


def drop_line(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True) or [b""]
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def repeat_line(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True) or [b""]
    lines.insert(chance.randrange(len(lines)), chance.choice(lines))
    return b"".join(lines)


def indent_line(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True) or [b""]
    at = chance.randrange(len(lines))
    less = lines[at].removeprefix(b"  ")
    lines[at] = chance.choice([less, b"  " + lines[at], b"\t" + lines[at]])
    return b"".join(lines)


def swap(data: bytes, chance: random.Random) -> bytes:
    tokens = list(_TOKEN.finditer(data))
    if len(tokens) < 2:
        return data
    first, second = sorted(chance.sample(tokens, 2), key=lambda match: match.start())
    middle = data[first.end() : second.start()]
    return data[: first.start()] + second[0] + middle + first[0] + data[second.end() :]


def cut(data: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(data) + 1)
    return data[:start] + data[start + chance.randrange(200) :]


def repeat(data: bytes, chance: random.Random) -> bytes:
    """Write a piece of the file many times over."""
    start = chance.randrange(len(data) + 1)
    piece = data[start : start + chance.randrange(1, 20)]
    return data[:start] + piece * chance.choice([2, 60, 3000]) + data[start:]
