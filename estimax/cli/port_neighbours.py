"""The modules of a program that lie beside it, and whether they use TensorFlow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from estimax.cli.port_imports import dotted

_USES_TENSORFLOW = re.compile(rb"^\s*(?:import|from)\s+tensorflow\b", re.MULTILINE)


def neighbours_with_tensorflow(node: Any, program: Path) -> list[Path]:
    """Return the files that an import reads and that import TensorFlow.

    Args:
      node: `import …` or `from … import …`.
      program: The path of the program, which need not be in a package.
    """
    return [
        path
        for path in _imported_files(node, program)
        if path != program and _USES_TENSORFLOW.search(path.read_bytes())
    ]


def _imported_files(node: Any, program: Path) -> list[Path]:
    import libcst as cst

    if isinstance(node, cst.Import):
        names = [dotted(item.name) or "" for item in node.names]
        return _existing(_roots(program), names)
    module = (dotted(node.module) or "") if node.module else ""
    names = [module] if module else []
    if not isinstance(node.names, cst.ImportStar):
        items = [dotted(item.name) or "" for item in node.names]
        names += [f"{module}.{item}".lstrip(".") for item in items]
    if not node.relative:
        return _existing(_roots(program), names)
    levels = [program.parent, *program.parent.parents]
    start = levels[min(len(node.relative), len(levels)) - 1]
    return _existing([start], names)


def _roots(program: Path) -> list[Path]:
    """Return the folder of a program, and the one around the package it belongs to."""
    top = program.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    return [program.parent, top]


def _existing(folders: list[Path], names: list[str]) -> list[Path]:
    """Return the files of modules, each once."""
    found: dict[Path, None] = {}
    for name in names:
        for folder in folders:
            base = folder.joinpath(*name.split("."))
            for path in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
                if path.is_file():
                    found[path] = None
    return list(found)
