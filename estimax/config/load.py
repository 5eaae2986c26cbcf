"""Read a run file: include, override, interpolate, decode, check.

    loaded = load("run.yaml", overrides=["train.max_steps=500"])
    loaded.run.train.max_steps          # 500
    loaded.origin("train.max_steps")    # --set train.max_steps=500

Nothing here imports jax: a wrong file is refused in a fraction of a second.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from estimax.config.checks import check_run
from estimax.config.decode import Decoder
from estimax.config.interpolate import interpolate
from estimax.config.nodes import ListNode, MapNode, ScalarNode, parse
from estimax.config.origins import DEFAULT, Origin, Problems
from estimax.config.overrides import apply_override, merge
from estimax.config.schema import Run
from estimax.core.errors import MissingFileError


@dataclass(frozen=True)
class LoadedRun:
    """A run that passed every check, with where each value came from."""

    run: Run
    path: Path
    source: str  # the text of the file
    overrides: tuple[str, ...]
    origins: Mapping[str, Origin]

    def origin(self, path: str) -> Origin:
        """Where the value at an address such as `train.max_steps` was written."""
        return self.origins.get(path, DEFAULT)


def load(
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    *,
    model_dir: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> LoadedRun:
    """Read and check a run file; `RunFileError` lists everything wrong with it."""
    path = Path(path)
    file = str(path)
    if not path.is_file():
        raise MissingFileError(f"{file}: there is no such run file.")
    problems = Problems(file)
    source = path.read_text(encoding="utf-8", errors="replace")
    tree = _read(path, source, problems, ())
    if tree is None:
        problems.raise_if_any()
        raise AssertionError("a file that cannot be read has a problem")
    for text in overrides:
        tree = apply_override(tree, text, problems)
    if model_dir is not None:
        text = f"run.model_dir={model_dir}"
        tree = apply_override(tree, text, problems, option="--model-dir")
    tree = interpolate(
        tree, problems, os.environ if environment is None else environment
    )
    decoder = Decoder(problems)
    run = decoder.section(tree, Run, "")
    check_run(run, decoder.origins, problems)
    problems.raise_if_any()
    # Both are spent by now; what remains is the run they describe.
    run = dataclasses.replace(run, include=(), vars={})
    return LoadedRun(run, path, source, tuple(overrides), decoder.origins)


def _read(
    path: Path, text: str, problems: Problems, above: tuple[Path, ...]
) -> MapNode | None:
    """One file over the files that it includes."""
    file = str(path)
    node = parse(text, file, problems)
    if node is None:
        return None
    if not isinstance(node, MapNode):
        problems.add(
            node.origin, "", "expected a mapping of sections, got something else"
        )
        return None
    base = MapNode({}, node.origin)
    for included, origin in _includes(node, problems):
        target = path.parent / included
        if target.resolve() in (*above, path.resolve()):
            problems.add(origin, "include", f"{included} includes itself")
        elif not target.is_file():
            problems.add(origin, "include", f"no file {target}")
        else:
            inner = target.read_text(encoding="utf-8", errors="replace")
            below = _read(target, inner, problems, (*above, path.resolve()))
            base = merge(base, below) if below is not None else base
    return merge(base, node)


def _includes(node: MapNode, problems: Problems) -> list[tuple[str, Origin]]:
    entry = node.entries.get("include")
    # Anything but a list of texts is reported when the section is decoded.
    if entry is None or not isinstance(entry.node, ListNode):
        return []
    found = []
    for item in entry.node.items:
        if not isinstance(item, ScalarNode) or not isinstance(item.value, str):
            continue
        if "${" in item.value:
            text = "references are not resolved here; write the file's name"
            problems.add(item.origin, "include", text)
            continue
        found.append((item.value, item.origin))
    return found
