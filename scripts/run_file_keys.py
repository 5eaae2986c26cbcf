"""The page of the documentation site that lists every key of a run file.

`site_hooks.py` adds the page, which is made from the dataclasses of the schema.
"""

from __future__ import annotations

from collections.abc import Iterator

from estimax.config.key_reference import KeyEntry, SectionEntry, all_sections

_INTRODUCTION = """# Keys of a run file

Every key, with the values that it takes, its default and the argument of Python that it
stands for. This page is made from the code. `estimax schema train.max_steps` prints the
same for one key or section in the terminal, and [Run files](../guides/run_files.md)
explains how the sections work together.

`<name>` stands for a name that you choose, `<n>` for the number of an item of a list,
from 0. Any value can be a reference to another one, such as `${vars.rate}`.

## Where a section is used

"""


def key_page() -> str:
    """Return the Markdown of the page."""
    sections = all_sections()
    return _INTRODUCTION + "\n".join(
        [
            "| address | sections |",
            "|---|---|",
            *_addresses(sections),
            "",
            *(line for section in sections for line in _section(section)),
        ]
    )


def _addresses(sections: tuple[SectionEntry, ...]) -> Iterator[str]:
    at: dict[str, list[str]] = {}
    for section in sections:
        for address in section.addresses:
            at.setdefault(address, []).append(_link(section))
    for address, links in at.items():
        yield f"| {_code(address) if address else 'the file'} | {', '.join(links)} |"


def _link(section: SectionEntry) -> str:
    return f"[{section.tag or section.name}](#{_anchor(section)})"


def _anchor(section: SectionEntry) -> str:
    return section.name.lower()


def _section(section: SectionEntry) -> Iterator[str]:
    where = section.addresses[0] or "The file"
    tag = f", {section.tag}" if section.tag and section.addresses[0] else ""
    yield f"## {where.replace('<', '&lt;')}{tag} {{#{_anchor(section)}}}"
    yield ""
    yield section.summary
    yield ""
    if len(section.addresses) > 1:
        also = ", ".join(_code(address) for address in section.addresses[1:])
        yield f"Also at {also}."
        yield ""
    if section.python:
        yield f"In Python: `{section.python}`."
        yield ""
    yield "| key | value | default | in Python | what it does |"
    yield "|---|---|---|---|---|"
    yield from (_row(section, key) for key in section.keys)
    yield ""


def _row(section: SectionEntry, key: KeyEntry) -> str:
    """Return the row of a key, which links can point to."""
    target = f'<a id="{_anchor(section)}.{key.key}"></a>'
    python = _code(key.python) if key.python else ""
    default = key.default if key.default.startswith("required") else _code(key.default)
    cells = [f"{target}`{key.key}`", key.type, default, python, key.description]
    # `<` would begin an element of HTML, but not in code; `|` ends a cell.
    escaped = [cells[0], cells[1].replace("<", "&lt;"), *cells[2:]]
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in escaped)} |"


def _code(text: str) -> str:
    return f"`{text}`"
